"""How late this process is itself: what a test on a busy machine must not blame the gateway for."""

import asyncio
import time
from typing import Any, Self

_EVERY = 0.01


class Lag:
    """While entered, measures how late a timer of this event loop comes. `longest` is in seconds."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._measure())
        return self

    async def __aexit__(self, *failure: Any) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _measure(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(_EVERY)
            self.longest = max(self.longest, time.perf_counter() - began - _EVERY)
