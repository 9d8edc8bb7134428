"""One run: traffic, a gateway with one policy, servers, and what came of it."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from benches.routing.servers import Job, Server
from benches.routing.simulation import Simulation
from benches.routing.traffic import Request, Traffic

SECONDS = 300.0
WARM_UP = 60.0
"""Requests that come earlier do not count: the caches are empty."""


class Tries(Protocol):
    """A request's attempts."""

    def next(self, failed: str | None) -> tuple[int, float] | None:
        """The server to try next, and the seconds to wait first; the one before failed with this kind of
        fault."""
        ...

    def first_token(self) -> None: ...
    def ended(self, failed: str | None) -> None:
        """The request is over, by an attempt that was handed out."""


class Gateway(Protocol):
    """A way to choose."""

    def begin(self, request: Request) -> Tries: ...


Make = Callable[[Simulation, int, int], Gateway]
"""By the simulation, the number of servers, and the seed."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`disturbed`: one server becomes slow, one goes down and comes back, one answers with errors at once."""

    name: str
    servers: int
    rate: float
    """New conversations a second, for each server."""
    disturbed: bool


@dataclass(frozen=True, slots=True)
class Result:
    """What came of it. Times are seconds to the first token, from the request on, whatever was tried."""

    requests: int
    failed: int
    p50: float
    p99: float
    cached: float
    """The share of input tokens that were in a cache."""
    imbalance: float
    """The most work in seconds that a server had, over the mean."""


SCENARIOS = (
    Scenario("8 servers", 8, 0.45, disturbed=False),
    Scenario("8 servers, disturbed", 8, 0.45, disturbed=True),
    Scenario("64 servers", 64, 0.45, disturbed=False),
    Scenario("64 servers, disturbed", 64, 0.45, disturbed=True),
)


class Run:
    """One gateway in front of servers of unequal speed."""

    def __init__(self, scenario: Scenario, make: Make, seed: int, seconds: float = SECONDS) -> None:
        simulation = self.simulation = Simulation()
        # A quarter of them has half of the speed.
        self.servers = [
            Server(simulation, 0.5 if place % 4 == 3 else 1.0) for place in range(scenario.servers)
        ]
        self.gateway = make(simulation, scenario.servers, seed)
        self.times: list[float] = []
        self.requests = self.failed = self.tokens = self.cached = 0
        self.work = [0.0] * scenario.servers
        rate = scenario.rate * scenario.servers
        self.traffic = Traffic(simulation, Random(seed), rate, seconds, self._ask)
        if scenario.disturbed:
            self._disturb(seconds)

    def _disturb(self, seconds: float) -> None:
        # Of each eight servers, one for each kind.
        for first in range(0, len(self.servers), 8):
            slow, down, errs = self.servers[first : first + 3]
            at = self.simulation.after
            at(0.30 * seconds, lambda server=slow: server.become(speed=0.25))
            at(0.55 * seconds, lambda server=slow: server.become(speed=1.0))
            at(0.45 * seconds, lambda server=down: server.become(down=True))
            at(0.65 * seconds, lambda server=down: server.become())
            at(0.70 * seconds, lambda server=errs: server.become(errs=True))
            at(0.85 * seconds, lambda server=errs: server.become())

    def _ask(self, request: Request) -> None:
        Going(self, request).try_next(None)

    def result(self) -> Result:
        self.simulation.run()
        times = sorted(self.times)
        mean = sum(self.work) / len(self.work)
        return Result(
            self.requests,
            self.failed,
            times[len(times) // 2],
            times[len(times) * 99 // 100],
            self.cached / self.tokens,
            max(self.work) / mean,
        )


class Going:
    """A request on its way."""

    def __init__(self, run: Run, request: Request) -> None:
        self._run = run
        self._request = request
        self._began = run.simulation.now
        self._counts = self._began >= WARM_UP
        self._tries = run.gateway.begin(request)
        self._job: Job | None = None
        self._server = 0
        run.requests += self._counts

    def try_next(self, failed: str | None) -> None:
        step = self._tries.next(failed)
        if step is None:
            # What had been handed out has been given back by now.
            self._end(failed=True)
            return
        self._server, after = step
        if after:
            self._run.simulation.after(after, self._send)
        else:
            self._send()

    def _send(self) -> None:
        request = self._request
        self._job = Job(request.blocks, request.tokens, request.output, self)
        self._run.servers[self._server].submit(self._job)

    def first_token(self) -> None:
        run, job = self._run, self._job
        self._tries.first_token()
        if job is not None and self._counts:
            run.times.append(run.simulation.now - self._began)
            run.tokens += job.tokens
            run.cached += job.cached
            work = (job.tokens - job.cached) / 8_000.0 + job.output * 0.0006
            run.work[self._server] += work / (0.5 if self._server % 4 == 3 else 1.0)

    def failed(self, kind: str) -> None:
        if self._job is not None and self._job.begun:
            self._tries.ended(kind)
            self._end(failed=True)
        else:
            self.try_next(kind)

    def served(self) -> None:
        self._tries.ended(None)
        self._end(failed=False)

    def _end(self, *, failed: bool) -> None:
        if failed and self._counts:
            self._run.failed += 1
        self._run.traffic.answered(self._request)
