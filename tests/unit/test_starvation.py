"""What the machine owes to a test that measures gaps."""

import asyncio
import os
import time

from harness.starvation import Starvation

STALL = 0.3


async def test_a_loop_that_stood_still_is_not_blamed_on_the_gateway() -> None:
    async with Starvation(os.getpid()) as starvation:
        await asyncio.sleep(0.05)
        began = time.perf_counter()
        time.sleep(STALL)  # noqa: ASYNC251 - it is this that must be noticed
        ended = time.perf_counter()
        await asyncio.sleep(0.05)
    stalled = (began, ended)
    # A look at the processes takes a moment of its own.
    assert starvation.owed(stalled) > STALL * 0.9
    assert starvation.longest([stalled]) < STALL * 0.1 + (ended - began - STALL)
