"""Many exchanges at once for a while, and what must be true of them together."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.gateway_process import GatewayProcess
from harness.shared_gateway import shared_gateway
from sluicegate.testing import ScriptedUpstream
from soak.exchanges import Exchange, choose, run

MIB = 1024 * 1024
PATIENCE_PER_EXCHANGE = 12
"""The longest that an exchange may take: so many times the upstream's deadlines."""
SAMPLE_SECONDS = 0.5

RESULTS = {"whole": {"ok"}, "error": {"failed"}, "left": {"client_left", "ok"}}
"""What the log may call an end that the client saw. One that leaves with the last event may not be missed."""

CONFIG: dict[str, Any] = {
    "models": {
        "small": "local/small",
        "drained": {"routes": ["local/small"], "on_client_leave": "drain"},
    },
    "prices": {name: {"input": 1, "cached_input": 0.1, "output": 4} for name in ("small", "drained")},
    "cost": {"genai_prices": False},
}


@dataclass
class Soak:
    """What happened. `memory`: (seconds since the start, bytes of the gateway)."""

    seconds: float
    streams: int
    patience: float
    exchanges: list[Exchange] = field(default_factory=list)
    memory: list[tuple[float, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def slope(self, after: float) -> float:
        """Bytes a second by which the memory grew from `after` seconds on: least squares."""
        points = [(at, size) for at, size in self.memory if at >= after]
        mean_at = sum(at for at, _ in points) / len(points)
        mean_size = sum(size for _, size in points) / len(points)
        spread = sum((at - mean_at) ** 2 for at, _ in points)
        return sum((at - mean_at) * (size - mean_size) for at, size in points) / spread

    def summary(self) -> dict[str, Any]:
        """For people."""
        faults = Counter(
            f"{exchange.fault['action']} {exchange.fault.get('at', 'events')}"
            for exchange in self.exchanges
            if exchange.fault is not None
        )
        return {
            "seconds": self.seconds,
            "streams_at_once": self.streams,
            "requests": len(self.exchanges),
            "events": sum(exchange.events for exchange in self.exchanges),
            "ends": dict(Counter(exchange.end for exchange in self.exchanges)),
            "faults_injected": dict(faults),
            "memory_mib": {
                "first": round(self.memory[0][1] / MIB, 1),
                "largest": round(max(size for _, size in self.memory) / MIB, 1),
                "last": round(self.memory[-1][1] / MIB, 1),
                "slope_a_minute_second_half": round(self.slope(self.seconds / 2) * 60 / MIB, 3),
            },
            "problems": len(self.problems),
            "kinds_of_problems": dict(Counter(problem.partition(": ")[2][:40] for problem in self.problems)),
            "first_problems": self.problems[:10],
        }


async def soak(
    seconds: float, streams: int, directory: Path, *, patience: float = 4.0, seed: int = 1
) -> Soak:
    """`streams` clients, each with one exchange after the other, for `seconds`.

    `patience`: the upstream's deadlines; longer than any pause that this machine itself makes.
    """
    record = Soak(seconds, streams, patience)
    async with ScriptedUpstream() as upstream:
        deadlines = dict.fromkeys(("first_byte", "first_token", "between_tokens"), patience)
        local = {"base_url": upstream.base_url, "deadlines": deadlines}
        config = {**CONFIG, "upstreams": {"local": local}}
        async with shared_gateway(config, directory) as gateway:
            async with watched(gateway, record):
                await load(gateway, upstream, record, random.Random(seed))
            await check(gateway, upstream, record)
    return record


async def load(
    gateway: GatewayProcess, upstream: ScriptedUpstream, record: Soak, chance: random.Random
) -> None:
    host, _, port = gateway.base_url.removeprefix("http://").partition(":")
    ends = time.monotonic() + record.seconds

    async def client() -> None:
        while time.monotonic() < ends:
            exchange = choose(len(record.exchanges), chance)
            record.exchanges.append(exchange)
            await run(exchange, (host, int(port)), record.patience * PATIENCE_PER_EXCHANGE)
            if len(upstream.requests) > 1_000:
                # They hold the bodies of all requests: this process's memory is not what is tested.
                upstream.requests.clear()

    async with asyncio.TaskGroup() as clients:
        for _ in range(record.streams):
            clients.create_task(client())


@contextlib.asynccontextmanager
async def watched(gateway: GatewayProcess, record: Soak) -> AsyncIterator[None]:
    """Notes the gateway's memory all the while."""
    started = time.monotonic()

    async def watch() -> None:
        while True:
            record.memory.append((time.monotonic() - started, gateway.private_memory))
            await asyncio.sleep(SAMPLE_SECONDS)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def logged(gateway: GatewayProcess) -> dict[str, list[str]]:
    """The results in the log, by request."""
    results: dict[str, list[str]] = {}
    for line in gateway.find(event="request"):
        results.setdefault(line["request_id"], []).append(line["result"])
    return results


async def check(gateway: GatewayProcess, upstream: ScriptedUpstream, record: Soak) -> None:
    """What must be true once all have ended."""
    problems = record.problems
    for exchange in record.exchanges:
        problems += [f"{exchange.request_id}: {problem}" for problem in exchange.problems]
    # One that leaves as soon as it has asked may be gone before its request was read.
    asked = {exchange.request_id for exchange in record.exchanges if exchange.leaves_after != 0}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(30):
            while asked - logged(gateway).keys():  # noqa: ASYNC110
                await asyncio.sleep(0.5)
    lines = logged(gateway)
    name = "sluicegate_requests_total"
    metrics = await gateway.wait_metrics(lambda metrics: metrics.value(name) == len(lines), seconds=30)
    for model in CONFIG["models"]:
        if metrics.value("sluicegate_active_streams", model=model):
            problems.append(f"streams of {model} still run")
    if missing := asked - lines.keys():
        problems.append(f"not in the log: {sorted(missing)[:5]}")
    for exchange in record.exchanges:
        results = lines.get(exchange.request_id, [])
        if len(results) > 1:
            problems.append(f"{exchange.request_id}: {len(results)} times in the log")
        if exchange.end is not None and not set(results) <= RESULTS[exchange.end]:
            problems.append(f"{exchange.request_id}: ended {exchange.end}, in the log {results}")
    async with asyncio.timeout(30):
        while any(request.ended_at is None for request in upstream.requests):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
