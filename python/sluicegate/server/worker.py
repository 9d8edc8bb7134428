"""A worker process: the application, and what it does with signals."""

import asyncio
import gc
import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

from sluicegate.config import Config, load_file
from sluicegate.gateway import Gateway, create_app
from sluicegate.server.reload import RELOAD_SIGNAL, Stamp, faults_of, stamp_of
from sluicegate.telemetry import Log


@dataclass(slots=True)
class Plan:
    """What a worker is started with. It is pickled through a pipe: no secret is on a command line."""

    config: Config
    path: Path | None = None
    stamp: Stamp = None
    """Of the file when `config` was read from it."""


def load_worker(plan: Plan) -> Gateway:
    """The application of a worker, made in the worker."""
    server = plan.config.server
    log = Log.configured(server.log.level, server.log.format)
    gateway = create_app(plan.config, log=log)
    gateway.on_startup = partial(_begin, gateway, plan, log)
    return gateway


_STOPPING = (signal.SIGTERM, signal.SIGINT)

# Within this time the server's own handler has seen the signal.
_SEEN_SECONDS = 0.5


# Cyclic garbage is rare here, and each request makes some hundred objects: by default they are searched for
# it every few requests.
_GC_THRESHOLD = 20_000


def _begin(gateway: Gateway, plan: Plan, log: Log) -> None:
    # What there is by now stays; it need not be searched again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    _watch(gateway, plan.config.server.drain_seconds)
    if plan.path is not None:
        _follow(gateway, plan.path, plan.stamp, log)


def _follow(gateway: Gateway, path: Path, stamp: Stamp, log: Log) -> None:
    """Serve what the file at `path` says whenever the parent tells that it is another."""
    loop = asyncio.get_running_loop()
    told = asyncio.Event()

    async def follow() -> None:
        while True:
            await told.wait()
            told.clear()
            try:
                # Not on the loop: a large file takes a while.
                config = await asyncio.to_thread(load_file, path)
                gateway.reload(config)
            except Exception as error:
                # The parent found no fault in it: it has changed again, and will be told again.
                log.error("reload_failed", pid=os.getpid(), faults=faults_of(error))
            else:
                log.info("reloaded", pid=os.getpid(), models=len(config.models))

    loop.add_signal_handler(RELOAD_SIGNAL, told.set)
    if stamp_of(path) != stamp:
        # It changed while this worker started, when it could not be told.
        told.set()
    gateway.keep(loop.create_task(follow()))


def _watch(gateway: Gateway, drain_seconds: float) -> None:
    loop = asyncio.get_running_loop()

    def drain() -> None:
        gateway.drain(drain_seconds)
        # The server's handler blocks for ever on the third signal that it sees: its channel holds one, and it
        # reads one. From now on the parent alone decides (it kills).
        for number in _STOPPING:
            loop.call_later(_SEEN_SECONDS, loop.add_signal_handler, number, lambda: None)

    for number in _STOPPING:
        _also_call(number, drain, loop)
    parent = multiprocessing.parent_process()
    if parent is not None:
        # Readable once the parent is gone, however it went: nobody else would ever stop this process.
        loop.add_reader(parent.sentinel, _orphaned, loop, parent.sentinel)


def _also_call(number: signal.Signals, callback: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
    # The server's own handler (stop accepting, finish what runs) is called by the loop, which learns of the
    # signal through its wake-up descriptor; it is left alone.
    previous = signal.getsignal(number)

    def handle(signum: int, frame: FrameType | None) -> None:
        if callable(previous):
            previous(signum, frame)
        loop.call_soon_threadsafe(callback)

    signal.signal(number, handle)


def _orphaned(loop: asyncio.AbstractEventLoop, sentinel: int) -> None:
    loop.remove_reader(sentinel)
    os.kill(os.getpid(), signal.SIGTERM)
