"""One request's attempts: which deployment is next, what it has in flight, and when there is none left."""

import weakref
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fakes.facts import Facts
from fakes.front import FakeFault, FakeOutcome
from sluicegate.config import load_data
from sluicegate.routing import Attempt, Fleet, Model, ModelTable, NoRoute, Plan
from sluicegate.routing.health import State

UPSTREAMS = {name: {"base_url": "http://127.0.0.1:1/v1"} for name in ("a", "b", "c", "d")}
BEYOND: Any = FakeFault("untranslatable")
BUSY: Any = FakeFault("status", status=503)
BROKEN: Any = FakeFault("status", status=500)
REFUSED: Any = FakeFault("status", status=400)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def table(routes: Any, before: ModelTable | None = None, **model: Any) -> ModelTable:
    config = load_data({"upstreams": UPSTREAMS, "models": {"m": {"routes": routes, **model}}})
    return ModelTable(config, before, fleet=Fleet(Clock()) if before is None else None)


def model_of(routes: Any, **more: Any) -> Model:
    found = table(routes, **more).get("m")
    assert found is not None
    return found


def plan_for(model: Model, **options: Any) -> Plan:
    return Plan(model, Facts(size=4_000), **options)


@pytest.mark.parametrize("routes", [["a"], ["a", "b"]])
def test_a_plan_does_not_hold_the_request(routes: list[str]) -> None:
    facts = Facts()
    plan = Plan(model_of(routes, policy="round_robin"), facts)
    plan.next()
    held = weakref.ref(facts)
    del facts
    assert held() is None


def steps(model: Model, *faults: Any) -> list[Any]:
    plan = plan_for(model)
    return [plan.next(), *(plan.next(fault) for fault in faults)]


def streams(model: Model) -> dict[str, int]:
    return {deployment.name: deployment.load.streams for deployment in model.deployments}


def test_attempts_follow_the_order_and_only_the_last_is_the_last() -> None:
    attempts = steps(model_of(["a", "b", "c"]), BUSY, BUSY)
    assert [(attempt.route.upstream.name, attempt.last) for attempt in attempts] == [
        ("a", False), ("b", False), ("c", True),
    ]  # fmt: skip
    assert {attempt.after for attempt in attempts} == {0.0}


def test_a_fault_of_the_request_itself_ends_it() -> None:
    assert steps(model_of(["a", "b"]), REFUSED)[1] == NoRoute(REFUSED)


@pytest.mark.parametrize(
    ("faults", "told"),
    [
        ((BEYOND, BEYOND, BEYOND), BEYOND),
        ((BEYOND, BUSY, BEYOND), BUSY),
        ((BUSY, BEYOND, BEYOND), BUSY),
        ((BUSY, BEYOND, REFUSED), REFUSED),
    ],
)
def test_an_upstream_that_was_asked_has_more_to_say(faults: tuple[Any, ...], told: Any) -> None:
    assert steps(model_of(["a", "b", "c"]), *faults)[-1] == NoRoute(told)


def test_only_some_upstreams_can_be_asked() -> None:
    model = model_of(["a", "b", "c"])
    plan = plan_for(model, only={"b"})
    attempt = plan.next()
    assert isinstance(attempt, Attempt)
    assert (attempt.deployment.name, attempt.last) == ("b/m", True)
    assert plan_for(model, only=set()).next() == NoRoute(None, "none")


def test_whoever_counts_no_more_tokens_is_still_asked_for_replies() -> None:
    limited: Any = FakeFault("status", status=429, headers=[(b"retry-after", b"60")])
    model = model_of(["a"])
    counting = plan_for(model, only={"a"})
    counting.next()
    assert counting.next(limited) == NoRoute(limited)
    assert isinstance(plan_for(model).next(), Attempt)


# === tiers and bounds ===


def test_a_higher_tier_is_used_only_where_nothing_in_a_lower_one_can_serve() -> None:
    model = model_of([{"upstream": "c", "tier": 1}, {"upstream": "a", "max_streams": 1}, "b"])
    attempts = steps(model, BUSY, BUSY)
    assert [(attempt.deployment.upstream, attempt.last) for attempt in attempts] == [
        ("a", False), ("b", False), ("c", True),
    ]  # fmt: skip


def test_a_full_deployment_is_passed_over_until_it_has_room() -> None:
    model = model_of([{"upstream": "a", "max_streams": 1}, {"upstream": "b", "tier": 1}])
    first, second, third = (plan_for(model) for _ in range(3))
    assert first.next().deployment.name == "a/m"  # type: ignore[union-attr]
    attempt = second.next()
    assert isinstance(attempt, Attempt)
    assert (attempt.deployment.name, attempt.last) == ("b/m", True)
    first.ended(FakeOutcome())  # type: ignore[arg-type]
    assert third.next().deployment.name == "a/m"  # type: ignore[union-attr]


