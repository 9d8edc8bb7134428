"""What sluicegate is held to: ratios to nginx, and to the gateway that most people run, in the same round."""

from collections.abc import Callable
from dataclasses import dataclass

from benches.load.report import Results, Value, cpu, first_p50, first_p99, number, scaling, table

_OURS = "sluicegate"


@dataclass(frozen=True)
class Target:
    """One figure and its bound: an upper one, or a lower one where `at_least`."""

    title: str
    bound: float
    measured: Callable[[Results], float | None]
    at_least: bool = False

    def met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


def _ratio(scenario: str, value: Value) -> Callable[[Results], float | None]:
    def measured(results: Results) -> float | None:
        figure = results.figure(_OURS, scenario, value)
        return figure.ratio if figure else None

    return measured


def _added(value: Value) -> Callable[[Results], float | None]:
    def measured(results: Results) -> float | None:
        figure = results.added(_OURS, "unloaded", value)
        return figure.ratio if figure else None

    return measured


def _litellm_over_us(scenario: str) -> Callable[[Results], float | None]:
    def measured(results: Results) -> float | None:
        theirs, ours = (results.figure(name, scenario, cpu) for name in ("litellm", _OURS))
        return theirs.value / ours.value if theirs and ours else None

    return measured


TARGETS = (
    Target("CPU a chunk, 200 paced streams, over nginx", 1.2, _ratio("paced-200", cpu)),
    Target("CPU a chunk, 1,000 paced streams, over nginx", 1.2, _ratio("paced-1000", cpu)),
    Target("CPU a chunk, saturated, over nginx", 1.2, _ratio("saturated", cpu)),
    Target("added time to the first chunk, p50, over nginx", 3.0, _added(first_p50)),
    Target("added time to the first chunk, p99, over nginx", 3.0, _added(first_p99)),
    Target("CPU a small request, over nginx", 4.5, _ratio("requests", cpu)),
    Target("memory a held stream, over nginx", 2.0, _ratio("held-2000", lambda one: one.memory)),
    Target("CPU a chunk, 2,000 streams over 50", 1.2, lambda results: scaling(results, _OURS)),
    Target("CPU a chunk, LiteLLM over sluicegate", 30.0, _litellm_over_us("paced-200"), at_least=True),
    Target("CPU a small request, LiteLLM over sluicegate", 80.0, _litellm_over_us("requests"), at_least=True),
)


def targets_table(results: Results) -> str:
    """A Markdown table of every target that was measured; empty where none was."""
    rows = []
    for target in TARGETS:
        value = target.measured(results)
        if value is not None:
            bound = f"{'≥' if target.at_least else '≤'} {number(target.bound)}"
            rows.append([target.title, bound, number(value), "met" if target.met(value) else "missed"])
    return table(["figure", "target", "measured", ""], rows) if rows else ""
