"""What sluicegate must reach, figure by figure, beside its peers in the same run.

`GATES` is the one place where a bound is written. A gate is what a release must hold, an aim is where the
work goes on to; a row without either is there to be seen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

from benches.load.measure import Measurement
from benches.load.proxies import ACCOUNTS, AFFINITY, LEAST_BUSY, LITELLM, SLUICEGATE
from benches.load.report import (
    BASELINE,
    Results,
    Value,
    cpu,
    first_p50,
    first_p99,
    memory_kb,
    number,
    per_second,
    table,
)

_OURS = SLUICEGATE.name


class Against(Enum):
    """What a figure is held against, always of the same round."""

    NOTHING = "as it is"
    BASELINE_RATIO = "× nginx"
    BASELINE_DIFFERENCE = "above nginx"
    ITSELF = "× its own"
    """The same proxy's figure in the scenario `base`."""
    US = "× sluicegate"
    """How many times ours another proxy's figure is: `rival` names it."""


@dataclass(frozen=True)
class Gate:
    """One figure and its bounds: upper ones, or lower ones where `at_least`.

    `over_direct`: the figure is what the proxy adds to the direct way of the same round. `cores`: on fewer
    than these the bound shows nothing, and the row says so.
    """

    title: str
    scenario: str
    value: Value
    against: Against = Against.BASELINE_RATIO
    gate: float | None = None
    aim: float | None = None
    base: str | None = None
    base_value: Value | None = None
    rival: str | None = None
    over_direct: bool = False
    at_least: bool = False
    cores: int = 1

    @property
    def scenarios(self) -> frozenset[str]:
        return frozenset({self.scenario, self.base} - {None})  # type: ignore[arg-type]

    def holds(self, bound: float, value: float) -> bool:
        return value >= bound if self.at_least else value <= bound

    def values(self, results: Results, proxy: str) -> dict[int, float]:
        """This proxy's figure by round; void rounds are left out."""
        return results.by_round(proxy, self.scenario, self.value, over_direct=self.over_direct)

    def compared(self, results: Results, proxy: str) -> list[float]:
        """What is held against the bounds, by round, in no order."""
        mine = self.values(results, proxy)
        match self.against:
            case Against.NOTHING:
                return list(mine.values())
            case Against.BASELINE_RATIO:
                return _paired(mine, self.values(results, BASELINE), _ratio)
            case Against.BASELINE_DIFFERENCE:
                return _paired(mine, self.values(results, BASELINE), lambda one, base: one - base)
            case Against.ITSELF:
                assert self.base is not None
                base = results.by_round(proxy, self.base, self.base_value or self.value)
                return _paired(mine, base, _ratio)
            case Against.US:
                assert self.rival is not None
                return _paired(self.values(results, self.rival), mine, _ratio) if proxy == _OURS else []


def _ratio(one: float, base: float) -> float | None:
    return one / base if one > 0 and base > 0 else None


def _paired(
    mine: dict[int, float], base: dict[int, float], combine: Callable[[float, float], float | None]
) -> list[float]:
    pairs = (combine(mine[number], base[number]) for number in mine if number in base)
    return [found for found in pairs if found is not None]


def _transit_p50(one: Measurement) -> float | None:
    return one.transit_p50


def _transit_p99(one: Measurement) -> float | None:
    return one.transit_p99


def _probe_p50(one: Measurement) -> float | None:
    return one.probe_p50


def _probe_p99(one: Measurement) -> float | None:
    return one.probe_p99


_RATIO, _ABOVE = Against.BASELINE_RATIO, Against.BASELINE_DIFFERENCE
_ITSELF, _US, _NOTHING = Against.ITSELF, Against.US, Against.NOTHING

GATES = (
    Gate("CPU a chunk, 200 × 50/s, µs", "paced-200", cpu, _RATIO, 1.25, 1.15),
    Gate(
        "CPU a chunk of chat to Messages, 200 × 50/s, µs",
        "paced-to-messages",
        cpu,
        _ITSELF,
        1.5,
        base="paced-200",
    ),
    Gate(
        "CPU a chunk of Messages to chat, 200 × 50/s, µs",
        "paced-from-messages",
        cpu,
        _ITSELF,
        1.5,
        base="paced-200",
    ),
    Gate("CPU a chunk, 1,000 × 50/s, µs", "paced-1000", cpu, _RATIO, 1.2, 1.1),
    Gate("CPU a chunk, saturated, µs", "saturated", cpu, _RATIO, 1.0, 0.9),
    Gate("first chunk while saturated, p50, ms", "saturated", first_p50, _RATIO),
    Gate("first chunk while saturated, p99, ms", "saturated", first_p99, _RATIO, 2.0, 1.5),
    Gate("CPU a small request, µs", "requests", cpu, _RATIO, 2.5, 2.0),
    Gate("CPU a 5-chunk stream, one at a time, µs", "unloaded", cpu, _RATIO, 1.9, 1.6),
    Gate(
        "added to the first chunk, p50, ms",
        "unloaded",
        first_p50,
        _RATIO,
        1.5,
        1.3,
        over_direct=True,
    ),
    Gate("added to the first chunk, p99, ms", "unloaded", first_p99, _RATIO, over_direct=True),
    Gate(
        "first chunk at 1,000 × 50/s: added, p50, ms",
        "paced-1000",
        _probe_p50,
        _ABOVE,
        over_direct=True,
    ),
    Gate(
        "first chunk at 1,000 × 50/s: added, p99, ms",
        "paced-1000",
        _probe_p99,
        _ABOVE,
        3.0,
        1.0,
        over_direct=True,
    ),
    Gate("a chunk at 1,000 × 50/s: added, p50, ms", "paced-1000", _transit_p50, _ABOVE, over_direct=True),
    Gate("a chunk at 1,000 × 50/s: added, p99, ms", "paced-1000", _transit_p99, _ABOVE, over_direct=True),
    Gate("kB a held stream", "held-2000", memory_kb, _NOTHING, 36.0, 27.0),
    Gate("kB a held stream with a body of 300 kB", "held-large", memory_kb, _ITSELF, 1.1, base="held-2000"),
    Gate("CPU a request of 1 MiB, µs", "large-requests", cpu, _RATIO, 2.0, 1.5),
    # Two threads, the mock and the load generator, and a core for what each of them wakes.
    Gate(
        "chunks a second of two threads over one, saturated",
        "saturated-two",
        per_second,
        _ITSELF,
        1.8,
        base="saturated",
        at_least=True,
        cores=5,
    ),
)

