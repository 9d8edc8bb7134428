"""A worker process: the application, and what it does with signals."""

import asyncio
import gc
import multiprocessing
import os
import signal
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sluicegate.config import Config, load_file
from sluicegate.gateway import Gateway, create_app
from sluicegate.server.loop import LOOP
from sluicegate.server.reload import RELOAD_SIGNAL, Stamp, faults_of, stamp_of
from sluicegate.server.stopping import StopOrder
from sluicegate.telemetry import Log

# LOOP: a worker makes its loop by that name, before anything else here is called.
__all__ = ["LOOP", "Plan", "load_worker"]


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
    # The loop that the server will run: it has not given its signal handlers to it yet.
    order = StopOrder(asyncio.get_event_loop())
    gateway.on_startup = partial(_begin, gateway, plan, log, order)
    return gateway


# Cyclic garbage is rare here, and each request makes some hundred objects: by default they are searched for
# it every few requests.
_GC_THRESHOLD = 20_000


def _begin(gateway: Gateway, plan: Plan, log: Log, order: StopOrder) -> None:
    # What there is by now stays; it need not be searched again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    _watch(gateway, plan.config.server.drain_seconds, order)
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


def _watch(gateway: Gateway, drain_seconds: float, order: StopOrder) -> None:
    loop = asyncio.get_running_loop()
    order.also(partial(gateway.drain, drain_seconds))
    parent = multiprocessing.parent_process()
    if parent is not None:
        # Readable once the parent is gone, however it went: nobody else would ever stop this process.
        loop.add_reader(parent.sentinel, _orphaned, loop, parent.sentinel)


def _orphaned(loop: asyncio.AbstractEventLoop, sentinel: int) -> None:
    loop.remove_reader(sentinel)
    os.kill(os.getpid(), signal.SIGTERM)
