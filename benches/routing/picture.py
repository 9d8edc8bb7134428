"""The plot of a run: `python -m benches.routing.picture RESULTS.json docs/assets/routing.svg`.

One row a policy and one pair of bars a scenario: how much of the inputs was in a cache, and the 99th
percentile of times to the first token. Plain SVG, to be read in a light and in a dark page.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from html import escape
from math import log10
from pathlib import Path
from typing import Any

_STEP, _PANEL, _LEFT, _BAR, _WIDTH = 18, 470, 170, 110, 960
_OURS = ("round_robin", "weighted", "least_busy", "latency", "affinity")
_STYLE = """
    text { font: 12px system-ui, sans-serif; fill: #24292f }
    .title { font-weight: 600 }
    .ours { fill: #0969da }
    .other { fill: #afb8c1 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      .ours { fill: #58a6ff }
      .other { fill: #484f58 }
    }
"""
# Times differ by more than a hundred times: their bars are of logarithms.
_SHORTEST, _LONGEST = 1.0, 200.0

Found = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""By scenario, then by policy: what `run.Result` has."""


def svg(found: Found) -> str:
    """The whole picture: a panel a scenario."""
    rows = max(len(policies) for policies in found.values())
    panel = 50 + _STEP * rows
    height = 30 + panel * -(-len(found) // 2)
    caption = "Simulated: inputs found in caches, and time to the first token (p99, logarithmic)"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"  <title>{escape(caption)}</title>",
        f"  <style>{_STYLE}  </style>",
        f'  <text x="8" y="18" class="title">{escape(caption)}</text>',
    ]
    for place, (scenario, policies) in enumerate(found.items()):
        lines += _panel(scenario, policies, _PANEL * (place % 2), 30 + panel * (place // 2))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _panel(scenario: str, policies: Mapping[str, Mapping[str, Any]], left: int, top: int) -> Iterator[str]:
    yield f'  <text x="{left + 8}" y="{top + 16}" class="title">{escape(scenario)}</text>'
    for row, (name, result) in enumerate(policies.items()):
        y = top + 26 + _STEP * row
        kind = "ours" if name in _OURS else "other"
        cached, p99 = float(result["cached"]), float(result["p99"])
        long = log10(min(max(p99, _SHORTEST), _LONGEST) / _SHORTEST) / log10(_LONGEST / _SHORTEST)
        yield f'  <text x="{left + _LEFT - 6}" y="{y + 11}" text-anchor="end">{escape(name)}</text>'
        yield from _bar(left + _LEFT, y, _BAR * cached, kind, f"{100 * cached:.0f} %")
        yield from _bar(left + _LEFT + _BAR + 34, y, _BAR * long, kind, f"{p99:.1f} s")


def _bar(x: int, y: int, width: float, kind: str, text: str) -> Iterator[str]:
    yield f'  <rect x="{x}" y="{y}" width="{width:.1f}" height="13" class="{kind}"/>'
    yield f'  <text x="{x + width + 4:.1f}" y="{y + 11}">{text}</text>'


def main() -> None:
    source, target = map(Path, sys.argv[1:3])
    target.write_text(svg(json.loads(source.read_text())))


if __name__ == "__main__":
    main()
