"""`python -m benches.routing`: all policies in all scenarios. Simulated time: the same on any machine."""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benches.routing.others import OTHERS, Others
from benches.routing.ours import Ours
from benches.routing.run import SCENARIOS, SECONDS, Make, Result, Run, Scenario

OURS: dict[str, Any] = {
    "round_robin": "round_robin",
    "weighted": "weighted",
    "least_busy": "least_busy",
    "latency": "latency",
    "affinity": "affinity",
}
SEEDS = (1, 2, 3)


def makers() -> Iterator[tuple[str, Make]]:
    """Each way to choose, by name."""
    for name, policy in OURS.items():
        yield name, partial(Ours, policy)
    for name, chooser in OTHERS.items():
        yield name, partial(Others, chooser)


def measure(scenario: Scenario, make: Make, seconds: float) -> Result:
    """The means of a run for each seed; of large scenarios one is enough."""
    seeds = SEEDS if scenario.servers <= 8 else SEEDS[:1]
    runs = [Run(scenario, make, seed, seconds).result() for seed in seeds]

    def mean(name: str) -> float:
        return float(sum(getattr(result, name) for result in runs) / len(runs))

    return Result(
        sum(result.requests for result in runs),
        sum(result.failed for result in runs),
        *(round(mean(name), 4) for name in ("p50", "p99", "cached", "imbalance")),
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches.routing", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of simulated traffic")
    parser.add_argument("--servers", type=int, help="only scenarios with so many")
    parser.add_argument("--only", help="policies whose name has this in it")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    for scenario in SCENARIOS:
        if options.servers not in (None, scenario.servers):
            continue
        print(f"\n{scenario.name}\n\n| policy | p50, s | p99, s | cached | imbalance | failed |")
        print("| --- | --- | --- | --- | --- | --- |")
        for name, make in makers():
            if options.only and options.only not in name:
                continue
            result = measure(scenario, make, options.seconds)
            found.setdefault(scenario.name, {})[name] = asdict(result)
            failed = 100 * result.failed / result.requests
            print(
                f"| {name} | {result.p50:.3f} | {result.p99:.2f} | {100 * result.cached:.1f} % "
                f"| {result.imbalance:.2f} | {failed:.2f} % |",
                flush=True,
            )
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
