"""Results of pytest-benchmark as Markdown tables."""

from collections.abc import Iterable, Mapping
from typing import Any

# One result: its group, its `extra_info`, and the seconds of its median round.
Result = tuple[str, Mapping[str, Any], float]


def results(benchmarks: Iterable[Any]) -> list[Result]:
    """Of a session's benchmarks, or of those in a file that `--benchmark-json` wrote."""
    found = []
    for entry in benchmarks:
        if isinstance(entry, Mapping):
            found.append((entry["group"], entry["extra_info"], entry["stats"]["median"]))
        else:
            found.append((entry.group, entry.extra_info, entry.stats.median))
    return found


def tables(found: list[Result]) -> str:
    groups = dict.fromkeys(group for group, _, _ in found)
    return "\n\n".join(_table(group, [result for result in found if result[0] == group]) for group in groups)


def _table(group: str, found: list[Result]) -> str:
    sizes = list(dict.fromkeys(info["reads"] for _, info, _ in found if "reads" in info))
    columns = [f"{size} reads, MB/s" for size in sizes] or ["microseconds"]
    lines = [f"| {group} | {' | '.join(columns)} |", "| --- " * (1 + len(columns)) + "|"]
    for reader in dict.fromkeys(info["reader"] for _, info, _ in found):
        cells = {
            info.get("reads"): f"{info['bytes'] / seconds / 1e6:,.0f}" if sizes else f"{seconds * 1e6:.2f}"
            for _, info, seconds in found
            if info["reader"] == reader
        }
        lines.append(f"| {reader} | {' | '.join(cells.get(size, '') for size in sizes or [None])} |")
    return "\n".join(lines)
