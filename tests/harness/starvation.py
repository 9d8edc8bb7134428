"""What of a time the machine owes to a test: a stall of it must not be blamed on the gateway.

A gateway's engine is late because it has worked on something else, which is what tests look for, or because
it waited for a core. Linux counts the latter for each thread (`/proc/PID/task/TID/schedstat`). Where the
gateway's own other threads had the cores meanwhile, the wait is the gateway's doing: nothing is owed for it.
"""

import asyncio
import contextlib
import time
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

_EVERY = 0.01
_ENGINE = "sluicegate-engi"
"""An engine's name, as far as Linux keeps it."""

Span = tuple[float, float]
"""A beginning and an end, by `time.perf_counter`."""


@dataclass(frozen=True, slots=True)
class _Sample:
    """Sums since the start, in seconds."""

    late: float
    """How late the timers of this event loop came: it paces the upstream, and reads for the clients."""
    waited: float
    """What the engines waited for a core."""
    used: float
    """What the gateway's other threads used of the cores."""


class Starvation:
    """Looks every 10 ms at this loop and at the gateway with this process id, while it is entered."""

    def __init__(self, pid: int) -> None:
        self._tasks = Path(f"/proc/{pid}/task")
        self._engines: dict[Path, float] = {}
        self._others: dict[Path, float] = {}
        self._times: list[float] = []
        self._samples: list[_Sample] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._take(0.0)
        self._task = asyncio.create_task(self._measure())
        return self

    async def __aexit__(self, *failure: Any) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._take(0.0)

    def owed(self, span: Span) -> float:
        """The seconds of `span` for which the gateway answers to nobody."""
        first = self._samples[max(bisect_right(self._times, span[0]) - 1, 0)]
        last = self._samples[min(bisect_left(self._times, span[1]), len(self._times) - 1)]
        waited = last.waited - first.waited - (last.used - first.used)
        return last.late - first.late + max(waited, 0.0)

    def longest(self, spans: list[Span]) -> float:
        """The longest of `spans`, each without what is owed to it."""
        return max(end - begin - self.owed((begin, end)) for begin, end in spans)

    async def _measure(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(_EVERY)
            self._take(max(time.perf_counter() - began - _EVERY, 0.0))

    def _take(self, late: float) -> None:
        for task in list(self._tasks.iterdir()):
            # Of one that ends meanwhile the last sum stays.
            with contextlib.suppress(OSError):
                on_core, in_queue, _ = map(int, (task / "schedstat").read_text().split())
                if task in self._engines or (task / "comm").read_text().strip() == _ENGINE:
                    self._engines[task] = in_queue / 1e9
                else:
                    self._others[task] = on_core / 1e9
        if self._samples:
            late += self._samples[-1].late
        self._times.append(time.perf_counter())
        self._samples.append(_Sample(late, sum(self._engines.values()), sum(self._others.values())))