def test_where_all_are_full_it_is_said_so() -> None:
    model = model_of([{"upstream": "a", "max_streams": 1}, {"upstream": "b", "max_streams": 1}])
    for _ in range(2):
        assert isinstance(plan_for(model).next(), Attempt)
    assert plan_for(model).next() == NoRoute(None, "full")


def test_after_a_fault_that_is_what_is_told_though_the_others_are_full() -> None:
    model = model_of(["a", {"upstream": "b", "max_streams": 1}])
    busy = plan_for(model)
    busy.next()
    busy.next(BUSY)
    plan = plan_for(model)
    attempt = plan.next()
    assert isinstance(attempt, Attempt)
    assert attempt.last, "nothing need be held back"
    assert plan.next(BROKEN) == NoRoute(BROKEN)


# === what is in flight ===


def test_a_request_is_in_flight_at_one_deployment_at_a_time() -> None:
    model = model_of(["a", "b"])
    plan = plan_for(model)
    plan.next()
    assert streams(model) == {"a/m": 1, "b/m": 0}
    assert [deployment.load.tokens for deployment in model.deployments] == [1000, 0]
    plan.next(BUSY)
    assert streams(model) == {"a/m": 0, "b/m": 1}
    plan.ended(FakeOutcome())  # type: ignore[arg-type]
    plan.ended(FakeOutcome())  # type: ignore[arg-type]
    assert streams(model) == {"a/m": 0, "b/m": 0}
    assert [deployment.load.tokens for deployment in model.deployments] == [0, 0]


def test_a_reload_keeps_the_counts_by_deployment() -> None:
    old = table(["a", "b"])
    before = old.get("m")
    assert before is not None
    plan = plan_for(before)
    plan.next()
    new = table(["b", {"upstream": "a", "max_streams": 1}], old, policy="weighted").get("m")
    assert new is not None
    assert streams(new) == {"b/m": 0, "a/m": 1}
    assert plan_for(new).next().deployment.name == "b/m"  # type: ignore[union-attr]
    plan.ended(FakeOutcome())  # type: ignore[arg-type]
    assert streams(new) == {"b/m": 1, "a/m": 0}


def test_a_deployment_that_was_gone_for_a_while_still_has_what_it_had() -> None:
    first = table(["a"])
    model = first.get("m")
    assert model is not None
    plan = plan_for(model)
    plan.next()
    without = table(["b"], first)
    del first, model
    again = table(["a"], without).get("m")
    assert again is not None
    assert streams(again) == {"a/m": 1}


def test_two_models_share_what_a_deployment_has_to_do() -> None:
    config = load_data(
        {
            "upstreams": UPSTREAMS,
            "models": {"m": "a/x", "n": [{"upstream": "a", "model": "x", "max_streams": 1}, "b/y"]},
        }
    )
    shared = ModelTable(config)
    one, other = shared.get("m"), shared.get("n")
    assert one is not None
    assert other is not None
    plan_for(one).next()
    assert plan_for(other).next().deployment.name == "b/y"  # type: ignore[union-attr]


# === times to the first token ===


def served(plan: Plan, **outcome: Any) -> None:
    plan.ended(FakeOutcome(**{"streamed": True, "first_token": 0.5, **outcome}))  # type: ignore[arg-type]


def first_token(model: Model) -> list[float | None]:
    [deployment] = model.deployments
    return [None if average is None else average.value for average in deployment.load.first_token]


def test_a_stream_that_was_served_tells_how_long_inputs_of_its_size_take() -> None:
    model = model_of(["a"])
    for size, seconds in ((4_000, 0.5), (40_000, 2.0), (400_000, 8.0)):
        plan = Plan(model, Facts(size=size))
        plan.next()
        served(plan, first_token=seconds)
    assert first_token(model) == [0.5, 2.0, 8.0]


@pytest.mark.parametrize(
    "outcome", [{"streamed": False}, {"first_token": None}, {"fault": FakeFault("truncated")}]
)
def test_anything_else_tells_nothing(outcome: dict[str, Any]) -> None:
    model = model_of(["a"])
    plan = plan_for(model)
    plan.next()
    served(plan, **outcome)
    assert first_token(model) == [None, None, None]


def test_the_time_of_earlier_attempts_is_not_the_last_ones() -> None:
    model = model_of(["a"])
    plan = plan_for(model)
    plan.next()
    tries = [("b", "m", "connect", None, None, 0.0, 2.0), ("a", "m", None, None, None, 2.0, 1.0)]
    served(plan, attempts=2, tries=tries, first_token=2.5)
    assert first_token(model) == [0.5, None, None]


