"""The README's picture of a run: `python -m benches.load.picture RESULTS.json docs/assets/load.svg`.

Each bar is a proxy's figure over nginx's in the same round. The picture is plain SVG, so that it can be read
in a light and in a dark page, and so that a test can compare it with the results that it is made from.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from benches.load.gates import GATES, Gate
from benches.load.measure import Measurement
from benches.load.proxies import SLUICEGATE
from benches.load.report import BASELINE, Results, number

SHOWN = (
    "CPU a chunk, 1,000 × 50/s, µs",
    "CPU a chunk, saturated, µs",
    "CPU a small request, µs",
    "CPU a 5-chunk stream, one at a time, µs",
    "added to the first chunk, p50, ms",
    "kB a held stream",
)
"""Titles of gates: those of each kind, also those where peers are better."""

_COLUMNS = 2
_WIDTH, _PANEL, _LEFT, _BAR, _STEP = 860, 430, 96, 250, 18
_STYLE = """
    text { font: 12px system-ui, sans-serif; fill: #24292f }
    .title { font-weight: 600 }
    .ours { fill: #0969da }
    .base { fill: #6e7781 }
    .other { fill: #afb8c1 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      .ours { fill: #58a6ff }
      .base { fill: #8b949e }
      .other { fill: #484f58 }
    }
"""


def read(file: Path) -> Results:
    """The measurements in a file of results."""
    return Results(Measurement(**one) for one in json.loads(file.read_text())["measurements"])


def svg(results: Results, caption: str) -> str:
    """The whole picture: a panel a figure, a bar a proxy, nginx being 1."""
    gates = [next(gate for gate in GATES if gate.title == title) for title in SHOWN]
    proxies = sorted(results.proxies, key=lambda name: (name != SLUICEGATE.name, name != BASELINE))
    height_of_panel = 34 + _STEP * len(proxies)
    rows = -(-len(gates) // _COLUMNS)
    height = 34 + rows * height_of_panel
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"  <title>{escape(caption)}</title>",
        f"  <style>{_STYLE}  </style>",
        f'  <text x="8" y="18" class="title">{escape(caption)}</text>',
    ]
    for position, gate in enumerate(gates):
        left = _PANEL * (position % _COLUMNS)
        top = 34 + height_of_panel * (position // _COLUMNS)
        lines += _panel(results, gate, proxies, left, top)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _panel(results: Results, gate: Gate, proxies: Sequence[str], left: int, top: int) -> Iterator[str]:
    ratios = {name: ratio for name in proxies if (ratio := _ratio(results, gate, name)) is not None}
    # The unit says nothing of a ratio.
    title = gate.title.removesuffix(", µs").removesuffix(", ms").replace("kB a", "memory of a")
    most = max(ratios.values(), default=1.0)
    yield f'  <text x="{left + 8}" y="{top + 14}" class="title">{escape(title)}</text>'
    for row, (name, ratio) in enumerate(ratios.items()):
        y = top + 22 + _STEP * row
        kind = {SLUICEGATE.name: "ours", BASELINE: "base"}.get(name, "other")
        width = _BAR * ratio / most
        yield f'  <text x="{left + _LEFT - 6}" y="{y + 11}" text-anchor="end">{escape(name)}</text>'
        yield f'  <rect class="{kind}" x="{left + _LEFT}" y="{y}" width="{width:.1f}" height="13" rx="2"/>'
        yield f'  <text x="{left + _LEFT + width + 6:.1f}" y="{y + 11}">{number(ratio)}</text>'


def _ratio(results: Results, gate: Gate, proxy: str) -> float | None:
    """The median over rounds, where nginx is 1."""
    mine, base = gate.values(results, proxy), gate.values(results, BASELINE)
    found = sorted(mine[one] / base[one] for one in mine if base.get(one, 0) > 0)
    return found[len(found) // 2] if found else None


def caption(file: Path) -> str:
    """What the picture shows, and of when. Raises AssertionError for a run with more than a thread each."""
    conditions = json.loads(file.read_text())["conditions"]
    assert conditions["threads"] == 1
    return (
        f"The same work as a ratio to nginx, shorter is better; {conditions['date']}, "
        f"{conditions['cores']} cores, one thread each"
    )


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    target.write_text(svg(read(source), caption(source)))


if __name__ == "__main__":
    main()