# Another way to run sluicegate, what it does more, and how much dearer a small request may be.
_VARIANTS = (
    (LEAST_BUSY.name, "`least_busy` of 8", None),
    (AFFINITY.name, "`affinity` of 8", None),
    (ACCOUNTS.name, "four limits and the ledger", 1.3),
)

# Measured where they are named, or with `--scenarios all`.
FURTHER = (
    Gate("CPU a chunk, 2,000 streams over 50, µs", "held-2000", cpu, _ITSELF, 1.2, 1.0, base="held-50"),
    Gate("added to a small reply, p50, ms", "unloaded-requests", first_p50, _RATIO, over_direct=True),
    Gate("added to a small reply, p99, ms", "unloaded-requests", first_p99, _RATIO, over_direct=True),
    Gate("LiteLLM's CPU a chunk over ours", "paced-200", cpu, _US, 40.0, rival=LITELLM.name, at_least=True),
    Gate(
        "LiteLLM's CPU a small request over ours",
        "requests",
        cpu,
        _US,
        200.0,
        rival=LITELLM.name,
        at_least=True,
    ),
    *(
        Gate(
            f"CPU a small request with {what} over that without{pace}", scenario, cpu, _US, bound, rival=name
        )
        for name, what, bound in _VARIANTS
        for scenario, pace in (("requests", ""), ("requests-paced", ", at one pace"))
    ),
    # Nothing of it is done for a chunk: what is above 1 is the stream's beginning and end.
    *(
        Gate(f"CPU a chunk with {what} over that without", "paced-200", cpu, _US, 1.1, rival=name)
        for name, what, _ in _VARIANTS
    ),
)


def gated_scenarios() -> frozenset[str]:
    return frozenset[str]().union(*(gate.scenarios for gate in GATES))


def verdict(gate: Gate, results: Results, cores: int) -> str:
    """Of our own figure: whether it holds the gate, and the aim."""
    compared = gate.compared(results, _OURS)
    if gate.gate is None:
        return ""
    if not compared:
        return "not measured"
    value = median(compared)
    if not gate.holds(gate.gate, value):
        word = "missed"
    elif gate.aim is not None and gate.holds(gate.aim, value):
        word = "met, and the aim"
    else:
        word = "met"
    return f"{word}, but {cores} cores show little" if cores < gate.cores else word


def gates_table(results: Results, cores: int) -> str:
    """A Markdown table: a row a figure, ours first, then the others; empty where nothing was measured.

    A cell is the median over rounds and, in brackets, the median of what is compared; of ours also its range.
    """
    measured = {scenario.name for scenario in results.scenarios}
    proxies = sorted(results.proxies, key=lambda name: name != _OURS)
    rows = [
        [
            gate.title,
            *(_cell(gate, results, proxy) for proxy in proxies),
            _bound(gate, gate.gate),
            _bound(gate, gate.aim),
            verdict(gate, results, cores),
        ]
        for gate in (*GATES, *FURTHER)
        if gate.scenarios <= measured and (gate.rival is None or gate.rival in proxies)
    ]
    return table(["figure", *proxies, "gate", "aim", ""], rows) if rows else ""


def missed(results: Results, cores: int) -> Sequence[Gate]:
    """The gates that were measured, can be judged on this machine, and do not hold."""
    return [gate for gate in GATES if gate.cores <= cores and verdict(gate, results, cores) == "missed"]


def _cell(gate: Gate, results: Results, proxy: str) -> str:
    values = gate.values(results, proxy)
    if not values:
        return "void" if any(one.void for one in results.of(proxy, gate.scenario)) else "–"
    text = number(median(values.values()))
    compared = gate.compared(results, proxy)
    if compared and gate.against is not Against.NOTHING:
        sign = "+" if gate.against is Against.BASELINE_DIFFERENCE and median(compared) >= 0 else ""
        text += f" ({sign}{number(median(compared))}{_range(compared) if proxy == _OURS else ''})"
    return text + (" overloaded" if results.overloaded(proxy, gate.scenario) else "")


def _range(compared: Sequence[float]) -> str:
    return f"; {number(min(compared))} to {number(max(compared))}" if len(compared) > 1 else ""


def _bound(gate: Gate, bound: float | None) -> str:
    if bound is None:
        return ""
    what = "" if gate.against is Against.NOTHING else f" {gate.against.value}"
    return f"{'≥' if gate.at_least else '≤'} {number(bound)}{what}"
