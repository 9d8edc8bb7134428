"""The picture of a soak among hostile peers: `python -m soak.picture FIGURES.json PICTURE.svg`, in `tests`.

Plain SVG, so that it can be read in a light and in a dark page.
"""

import json
import math
import sys
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

_WIDTH, _LEFT, _RIGHT = 860, 60, 12
_TOP, _HEIGHT, _BETWEEN = 44, 150, 46
_STYLE = """
    text { font: 12px system-ui, sans-serif; fill: #24292f }
    .title { font-weight: 600 }
    .line { fill: none; stroke: #0969da; stroke-width: 1.2 }
    .grid { stroke: #d0d7de; stroke-width: 0.6 }
    .bound { stroke: #cf222e; stroke-width: 1; stroke-dasharray: 4 3 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      .line { stroke: #58a6ff }
      .grid { stroke: #30363d }
      .bound { stroke: #ff7b72 }
    }
"""


def svg(summary: dict[str, Any]) -> str:
    """Memory and the honest streams over time, from `HostileSoak.summary`."""
    samples = summary["samples"]
    times = [sample["at"] for sample in samples]
    title = (
        f"{summary['honest_streams_at_once']} honest streams for {summary['seconds']:.0f} s, while "
        f"{summary['hostile_cases_played']} hostile cases were played"
    )
    panels = (
        ("memory of the gateway (PSS), MiB", [sample["memory_mib"] for sample in samples], None),
        (
            "chunks that honest streams got, a second",
            [sample["chunks"] / pause for sample, pause in zip(samples, _pauses(times), strict=True)],
            None,
        ),
        (
            "longest wait of an honest stream beyond its pace, ms",
            [sample["wait_ms"] for sample in samples],
            100.0,
        ),
    )
    height = _TOP + len(panels) * (_HEIGHT + _BETWEEN)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"  <title>{escape(title)}</title>",
        f"  <style>{_STYLE}  </style>",
        f'  <text x="8" y="18" class="title">{escape(title)}</text>',
    ]
    for number, (name, values, bound) in enumerate(panels):
        lines += _panel(name, times, values, bound, _TOP + number * (_HEIGHT + _BETWEEN))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _pauses(times: Sequence[float]) -> list[float]:
    return [time - before for before, time in zip([0.0, *times], times, strict=False)]


def _panel(
    name: str, times: Sequence[float], values: Sequence[float], bound: float | None, top: float
) -> Iterator[str]:
    most = max([*values, bound or 0.0, 1.0])
    step = _step(most / 3)
    ceiling = math.ceil(most / step) * step
    across = (_WIDTH - _LEFT - _RIGHT) / times[-1]

    def y(value: float) -> float:
        return top + 10 + _HEIGHT * (1 - value / ceiling)

    yield f'  <text x="8" y="{top}" class="title">{escape(name)}</text>'
    for number in range(round(ceiling / step) + 1):
        at = y(number * step)
        yield f'  <line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'  <text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{number * step:g}</text>'
    if bound is not None:
        at = y(bound)
        yield f'  <line class="bound" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
    every = _step(times[-1] / 6)
    for number in range(int(times[-1] / every) + 1):
        at, below = _LEFT + number * every * across, top + _HEIGHT + 24
        yield f'  <text x="{at:.1f}" y="{below}" text-anchor="middle">{number * every:g} s</text>'
    points = " ".join(
        f"{_LEFT + at * across:.1f},{y(value):.1f}" for at, value in zip(times, values, strict=True)
    )
    yield f'  <polyline class="line" points="{points}"/>'


def _step(least: float) -> float:
    """The round number (1, 2 or 5 times a power of ten) that is no less."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * 0.999)


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    target.write_text(svg(json.loads(source.read_text())))


if __name__ == "__main__":
    main()
