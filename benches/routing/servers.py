"""An inference server, simulated: a cache of prompts' beginnings, and batches that requests join and leave.

The figures are those of a model of 70 billion parameters on a machine of eight GPUs, roughly: 8,000 tokens of
input a second, 20 ms for a step of one stream and 0.3 ms more for each other one, room in the cache for
400,000 tokens. They are the same for all policies, and only ratios are read off."""

import heapq
import itertools
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from benches.routing.simulation import Simulation

BLOCK = 128
"""Tokens that are cached together."""
CACHED_BLOCKS = 3_125
INPUT_RATE = 8_000.0
STEP = 0.020
STEP_PER_STREAM = 0.0003
MOST_STREAMS = 128
REFUSED_AFTER = 0.001
ERROR_AFTER = 0.005


class Caller(Protocol):
    """Who has sent a job."""

    def first_token(self) -> None: ...
    def failed(self, kind: str) -> None:
        """`connect`, `status` (a 500), or `truncated`."""

    def served(self) -> None: ...


@dataclass(slots=True)
class Job:
    """One request at one server."""

    blocks: Sequence[int]
    """Of the input, each named by itself and all before it."""
    tokens: int
    """Of the input."""
    output: int
    """Tokens that the model will write."""
    caller: Caller
    cached: int = 0
    """Tokens of the input that were in the cache."""
    begun: bool = False
    """It has had its first token."""
    dead: bool = False


@dataclass(slots=True)
class Server:
    """`speed`: of the usual one."""

    simulation: Simulation
    speed: float
    down: bool = False
    errs: bool = False
    jobs: int = 0
    """Here and not ended."""
    _cache: OrderedDict[int, None] = field(default_factory=OrderedDict)
    _waiting: deque[Job] = field(default_factory=deque)
    _reading: Job | None = None
    _running: list[tuple[float, int, Job]] = field(default_factory=list)
    """By the step at which each ends."""
    _steps: float = 0.0
    _at: float = 0.0
    _plan: int = 0
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def submit(self, job: Job) -> None:
        if self.down or self.errs:
            after, kind = (REFUSED_AFTER, "connect") if self.down else (ERROR_AFTER, "status")
            self.simulation.after(after, job.caller.failed, kind)
            return
        self.jobs += 1
        self._waiting.append(job)
        self._read()

    def become(self, *, speed: float | None = None, down: bool = False, errs: bool = False) -> None:
        """Change. Who goes down loses what it does and what it had cached."""
        self._advance()
        self.errs = errs
        if speed is not None:
            self.speed = speed
        if down and not self.down:
            lost = [*self._waiting, *(job for _, _, job in self._running)]
            lost += [] if self._reading is None else [self._reading]
            self._waiting.clear()
            self._running.clear()
            self._reading = None
            self._cache.clear()
            self.jobs = 0
            for job in lost:
                job.dead = True
                self.simulation.after(0.0, job.caller.failed, "truncated" if job.begun else "reset")
        self.down = down
        self._plan_end()

    # === reading inputs ===

    def _read(self) -> None:
        if self._reading is not None or not self._waiting or len(self._running) >= MOST_STREAMS:
            return
        job = self._reading = self._waiting.popleft()
        job.cached = min(self._known(job.blocks) * BLOCK, job.tokens - 1)
        # Steps for others take their part of the time.
        slower = 1.0 + len(self._running) / 64
        seconds = (job.tokens - job.cached) * slower / (INPUT_RATE * self.speed)
        self.simulation.after(seconds + self._step(), self._has_read, job)

    def _known(self, blocks: Sequence[int]) -> int:
        cache = self._cache
        for count, block in enumerate(blocks):
            if block not in cache:
                return count
            cache.move_to_end(block)
        return len(blocks)

    def _has_read(self, job: Job) -> None:
        if job.dead:
            return
        self._reading = None
        self._keep(job.blocks)
        job.begun = True
        job.caller.first_token()
        self._advance()
        heapq.heappush(self._running, (self._steps + job.output, next(self._numbers), job))
        self._plan_end()
        self._read()

    def _keep(self, blocks: Sequence[int]) -> None:
        cache = self._cache
        for block in blocks:
            cache[block] = None
            cache.move_to_end(block)
        while len(cache) > CACHED_BLOCKS:
            cache.popitem(last=False)

    # === writing outputs ===

    def _step(self) -> float:
        return (STEP + STEP_PER_STREAM * len(self._running)) / self.speed

    def _advance(self) -> None:
        now = self.simulation.now
        if self._running:
            self._steps += (now - self._at) / self._step()
        self._at = now

    def _plan_end(self) -> None:
        self._plan += 1
        if self._running:
            seconds = max(0.0, self._running[0][0] - self._steps) * self._step()
            self.simulation.after(seconds, self._ended, self._plan)

    def _ended(self, plan: int) -> None:
        if plan != self._plan:
            return
        self._advance()
        _, _, job = heapq.heappop(self._running)
        self.jobs -= 1
        job.caller.served()
        self._plan_end()
        self._read()