# === whatever the order of faults, leaving and reloads ===

AGAIN: list[Any] = [BUSY, FakeFault("connect")]
"""After which the table lets the same deployment be tried again."""
FAULTS: list[Any] = [*AGAIN, REFUSED, BEYOND, BROKEN, FakeFault("total_timeout")]


class Breaking:
    """Ranks, now and then."""

    def __init__(self) -> None:
        self.asked = 0

    def rank(self, facts: Any, candidates: Any) -> Any:
        self.asked += 1
        if self.asked % 3 == 0:
            raise ZeroDivisionError
        return candidates[::-1] if self.asked % 2 else []


class Plans(RuleBasedStateMachine):
    """Plans of several configurations side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.table = self._load(["a", {"upstream": "b", "max_streams": 2}, "c"], "ordered")
        self.plans: list[tuple[Plan, list[Attempt], bool]] = []

    def _load(self, routes: Any, policy: str) -> ModelTable:
        config = load_data(
            {"upstreams": UPSTREAMS, "models": {"m": {"routes": routes, "policy": policy}, "n": "a/m"}}
        )
        own: Any = Breaking() if policy == "ordered" else None
        before = getattr(self, "table", None)
        fleet = Fleet(self.clock, random=Random(1)) if before is None else None
        return ModelTable(config, before, policy=own, fleet=fleet)

    @rule(seconds=st.sampled_from([0.1, 3.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(name=st.sampled_from(["m", "n"]), only=st.sampled_from([None, {"a", "b"}]))
    def begin(self, name: str, only: Any) -> None:
        model = self.table.get(name)
        assert model is not None
        self._step(plan_for(model, only=only), [], None)

    @rule(place=st.integers(0, 9), fault=st.sampled_from(FAULTS))
    def fail(self, place: int, fault: Any) -> None:
        if self.plans:
            plan, attempts, over = self.plans.pop(place % len(self.plans))
            if over:
                self.plans.append((plan, attempts, over))
            else:
                self._step(plan, attempts, fault)

    def _step(self, plan: Plan, attempts: list[Attempt], fault: Any) -> None:
        step = plan.next(fault)
        if isinstance(step, NoRoute):
            assert fault is None or step.fault is not None
            self.plans.append((plan, attempts, True))
            return
        if step.deployment in [attempt.deployment for attempt in attempts]:
            assert step.deployment is attempts[-1].deployment, "only the last one is tried again"
            assert fault in AGAIN
            assert step.after > 0
        self.plans.append((plan, [*attempts, step], False))

    @rule(place=st.integers(0, 9))
    def put_out(self, place: int) -> None:
        if self.plans:
            plan, attempts, over = self.plans[place % len(self.plans)]
            if not over:
                plan.first_output()
                assert attempts[-1].deployment.usable(self.clock.now).why is not State.HALF_OPEN

    @rule(place=st.integers(0, 9), left=st.booleans())
    def end(self, place: int, left: bool) -> None:
        if self.plans:
            plan, _, _ = self.plans.pop(place % len(self.plans))
            plan.ended(FakeOutcome(client_left=left))  # type: ignore[arg-type]

    @rule(
        policy=st.sampled_from(["ordered", "weighted", "least_busy", "affinity", "latency", "round_robin"]),
        most=st.sampled_from([None, 1, 3]),
        spare=st.booleans(),
    )
    def reload(self, policy: str, most: int | None, spare: bool) -> None:
        routes: list[Any] = [{"upstream": "a", "max_streams": most}, "b"]
        self.table = self._load([*routes, {"upstream": "d", "tier": 1}] if spare else routes, policy)

    @invariant()
    def each_has_what_it_was_handed_and_did_not_end(self) -> None:
        handed: dict[str, int] = {}
        for _, attempts, over in self.plans:
            if not over:
                name = attempts[-1].deployment.name
                handed[name] = handed.get(name, 0) + 1
        loads = {load.name: load for load in self.table.fleet._loads.values()}
        assert {name: load.streams for name, load in loads.items() if load.streams} == handed
        assert {load.tokens for load in loads.values()} <= {1000 * count for count in [0, *handed.values()]}

    @invariant()
    def what_is_thought_usable_is(self) -> None:
        for model in self.table:
            usable = [deployment for deployment in model.deployments if deployment.usable(self.clock.now).yes]
            assert [*model.group.usable(self.clock.now)] == usable


TestPlans = Plans.TestCase
TestPlans.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
