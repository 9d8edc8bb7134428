"""From measurements to figures: medians over rounds, ratios within a round, tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
        mine = self.by_round(proxy, scenario, value)
        if not mine:
            return None
        base = self.by_round(BASELINE, scenario, value)
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

    def voids(self) -> list[Measurement]:
        return [one for one in self._all if one.void]

    def overloaded(self, proxy: str, scenario: str) -> bool:
        mine = self.of(proxy, scenario)
        return bool(mine) and sum(one.overloaded for one in mine) * 2 > len(mine)

    def by_round(
        self, proxy: str, scenario: str, value: Value, *, over_direct: bool = False
    ) -> dict[int, float]:
        """The value of each round that counts; `over_direct`: less the direct way's in the same round."""
        valid = (one for one in self.of(proxy, scenario) if one.void is None)
        found = {one.round: measured for one in valid if (measured := value(one)) is not None}
        if not over_direct:
            return found
        direct = self.by_round(DIRECT.name, scenario, value)
        return {number: found[number] - direct[number] for number in found if number in direct}


def cpu(one: Measurement) -> float | None:
    return one.cpu_us


def first_p50(one: Measurement) -> float | None:
    return one.first_p50


def first_p99(one: Measurement) -> float | None:
    return one.first_p99


def memory_kb(one: Measurement) -> float | None:
    return None if one.memory is None else one.memory / 1000


def per_second(one: Measurement) -> float | None:
    return one.units_per_second


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def markdown(results: Results, conditions: Mapping[str, Any], gates: str) -> str:
    """The whole report. `gates` is the table that says what was reached."""
    parts = [
        _conditions(conditions),
        gates,
        "### CPU, microseconds a chunk or request (ratio to nginx in the same round)",
        _cpu_table(results),
        "### Pace",
        _pace_table(results),
        _notes(results),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _conditions(conditions: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}".strip() for name, version in conditions["versions"].items())
    return (
        f"{conditions['date']}, {conditions['cores']} cores ({conditions['processor']}), "
        f"Linux {conditions['kernel']}, {conditions['rounds']} rounds, {conditions['threads']} thread(s) each"
        f"{', quick' if conditions['quick'] else ''}. {versions}."
    )


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value == 0:
        return "0"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def _cell(figure: Figure | None, mark: str) -> str:
    if figure is None:
        return "–"
    text = number(figure.value)
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
        return _cell(results.figure(proxy, scenario.name, cpu), mark)

    rows = [[proxy, *(cell(proxy, scenario) for scenario in results.scenarios)] for proxy in results.proxies]
    return table(["proxy", *(scenario.title for scenario in results.scenarios)], rows)


def _shows_pace(scenario: Scenario) -> bool:
    return not scenario.name.startswith(("held", "unloaded"))


def _pace_table(results: Results) -> str:
    """Throughput where the mock sends as fast as it can, gaps where it sends at a pace."""
    rows = []
    for proxy in [DIRECT.name, *results.proxies]:
        cells = [proxy]
        for scenario in results.scenarios:
            if not _shows_pace(scenario):
                continue
            value: Value = (lambda one: one.gap_p99) if scenario.plan.get("rate") else per_second
            figure = results.figure(proxy, scenario.name, value)
            cells.append(number(figure.value) if figure else "–")
        rows.append(cells)
    header = ["proxy"]
    for scenario in results.scenarios:
        if _shows_pace(scenario):
            unit = "gap p99, ms" if scenario.plan.get("rate") else f"{scenario.unit}s/s"
            header.append(f"{scenario.title}: {unit}")
    return table(header, rows) if len(header) > 1 else ""


def _notes(results: Results) -> str:
    voids = [f"- void: {one.proxy}, {one.scenario}, round {one.round}: {one.void}" for one in results.voids()]
    return "\n".join(voids) if voids else "No event was lost, doubled or wrong, and no request failed."
