"""`python -m benches.routing.decisions`: what a decision costs, from the plan to the end of its request.

The best of several rounds, in µs, and what it costs more than ordered fallback among as many deployments. The
bounds are 3 µs more for 8 deployments and 20 µs more for 200.
"""

import sys
from time import thread_time
from typing import Any

from benches.routing.ours import Facts, Outcome

from sluicegate.config import load_data
from sluicegate.routing import Model, ModelTable, Plan

COUNTS = (1, 8, 64, 200)
POLICIES: tuple[Any, ...] = (
    "ordered",
    "weighted",
    "round_robin",
    "least_busy",
    {"least_busy": {"by": "tokens"}},
    "latency",
    "affinity",
)
DECISIONS = 2_000
ROUNDS = 25


def model_of(policy: Any, count: int) -> Model:
    """With a load and times to the first token as under traffic."""
    config = load_data(
        {
            "upstreams": {f"server-{place}": {"base_url": "http://127.0.0.1:1/v1"} for place in range(count)},
            "models": {
                "m": {"routes": [f"server-{place}/org/model" for place in range(count)], "policy": policy}
            },
        }
    )
    model = ModelTable(config).get("m")
    if model is None:
        raise LookupError("m")
    now = model.group.fleet.clock()
    for place, deployment in enumerate(model.deployments):
        deployment.load.streams = 10 + place % 7
        deployment.load.tokens = 1_000 * (10 + place % 5)
        deployment.load.served(1_000, 0.2 + 0.01 * (place % 11), now)
    return model


def cost(model: Model) -> float:
    """µs of a decision and of its end."""
    outcome: Any = Outcome(None, 0.3, 1, [])
    facts: list[Any] = [Facts(4_000, number * 0x9E3779B97F4A7C15 % (1 << 64)) for number in range(DECISIONS)]
    best = float("inf")
    for _ in range(ROUNDS):
        began = thread_time()
        for one in facts:
            plan = Plan(model, one)
            plan.next()
            plan.ended(outcome)
        best = min(best, thread_time() - began)
    return best / DECISIONS * 1e6


def main() -> None:
    print("| policy | " + " | ".join(f"{count}" for count in COUNTS) + " |")
    print("| --- |" + " --- |" * len(COUNTS))
    ordered = {count: cost(model_of("ordered", count)) for count in COUNTS}
    for policy in POLICIES:
        name = policy if isinstance(policy, str) else "least_busy, by tokens"
        costs = {count: cost(model_of(policy, count)) for count in COUNTS}
        cells = [f"{costs[count]:.2f} ({costs[count] - ordered[count]:+.2f})" for count in COUNTS]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
