"""One request's attempts."""

from typing import Any

import pytest

from fakes.front import FakeFault, FakeOutcome
from sluicegate.config import load_data
from sluicegate.routing import Attempt, Facts, Model, ModelTable, NoRoute, Ordered, Plan

TABLE = ModelTable(
    load_data(
        {
            "upstreams": {name: {"base_url": "http://127.0.0.1:1/v1"} for name in ("a", "b", "c")},
            "models": {"m": ["a", "b", "c"]},
        }
    )
)
BEYOND = FakeFault("untranslatable")
BUSY = FakeFault("status", status=503)
REFUSED = FakeFault("status", status=400)
FACTS: Any = None
"""Of no interest to the policies here."""


def model() -> Model:
    found = TABLE.get("m")
    assert found is not None
    return found


def steps(policy: Any, *faults: FakeFault) -> list[Any]:
    plan = Plan(policy, model(), FACTS)
    return [plan.next(), *(plan.next(fault) for fault in faults)]  # type: ignore[arg-type]


def test_attempts_follow_the_order_and_only_the_last_is_the_last() -> None:
    attempts = steps(Ordered(), BUSY, BUSY)
    assert [(attempt.route.upstream.name, attempt.last) for attempt in attempts] == [
        ("a", False), ("b", False), ("c", True),
    ]  # fmt: skip
    assert {attempt.after for attempt in attempts} == {0.0}


def test_which_is_the_last_is_of_the_order_not_of_the_configuration() -> None:
    class OnlyTheFirst(Ordered):
        def order(self, model: Model, facts: Facts) -> Any:
            return model.routes[:1]

    [attempt] = steps(OnlyTheFirst())
    assert isinstance(attempt, Attempt)
    assert attempt.last


def test_a_fault_of_the_request_itself_ends_it() -> None:
    assert steps(Ordered(), REFUSED)[1] == NoRoute(REFUSED)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("faults", "told"),
    [
        ((BEYOND, BEYOND, BEYOND), BEYOND),
        ((BEYOND, BUSY, BEYOND), BUSY),
        ((BUSY, BEYOND, BEYOND), BUSY),
        ((BUSY, BEYOND, REFUSED), REFUSED),
    ],
)
def test_an_upstream_that_was_asked_has_more_to_say(faults: tuple[FakeFault, ...], told: FakeFault) -> None:
    assert steps(Ordered(), *faults)[-1] == NoRoute(told)  # type: ignore[arg-type]


def test_a_policy_without_routes_leaves_nothing_to_say() -> None:
    class Nothing(Ordered):
        def order(self, model: Model, facts: Facts) -> Any:
            return ()

    assert steps(Nothing()) == [NoRoute(None)]


def test_the_policy_is_asked_once_and_hears_of_the_end() -> None:
    heard: list[Any] = []

    class Listening(Ordered):
        def order(self, model: Model, facts: Facts) -> Any:
            heard.append("order")
            return model.routes

        def ended(self, model: Model, outcome: Any) -> None:
            heard.append((model.name, outcome))

    plan, outcome = Plan(Listening(), model(), FACTS), FakeOutcome()
    plan.next()
    plan.next(BUSY)  # type: ignore[arg-type]
    plan.ended(outcome)  # type: ignore[arg-type]
    assert heard == ["order", ("m", outcome)]
