"""From measurements to figures: medians over rounds, ratios within a round, tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from benches.load.measure import Measurement
from benches.load.proxies import DIRECT
from benches.load.scenarios import SCENARIOS, Scenario

BASELINE = "nginx"
Value = Callable[[Measurement], float | None]


@dataclass(frozen=True)
class Figure:
    """The median of a proxy's rounds, and of its ratios to the baseline in the same round."""

    value: float
    low: float
    high: float
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    rounds: int


class Results:
    """All measurements of a run."""

    def __init__(self, measurements: Iterable[Measurement]) -> None:
        self._all = tuple(measurements)

    @property
    def proxies(self) -> list[str]:
        return list(dict.fromkeys(one.proxy for one in self._all if one.proxy != DIRECT.name))

    @property
    def scenarios(self) -> list[Scenario]:
        measured = {one.scenario for one in self._all}
        return [scenario for scenario in SCENARIOS if scenario.name in measured]

    def of(self, proxy: str, scenario: str) -> list[Measurement]:
        return [one for one in self._all if (one.proxy, one.scenario) == (proxy, scenario)]

    def figure(self, proxy: str, scenario: str, value: Value) -> Figure | None:
        """None where no round of this proxy counts."""
        mine = self._by_round(proxy, scenario, value)
        if not mine:
            return None
        base = self._by_round(BASELINE, scenario, value)
        ratios = [
            mine[number] / base[number] for number in mine if mine[number] > 0 and base.get(number, 0) > 0
        ]
        return Figure(
            value=median(mine.values()),
            low=min(mine.values()),
            high=max(mine.values()),
            ratio=median(ratios) if ratios else None,
            ratio_low=min(ratios, default=None),
            ratio_high=max(ratios, default=None),
            rounds=len(mine),
        )

    def added(self, proxy: str, scenario: str, value: Value) -> Figure | None:
        """The same for what the proxy adds to the direct way in the same round."""
        direct = self._by_round(DIRECT.name, scenario, value)

        def over_direct(one: Measurement) -> float | None:
            measured = value(one)
            return measured - direct[one.round] if measured is not None and one.round in direct else None

        return self.figure(proxy, scenario, over_direct)

    def voids(self) -> list[Measurement]:
        return [one for one in self._all if one.void]

    def overloaded(self, proxy: str, scenario: str) -> bool:
        mine = self.of(proxy, scenario)
        return bool(mine) and sum(one.overloaded for one in mine) * 2 > len(mine)

    def _by_round(self, proxy: str, scenario: str, value: Value) -> dict[int, float]:
        valid = (one for one in self.of(proxy, scenario) if one.void is None)
        return {one.round: found for one in valid if (found := value(one)) is not None}


def cpu(one: Measurement) -> float | None:
    return one.cpu_us


def first_p50(one: Measurement) -> float | None:
    return one.first_p50


def first_p99(one: Measurement) -> float | None:
    return one.first_p99


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def markdown(results: Results, conditions: Mapping[str, Any]) -> str:
    """The whole report."""
    parts = [
        _conditions(conditions),
        "### CPU, microseconds a chunk or request (ratio to nginx in the same round)",
        _cpu_table(results),
        "### Latency, milliseconds, and memory",
        _latency_table(results),
        "### Pace",
        _pace_table(results),
        _notes(results),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _conditions(conditions: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}".strip() for name, version in conditions["versions"].items())
    return (
        f"{conditions['date']}, {conditions['cores']} cores ({conditions['processor']}), "
        f"Linux {conditions['kernel']}, {conditions['rounds']} rounds, {conditions['workers']} worker(s) each"
        f"{', quick' if conditions['quick'] else ''}. {versions}."
    )


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value == 0:
        return "0"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def _cell(figure: Figure | None, *, scale: float = 1.0, mark: str = "") -> str:
    if figure is None:
        return "–"
    text = number(figure.value * scale)
    if figure.ratio is not None:
        text += f" ({number(figure.ratio)})"
    return text + mark


def _cpu_table(results: Results) -> str:
    def cell(proxy: str, scenario: Scenario) -> str:
        if any(one.void for one in results.of(proxy, scenario.name)) and not results.figure(
            proxy, scenario.name, cpu
        ):
            return "void"
        mark = " overloaded" if results.overloaded(proxy, scenario.name) else ""
        return _cell(results.figure(proxy, scenario.name, cpu), mark=mark)

    rows = [[proxy, *(cell(proxy, scenario) for scenario in results.scenarios)] for proxy in results.proxies]
    return table(["proxy", *(scenario.title for scenario in results.scenarios)], rows)


def _latency_table(results: Results) -> str:
    measured = {scenario.name for scenario in results.scenarios}
    columns: list[tuple[str, Callable[[str], str]]] = []
    for scenario, what in (("unloaded", "first chunk"), ("unloaded-requests", "small JSON reply")):
        if scenario in measured:
            p50, p99 = (partial(_added, results, scenario, value) for value in (first_p50, first_p99))
            columns += [(f"added to the {what}, p50", p50), ("p99", p99)]
    if "held-2000" in measured:
        columns += [
            (
                "kB a held stream",
                lambda proxy: _cell(results.figure(proxy, "held-2000", lambda one: one.memory), scale=1e-3),
            ),
        ]
    if {"held-2000", "held-50"} <= measured:
        columns += [("CPU a chunk, 2,000 streams over 50", partial(_scaling, results))]
    if not columns:
        return ""
    rows = [[proxy, *(cell(proxy) for _, cell in columns)] for proxy in results.proxies]
    return table(["proxy", *(title for title, _ in columns)], rows)


def _added(results: Results, scenario: str, value: Value, proxy: str) -> str:
    return _cell(results.added(proxy, scenario, value))


def scaling(results: Results, proxy: str) -> float | None:
    """CPU a chunk at 2,000 streams over that at 50, at the same rate in all."""
    many, few = (results.figure(proxy, scenario, cpu) for scenario in ("held-2000", "held-50"))
    return many.value / few.value if many and few else None


def _scaling(results: Results, proxy: str) -> str:
    value = scaling(results, proxy)
    return "–" if value is None else number(value)


def _pace_table(results: Results) -> str:
    """Throughput where the mock sends as fast as it can, gaps where it sends at a pace."""
    rows = []
    for proxy in [DIRECT.name, *results.proxies]:
        cells = [proxy]
        for scenario in results.scenarios:
            if scenario.latency or scenario.name.startswith("held"):
                continue
            value: Value = (lambda one: one.gap_p99) if scenario.plan.get("rate") else _per_second
            figure = results.figure(proxy, scenario.name, value)
            cells.append(number(figure.value) if figure else "–")
        rows.append(cells)
    header = ["proxy"]
    for scenario in results.scenarios:
        if not scenario.latency and not scenario.name.startswith("held"):
            unit = "gap p99, ms" if scenario.plan.get("rate") else f"{scenario.unit}s/s"
            header.append(f"{scenario.title}: {unit}")
    return table(header, rows) if len(header) > 1 else ""


def _notes(results: Results) -> str:
    voids = [f"- void: {one.proxy}, {one.scenario}, round {one.round}: {one.void}" for one in results.voids()]
    return "\n".join(voids) if voids else "No event was lost, doubled or wrong, and no request failed."


def _per_second(one: Measurement) -> float | None:
    return one.units_per_second
