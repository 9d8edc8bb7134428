"""A worker that only runs background responses, in a process of its own: something to kill."""

import asyncio
import multiprocessing
import random
from multiprocessing.process import BaseProcess

from harness.stored_stand import Play, Upstream, upstream_events, worker
from sluicegate.config import StoreConfig


def start(config: StoreConfig) -> BaseProcess:
    """Start one. Forked from a server that has imported everything: that takes milliseconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["harness.store_worker"])
    process = context.Process(target=_run, args=(config,), daemon=True)
    process.start()
    return process


def _run(config: StoreConfig) -> None:
    asyncio.run(_work(config))


async def _work(config: StoreConfig) -> None:
    async with worker(Upstream(_play), config):
        await asyncio.Event().wait()


async def _play(play: Play) -> None:
    """An answer in pieces, cut and timed at random."""
    await play.start()
    events = upstream_events(reasoning_tokens=3, tokens=12)
    while events:
        some = random.randint(1, 4)
        await asyncio.sleep(random.random() * 0.03)
        await play.events(*events[:some])
        events = events[some:]
    await play.end()
