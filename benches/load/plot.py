"""The figures as a picture: CPU a unit as a ratio to nginx, one panel a scenario."""

from pathlib import Path

import matplotlib as mpl
from benches.load.report import BASELINE, Results, cpu

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.ticker import FormatStrFormatter, NullFormatter

_COLUMNS = 3
_OURS, _OTHERS, _BASE = "#1f77b4", "#b0b0b0", "#555555"


def draw(results: Results, file: Path) -> None:
    """Write a PNG. Nothing is written where nothing was measured beside the baseline."""
    scenarios = [
        scenario
        for scenario in results.scenarios
        if any(_ratio(results, proxy, scenario.name) for proxy in results.proxies if proxy != BASELINE)
    ]
    if not scenarios:
        return
    rows = -(-len(scenarios) // _COLUMNS)
    figure, axes = plt.subplots(rows, _COLUMNS, figsize=(13, 2.9 * rows), squeeze=False, layout="constrained")
    for axis in axes.flat[len(scenarios) :]:
        axis.axis("off")
    for axis, scenario in zip(axes.flat, scenarios, strict=False):
        shown = [proxy for proxy in reversed(results.proxies) if _ratio(results, proxy, scenario.name)]
        ratios = [_ratio(results, proxy, scenario.name) or 0.0 for proxy in shown]
        colours = [{"sluicegate": _OURS, BASELINE: _BASE}.get(proxy, _OTHERS) for proxy in shown]
        bars = axis.barh(shown, ratios, color=colours)
        axis.bar_label(bars, [f"{ratio:.3g}" for ratio in ratios], padding=3, fontsize=8)
        axis.axvline(1.0, color=_BASE, linewidth=0.8, linestyle=":")
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter(FormatStrFormatter("%g"))
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_xlim(min(0.5, *ratios), max(2.0, *ratios) * 2.2)
        axis.set_title(scenario.title, fontsize=9)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle("CPU of the proxy for the same work, nginx = 1 (logarithmic; shorter is better)")
    figure.savefig(file, dpi=110)
    plt.close(figure)


def _ratio(results: Results, proxy: str, scenario: str) -> float | None:
    figure = results.figure(proxy, scenario, cpu)
    return figure.ratio if figure else None
