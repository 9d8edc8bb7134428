"""Simulated time: what happens next, and when."""

import heapq
import itertools
from collections.abc import Callable
from typing import Any


class Simulation:
    """Events in the order of their times; those of one time in the order in which they were planned."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = itertools.count()

    def clock(self) -> float:
        return self.now

    def after(self, seconds: float, what: Callable[..., None], *with_what: Any) -> None:
        """Do this in so many seconds."""
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), what, with_what))

    def run(self) -> None:
        """Until nothing is left to happen."""
        while self._events:
            self.now, _, what, with_what = heapq.heappop(self._events)
            what(*with_what)
