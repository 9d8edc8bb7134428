"""The whole table of `make bench-core`: the engine in Rust and from Python, beside other libraries.

    python -m benches.table target/criterion target/bench-boundary.json

Medians of one run on one thread, in CPU time.
"""

import json
import os
import platform
import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import NamedTuple

from benches.boundary import report

GB = 1e9
SIZES = ("16 KiB", "64 KiB")

NULL = "chat chunks with null usage, watched"
PRICED = "usage chunks, each priced"
OTHER_SPLITTERS = ("sse-stream", "sseer", "eventsource-stream")
WATCHED = "usage: null in each chunk"
SPLICED = "final usage in each chunk, cost spliced"
OTHER_READERS = (
    ("events", "httpx-sse"),
    ("events", "openai's decoder"),
    (WATCHED, "sseclient-py + orjson"),
    (WATCHED, "sseclient-py + pysimdjson"),
)

# Bytes a second, by group and name.
Figures = Mapping[tuple[str, str], float]


class Target(NamedTuple):
    what: str
    at_least: float
    unit: str
    measured: float


def rust_figures(criterion: Path) -> dict[tuple[str, str], float]:
    """Of the last run that left its results in `criterion`."""
    found = {}
    for path in sorted(criterion.glob("*/*/new/benchmark.json")):
        bench = json.loads(path.read_text())
        estimates = json.loads((path.parent / "estimates.json").read_text())
        size = (bench["throughput"] or {}).get("Bytes")
        if size:
            nanoseconds = estimates["median"]["point_estimate"]
            found[bench["group_id"], bench["function_id"]] = size / nanoseconds * 1e9
    return found


def python_figures(results: Path) -> dict[tuple[str, str], float]:
    """By group, and by name and size of reads."""
    return {
        (group, f"{info['reader']}, {info['reads']}"): info["bytes"] / seconds
        for group, info, seconds in report.results(json.loads(results.read_text())["benchmarks"])
        if "reads" in info
    }


def targets(rust: Figures, python: Figures) -> list[Target]:
    found = [Target("split into slices", 10, "GB/s", rust["chat chunks", "slices"] / GB)]
    others = max(rust["chat chunks", name] for name in OTHER_SPLITTERS)
    ours = rust["chat chunks", "dispatched events"]
    found.append(Target("events dispatched, beside the fastest Rust library", 1, "×", ours / others))
    for size in SIZES:
        group = f"pipeline, {size} reads"
        found.append(Target(f"usage watched, null in each, {size}", 6, "GB/s", rust[group, NULL] / GB))
    for size in SIZES:
        group = f"pipeline, {size} reads"
        found.append(
            Target(f"usage read and cost spliced in each, {size}", 1.5, "GB/s", rust[group, PRICED] / GB)
        )
    for size, share in zip(SIZES, (60, 80), strict=True):
        group = f"pipeline, {size} reads"
        watched = python[WATCHED, f"UsageMeter, {size}"] / rust[group, NULL]
        spliced = python[SPLICED, f"Pipeline, {size}"] / rust[group, PRICED]
        found.append(Target(f"Python's share of Rust's speed, watched, {size}", share, "%", 100 * watched))
        found.append(Target(f"Python's share of Rust's speed, spliced, {size}", share, "%", 100 * spliced))
    for size in SIZES:
        fastest = max(python[group, f"{name}, {size}"] for group, name in OTHER_READERS)
        times = python[WATCHED, f"UsageMeter, {size}"] / fastest
        found.append(Target(f"usage watched, beside the fastest Python library, {size}", 30, "×", times))
    return found


def _rows(title: str, figures: Figures, groups: Mapping[str, str]) -> list[str]:
    """A row for each name, a column for each of `groups`, whose values are the columns' heads."""
    lines = [f"| {title} | {' | '.join(groups.values())} |", "| --- " * (1 + len(groups)) + "|"]
    for name in dict.fromkeys(name for group, name in figures if group in groups):
        cells = [figures.get((group, name)) for group in groups]
        shown = [f"{cell / GB:,.2f}" if cell else "" for cell in cells]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return [*lines, ""]


def _python_rows(python: Figures) -> list[str]:
    lines = []
    for group in dict.fromkeys(group for group, _ in python):
        names = dict.fromkeys(name.rsplit(", ", 1)[0] for found, name in python if found == group)
        columns = " | ".join(f"{size} reads, MB/s" for size in SIZES)
        lines += [f"| Python: {group} | {columns} |", "| --- | --- | --- |"]
        for name in names:
            cells = " | ".join(f"{python[group, f'{name}, {size}'] / 1e6:,.0f}" for size in SIZES)
            lines.append(f"| {name} | {cells} |")
        lines.append("")
    return lines


def processor() -> str:
    models = [
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")
    ]
    return models[0].partition(":")[2].strip() if models else platform.processor()


def table(rust: Figures, python: Figures) -> str:
    splitting = {name: name for name in ("chat chunks", "named events", "one large event")}
    journeys = {f"pipeline, {size} reads": f"{size} reads" for size in SIZES}
    lines = _rows("Rust: events, GB/s", rust, splitting)
    lines += _rows("Rust: a reply's journey, GB/s", rust, journeys)
    lines += _python_rows(python)
    lines += ["| to reach | at least | measured | |", "| --- | --- | --- | --- |"]
    for target in targets(rust, python):
        reached = "reached" if target.measured >= target.at_least else "missed"
        lines.append(
            f"| {target.what} | {target.at_least:g} {target.unit} "
            f"| {target.measured:.3g} {target.unit} | {reached} |"
        )
    return "\n".join(lines)


def main(criterion: str, results: str) -> None:
    load = os.getloadavg()[0]
    python = platform.python_version()
    print(
        f"{date.today()}, {processor()}, CPython {python}, load {load:.1f} on {os.cpu_count()} processors\n"
    )
    print(table(rust_figures(Path(criterion)), python_figures(Path(results))))


if __name__ == "__main__":
    main(*sys.argv[1:])
