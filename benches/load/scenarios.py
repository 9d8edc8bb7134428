"""The work that every proxy is given."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Unit = Literal["chunk", "request", "stream"]


@dataclass(frozen=True)
class Scenario:
    """One kind of load. `plan` is the load generator's, without the address; `quick` overrides parts of it.

    `window`: CPU is counted between the two marks that the load generator sets while all streams are open, so
    that opening and ending them is left out. Else it is counted from before the first request until after the
    last. `direct`: the direct way is measured in the same round. `threads`: how many times as many threads as
    the run gives each proxy. `only`: the proxies that it says something about; None: all.
    """

    name: str
    title: str
    unit: Unit
    plan: Mapping[str, Any]
    quick: Mapping[str, Any] = field(default_factory=dict)
    window: bool = False
    memory: bool = False
    direct: bool = False
    threads: int = 1
    only: frozenset[str] | None = None

    def planned(self, quick: bool) -> dict[str, Any]:
        plan = {"path": "/v1/chat/completions", "stream": self.unit != "request"} | dict(self.plan)
        return plan | dict(self.quick) if quick else plan

    def due_seconds(self, quick: bool) -> float | None:
        """When the last token leaves the mock; None where it sends as fast as it can."""
        plan = self.planned(quick)
        if not plan.get("rate"):
            return None
        opening = plan["connections"] / plan["ramp"] if plan.get("ramp") else 0.0
        return float(opening + plan["tokens"] / plan["rate"])


_WITHOUT_END = 1_000_000
_SATURATED = {
    "connections": 64,
    "tokens": 400,
    "exchanges": _WITHOUT_END,
    "seconds": 3.0,
    "limit_seconds": 90.0,
}
# 10 connections of a probe every 0.1 s: some 400 samples a round, for about 1 % more work.
_PROBES = {"connections": 10, "tokens": 1, "every_seconds": 0.1}
_PACED = {"connections": 200, "tokens": 300, "rate": 50.0, "exchanges": 1, "limit_seconds": 90.0}
_PACED_QUICK = {"tokens": 75}
_HELD = {"connections": 2000, "rate": 1.0, "exchanges": 1, "settle_seconds": 1.0, "limit_seconds": 90.0}

SCENARIOS = (
    Scenario(
        "saturated",
        "64 streams, 400 chunks each, as fast as they go",
        "chunk",
        _SATURATED,
        {"seconds": 1.0},
        direct=True,
    ),
    Scenario(
        "saturated-two",
        "the same with two threads",
        "chunk",
        _SATURATED,
        {"seconds": 1.0},
        threads=2,
        only=frozenset({"nginx", "sluicegate"}),
    ),
    Scenario("paced-200", "200 streams at 50 chunks/s", "chunk", _PACED, _PACED_QUICK),
    # The same streams, made anew: what a translation costs is seen beside what it costs to forward them.
    Scenario(
        "paced-to-messages",
        "200 streams at 50 chunks/s of a chat upstream to clients of Messages",
        "chunk",
        _PACED | {"path": "/v1/messages"},
        _PACED_QUICK,
        only=frozenset({"sluicegate"}),
    ),
    Scenario(
        "paced-from-messages",
        "200 streams at 50 chunks/s of a Messages upstream to clients of chat",
        "chunk",
        _PACED | {"model": "bench-messages"},
        _PACED_QUICK,
        only=frozenset({"sluicegate"}),
    ),
    # Opened within a second, so that what is measured of a chunk is not the crowd at the door.
    Scenario(
        "paced-1000",
        "1,000 streams at 50 chunks/s",
        "chunk",
        {
            "connections": 1000,
            "tokens": 300,
            "rate": 50.0,
            "exchanges": 1,
            "ramp": 1000.0,
            "settle_seconds": 0.7,
            "window_seconds": 4.0,
            "probes": _PROBES,
            "limit_seconds": 90.0,
        },
        {"tokens": 200, "window_seconds": 1.0},
        direct=True,
    ),
    Scenario(
        "held-2000",
        "2,000 streams at 1 chunk/s",
        "chunk",
        _HELD | {"tokens": 8, "ramp": 1000.0, "window_seconds": 3.0},
        {"tokens": 7, "window_seconds": 2.0},
        window=True,
        memory=True,
    ),
    Scenario(
        "held-large",
        "2,000 streams at 1 chunk/s, requests of 300 kB",
        "chunk",
        _HELD | {"tokens": 8, "ramp": 1000.0, "window_seconds": 1.0, "prompt_bytes": 300_000},
        window=True,
        memory=True,
    ),
    # As many chunks a second as 2,000 streams at 1 a second: the two differ in the number of streams alone.
    Scenario(
        "held-50",
        "50 streams at 40 chunks/s",
        "chunk",
        {
            "connections": 50,
            "tokens": 240,
            "rate": 40.0,
            "exchanges": 1,
            "settle_seconds": 1.0,
            "window_seconds": 3.0,
            "limit_seconds": 90.0,
        },
        {"tokens": 200},
        window=True,
    ),
    Scenario(
        "requests",
        "small JSON replies, 32 connections",
        "request",
        {"connections": 32, "tokens": 3, "exchanges": _WITHOUT_END, "seconds": 3.0, "limit_seconds": 90.0},
        {"seconds": 1.0},
    ),
    # As fast as they go, a slower proxy finds its clients and upstreams asleep more often, and pays for
    # waking them: what something costs by itself is seen at one pace.
    Scenario(
        "requests-paced",
        "small JSON replies, 6,000 a second on 32 connections",
        "request",
        {
            "connections": 32,
            "pace": 6000.0,
            "tokens": 3,
            "exchanges": _WITHOUT_END,
            "seconds": 4.0,
            "limit_seconds": 90.0,
        },
        {"seconds": 1.0},
    ),
    Scenario(
        "large-requests",
        "1 MiB requests, 8 connections",
        "request",
        {
            "connections": 8,
            "tokens": 3,
            "prompt_bytes": 1 << 20,
            "exchanges": _WITHOUT_END,
            "seconds": 3.0,
            "limit_seconds": 90.0,
        },
        {"seconds": 1.0},
    ),
    Scenario(
        "unloaded",
        "one stream of 5 chunks at a time",
        "stream",
        {"connections": 1, "tokens": 5, "exchanges": 3000, "seconds": 4.0, "limit_seconds": 90.0},
        {"exchanges": 200},
        direct=True,
    ),
    Scenario(
        "unloaded-requests",
        "one small JSON reply at a time",
        "request",
        {"connections": 1, "tokens": 3, "exchanges": 3000, "seconds": 4.0, "limit_seconds": 90.0},
        {"exchanges": 200},
        direct=True,
    ),
)
