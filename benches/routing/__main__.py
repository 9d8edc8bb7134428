"""`python -m benches.routing`: all policies in all scenarios. Simulated time: the same on any machine."""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
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
SEEDS = (1, 2, 3, 4, 5)


def makers() -> Iterator[tuple[str, Make]]:
    """Each way to choose, by name."""
    for name, policy in OURS.items():
        yield name, partial(Ours, policy)
    for name, chooser in OTHERS.items():
        yield name, partial(Others, chooser)


def run(scenario: Scenario, make: Make, seconds: float, seed: int) -> Result:
    return Run(scenario, make, seed, seconds).result()


def measure(scenario: Scenario, make: Make, seconds: float, pool: Executor) -> Result:
    """The medians of a run for each seed."""
    runs = [*pool.map(partial(run, scenario, make, seconds), SEEDS)]

    def middle(name: str) -> float:
        return float(median(getattr(result, name) for result in runs))

    return Result(
        sum(result.requests for result in runs),
        sum(result.failed for result in runs),
        *(round(middle(name), 4) for name in ("p50", "p99", "cached", "imbalance")),
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches.routing", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of simulated traffic")
    parser.add_argument("--servers", type=int, help="only scenarios with so many")
    parser.add_argument("--disturbed", action="store_true", help="only scenarios in which servers are")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at once")
    parser.add_argument("--only", help="policies whose name has this in it")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    with ProcessPoolExecutor(options.jobs) as pool:
        found = compare(options, pool)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def compare(options: argparse.Namespace, pool: Executor) -> dict[str, dict[str, Any]]:
    """The results by scenario and policy; printed as they come."""
    found: dict[str, dict[str, Any]] = {}
    for scenario in SCENARIOS:
        if options.servers not in (None, scenario.servers) or (options.disturbed and not scenario.disturbed):
            continue
        print(f"\n{scenario.name}\n\n| policy | p50, s | p99, s | cached | imbalance | failed |")
        print("| --- | --- | --- | --- | --- | --- |")
        for name, make in makers():
            if options.only and options.only not in name:
                continue
            result = measure(scenario, make, options.seconds, pool)
            found.setdefault(scenario.name, {})[name] = asdict(result)
            failed = 100 * result.failed / result.requests
            print(
                f"| {name} | {result.p50:.3f} | {result.p99:.2f} | {100 * result.cached:.1f} % "
                f"| {result.imbalance:.2f} | {failed:.2f} % |",
                flush=True,
            )
    return found


if __name__ == "__main__":
    sys.exit(main())
