"""The work that every proxy is given."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Unit = Literal["chunk", "request"]


@dataclass(frozen=True)
class Scenario:
    """One kind of load. `plan` is the load generator's, without the address; `quick` overrides parts of it.

    `window`: CPU is counted between the two marks that the load generator sets while all streams are open, so
    that opening and ending them is left out. Else it is counted from before the first request until after the
    last.
    """

    name: str
    title: str
    unit: Unit
    plan: Mapping[str, Any]
    quick: Mapping[str, Any] = field(default_factory=dict)
    window: bool = False
    memory: bool = False
    latency: bool = False

    def planned(self, quick: bool) -> dict[str, Any]:
        plan = {"path": "/v1/chat/completions", "stream": self.unit == "chunk"} | dict(self.plan)
        return plan | dict(self.quick) if quick else plan

    def due_seconds(self, quick: bool) -> float | None:
        """When the last token leaves the mock; None where it sends as fast as it can."""
        plan = self.planned(quick)
        if not plan.get("rate"):
            return None
        opening = plan["connections"] / plan["ramp"] if plan.get("ramp") else 0.0
        return float(opening + plan["tokens"] / plan["rate"])


_WITHOUT_END = 1_000_000

SCENARIOS = (
    Scenario(
        "saturated",
        "50 streams, 400 chunks each, as fast as they go",
        "chunk",
        {"connections": 50, "tokens": 400, "exchanges": _WITHOUT_END, "seconds": 4.0, "limit_seconds": 90.0},
        {"seconds": 1.0},
    ),
    Scenario(
        "paced-200",
        "200 streams at 50 chunks/s",
        "chunk",
        {"connections": 200, "tokens": 400, "rate": 50.0, "exchanges": 1, "limit_seconds": 90.0},
        {"tokens": 75},
    ),
    Scenario(
        "paced-1000",
        "1,000 streams at 50 chunks/s",
        "chunk",
        {"connections": 1000, "tokens": 400, "rate": 50.0, "exchanges": 1, "limit_seconds": 90.0},
        {"tokens": 75},
    ),
    Scenario(
        "held-2000",
        "2,000 streams at 1 chunk/s",
        "chunk",
        {
            "connections": 2000,
            "tokens": 20,
            "rate": 1.0,
            "exchanges": 1,
            "ramp": 1000.0,
            "settle_seconds": 2.0,
            "window_seconds": 12.0,
            "limit_seconds": 90.0,
        },
        {"tokens": 9, "settle_seconds": 1.0, "window_seconds": 3.0},
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
            "tokens": 640,
            "rate": 40.0,
            "exchanges": 1,
            "settle_seconds": 2.0,
            "window_seconds": 12.0,
            "limit_seconds": 90.0,
        },
        {"tokens": 200, "settle_seconds": 1.0, "window_seconds": 3.0},
        window=True,
    ),
    Scenario(
        "requests",
        "small JSON replies, 32 connections",
        "request",
        {"connections": 32, "tokens": 3, "exchanges": _WITHOUT_END, "seconds": 4.0, "limit_seconds": 90.0},
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
            "seconds": 4.0,
            "limit_seconds": 90.0,
        },
        {"seconds": 1.0},
    ),
    Scenario(
        "unloaded",
        "one stream at a time",
        "chunk",
        {"connections": 1, "tokens": 4, "exchanges": 1000, "seconds": 10.0, "limit_seconds": 90.0},
        {"exchanges": 200, "seconds": 3.0},
        latency=True,
    ),
    Scenario(
        "unloaded-requests",
        "one small JSON reply at a time",
        "request",
        {"connections": 1, "tokens": 3, "exchanges": 1000, "seconds": 10.0, "limit_seconds": 90.0},
        {"exchanges": 200, "seconds": 3.0},
        latency=True,
    ),
)
