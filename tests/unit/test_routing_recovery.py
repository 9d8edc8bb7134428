"""Which deployment a request is handed while some are left alone, and how load comes back to them."""

from collections import Counter
from random import Random
from typing import Any

import pytest

from fakes.facts import Facts
from fakes.front import FakeFault, FakeOutcome
from sluicegate.config import load_data
from sluicegate.routing import Attempt, Fleet, Model, ModelTable, NoRoute, Plan

UPSTREAMS: dict[str, Any] = {name: {"base_url": "http://127.0.0.1:1/v1"} for name in ("a", "b", "c")}
BROKEN: Any = FakeFault("status", status=500)
UNAVAILABLE: Any = FakeFault("status", status=503)
LOST: Any = FakeFault("connect")
BUSY: Any = FakeFault("status", status=429)
BEYOND: Any = FakeFault("untranslatable")
SERVED: Any = FakeOutcome()
LEFT: Any = FakeOutcome(client_left=True)


def limited(seconds: float) -> Any:
    return FakeFault("status", status=429, headers=[(b"retry-after", b"%g" % seconds)])


class Stand:
    """One model on a clock of its own. Ejections last 10 s, within a fifth."""

    def __init__(
        self,
        routes: list[Any],
        health: dict[str, Any] | None = None,
        *,
        upstreams: dict[str, Any] | None = None,
        **model: Any,
    ) -> None:
        self.now = 1000.0
        config = {
            "upstreams": upstreams or UPSTREAMS,
            "models": {"m": {"routes": routes, **model}},
            "health": {"consecutive": 2, "eject": 10, "eject_at_most": 10, **(health or {})},
        }
        fleet = Fleet(lambda: self.now, wall=lambda: 0.0, random=Random(1))
        self.table = ModelTable(load_data(config), fleet=fleet, random=Random(2))

    @property
    def model(self) -> Model:
        found = self.table.get("m")
        assert found is not None
        return found

    def plan(self) -> Plan:
        return Plan(self.model, Facts())

    def take(self, *faults: Any) -> list[Attempt | NoRoute]:
        """The steps of one request whose attempts fail so, and which is served where there is one more."""
        plan = self.plan()
        steps = [plan.next(), *(plan.next(fault) for fault in faults)]
        plan.ended(FakeOutcome(attempts=len(steps)))  # type: ignore[arg-type]
        return steps

    def names(self, *faults: Any) -> list[str]:
        return [step.deployment.upstream for step in self.take(*faults) if isinstance(step, Attempt)]

    def eject(self, *upstreams: str) -> None:
        """Have these fail twice in a row."""
        for deployment in self.model.deployments:
            if deployment.upstream in upstreams:
                health, verdict = deployment.load.health, deployment.verdict(BROKEN, 0.0)
                for _ in range(2):
                    health.ended(verdict, self.now, health.begin(self.now))


def test_what_is_left_alone_is_passed_over_until_it_is_due() -> None:
    stand = Stand(["a", "b"])
    stand.eject("a")
    assert stand.names() == ["b"]
    stand.now += 12.1
    trial = stand.plan()
    step = trial.next()
    assert isinstance(step, Attempt)
    assert step.deployment.upstream == "a"
    assert not step.last
    assert stand.names() == ["b"], "one request at a time finds out"
    trial.ended(SERVED)
    assert stand.names() == ["a"]


def test_the_first_output_of_a_trial_lets_others_in_while_it_lasts() -> None:
    stand = Stand(["a", "b"])
    stand.eject("a")
    stand.now += 12.1
    trial = stand.plan()
    step = trial.next()
    assert isinstance(step, Attempt)
    assert step.trial
    other = stand.plan()
    further = other.next()
    assert isinstance(further, Attempt)
    assert (further.deployment.upstream, further.trial) == ("b", False)
    # Of an attempt that is no trial it says nothing.
    other.first_output()
    assert stand.names() == ["b"]
    trial.first_output()
    assert stand.names() == ["a"]
    trial.ended(LEFT)
    other.ended(SERVED)
    assert stand.names() == ["a"]
    assert all(deployment.load.streams == 0 for deployment in stand.model.deployments)


def test_where_all_are_left_alone_the_one_due_back_first_is_tried() -> None:
    stand = Stand(["a", "b", "c"])
    stand.eject("b")
    stand.now += 5.0
    stand.eject("a", "c")
    *attempts, none = stand.take(BROKEN, BROKEN, BROKEN)
    assert none == NoRoute(BROKEN)
    tried = [(step.deployment.upstream, step.last) for step in attempts if isinstance(step, Attempt)]
    assert tried[0] == ("b", False)
    assert [last for _, last in tried] == [False, False, True]
    assert {name for name, _ in tried} == {"a", "b", "c"}
    assert stand.names()[0] == "b", "which served, and is usable again"
    assert stand.names() == ["b"]


def test_a_doubtful_server_is_better_than_the_same_one_again() -> None:
    stand = Stand(["a", "b"])
    stand.eject("b")
    assert stand.names(UNAVAILABLE) == ["a", "b"]


def test_where_all_rest_it_is_said_for_how_long() -> None:
    stand = Stand(["a", "b"])
    stand.take(limited(30), limited(20))
    step = stand.plan().next()
    assert step == NoRoute(None, "resting", 20.0, "429")
    stand.now += 20.0
    assert stand.names() == ["b"]


def test_one_that_rests_is_not_tried_in_place_of_one_that_failed() -> None:
    stand = Stand(["a", "b"])
    stand.take(limited(30))
    stand.eject("b")
    assert stand.names() == ["b"]


@pytest.mark.parametrize("fault", [LOST, UNAVAILABLE, limited(0)])
def test_the_same_one_is_tried_again_after_a_pause(fault: Any) -> None:
    stand = Stand(["a"], retry={"attempts": 3, "backoff": [0.5, 0.75]})
    plan = stand.plan()
    pauses = [step.after for step in (plan.next(), plan.next(fault)) if isinstance(step, Attempt)]
    assert pauses[0] == 0.0
    assert 0.0 < pauses[1] <= 0.5


def test_a_stated_wait_is_waited_for_where_it_is_short() -> None:
    stand = Stand(["a"], retry={"attempts": 2, "backoff": [0.1, 2]})
    (_, step) = stand.take(limited(1.5))
    assert isinstance(step, Attempt)
    assert 1.5 <= step.after <= 2.0
    stand.now += 10.0
    fault = limited(3)
    (_, step) = stand.take(fault)
    assert step == NoRoute(fault)


def test_a_fault_of_the_server_alone_is_not_tried_there_again() -> None:
    stand = Stand(["a"], retry={"attempts": 3})
    (_, step) = stand.take(BROKEN)
    assert step == NoRoute(BROKEN)


def test_attempts_end_where_the_model_says() -> None:
    stand = Stand(["a", "b", "c"], retry={"attempts": 2})
    steps = stand.take(BROKEN, BROKEN)
    assert [step.last for step in steps if isinstance(step, Attempt)] == [False, True]
    assert steps[-1] == NoRoute(BROKEN)


def test_where_everything_fails_and_the_budget_is_spent_nothing_is_held_back() -> None:
    stand = Stand(["a", "b"], {"enabled": False}, retry={"budget": 0})
    # Two failures in a row show that the other fails as well.
    assert sum(len(stand.names(BROKEN, BROKEN)) - 1 for _ in range(40)) == 2 + 30
    (step, none) = stand.take(BROKEN)
    assert isinstance(step, Attempt)
    assert step.last
    assert none == NoRoute(BROKEN)
    assert stand.model.group.budget.retries == {"500": 32}


@pytest.mark.parametrize("health", [{}, {"enabled": False}])
@pytest.mark.parametrize("fault", [BROKEN, LOST, BUSY, limited(30)])
def test_what_one_refuses_comes_to_one_that_serves_whatever_the_budget_and_health_say(
    fault: Any, health: dict[str, Any]
) -> None:
    stand = Stand(["a", "b", "c"], health, retry={"budget": 0})
    # A burst: all are on their way before the first one fails.
    plans = [stand.plan() for _ in range(300)]
    for plan in plans:
        plan.next()
    for plan in plans:
        step = plan.next(fault)
        assert isinstance(step, Attempt)
        assert step.deployment.upstream == "b"
    for plan in plans:
        plan.ended(SERVED)
    group = stand.model.group
    assert (sum(group.budget.retries.values()), group.budget.refused) == (300, 0)


def test_what_says_nothing_bad_of_a_deployment_costs_the_budget_as_before() -> None:
    stand = Stand(["a", "b"], retry={"budget": 0})
    conflict: Any = FakeFault("status", status=409)
    assert sum(len(stand.names(conflict)) - 1 for _ in range(40)) == 30


@pytest.mark.parametrize("policy", ["least_busy", "round_robin", "ordered"])
def test_who_refuses_at_once_is_left_alone_though_it_is_never_busy(policy: str) -> None:
    stand = Stand(["a", "b", "c"], policy=policy)
    held, refused = [], 0
    for _ in range(60):
        plan = stand.plan()
        step = plan.next()
        assert isinstance(step, Attempt)
        if step.deployment.upstream == "a":
            refused += 1
            plan.next(BUSY)
        held.append(plan)
        stand.now += 0.1
    # Within six seconds: at once, after a second, and after two more.
    assert 1 <= refused <= 4
    for plan in held:
        plan.ended(SERVED)


def test_a_try_elsewhere_takes_nobodys_turn() -> None:
    stand = Stand(["a", "b", "c"], {"enabled": False}, policy="round_robin")
    firsts, served = Counter[str](), Counter[str]()
    for _ in range(300):
        plan = stand.plan()
        step = plan.next()
        assert isinstance(step, Attempt)
        firsts[step.deployment.upstream] += 1
        if step.deployment.upstream == "a":
            step = plan.next(BUSY)
            assert isinstance(step, Attempt)
        served[step.deployment.upstream] += 1
        plan.ended(SERVED)
    assert firsts == {"a": 100, "b": 100, "c": 100}
    assert served == {"b": 150, "c": 150}


def test_one_that_is_too_busy_is_tried_where_there_is_nothing_else() -> None:
    stand = Stand(["a", "b"])
    assert stand.names(BUSY, BUSY) == ["a", "b"]
    assert stand.names(BUSY) == ["a", "b"], "neither has asked to be left alone"
    stand.take(BUSY, limited(30))
    assert stand.names() == ["b"], "which has not asked for that"


@pytest.mark.parametrize("health", [{}, {"enabled": False}])
@pytest.mark.parametrize(("first", "second"), [(7, 20), (20, 7)])
def test_the_shortest_wait_is_what_is_told(first: float, second: float, health: dict[str, Any]) -> None:
    stand = Stand(["a", "b"], health)
    fault = limited(second)
    told = stand.take(limited(first), fault)[-1]
    if second < first:
        assert told == NoRoute(fault), "what the upstream says itself"
    else:
        assert told == NoRoute(None, "resting", 7.0, "429")


def test_a_shorter_wait_is_told_that_another_request_was_told() -> None:
    stand = Stand(["a", "b"])
    stand.take(limited(30))
    stand.now += 23.0
    assert stand.take(limited(20))[-1] == NoRoute(None, "resting", 7.0, "429")


def test_what_was_sent_nowhere_costs_nothing() -> None:
    stand = Stand(["a", "b"], retry={"budget": 0})
    assert all(stand.names(BEYOND) == ["a", "b"] for _ in range(100))
    assert stand.model.group.budget.retries == {}


def test_a_client_that_left_in_the_pause_says_nothing_of_the_next_one() -> None:
    stand = Stand(["a", "b"])
    for _ in range(5):
        plan = stand.plan()
        plan.next()
        plan.next(BEYOND)
        plan.ended(FakeOutcome(attempts=1, fault=FakeFault("shutdown")))  # type: ignore[arg-type]
    assert all(deployment.usable(stand.now).yes for deployment in stand.model.deployments)


def test_load_comes_back_over_ten_seconds() -> None:
    stand = Stand(["a", "b"], policy="weighted")

    def share_of_a() -> float:
        drawn = Counter(name for _ in range(2000) for name in stand.names())
        return drawn["a"] / drawn.total()

    assert share_of_a() == pytest.approx(0.5, abs=0.05)
    stand.eject("a")
    assert share_of_a() == 0.0
    stand.now += 12.1
    while stand.names() != ["a"]:
        pass
    # A weight of 0.1 beside one of 1, and so on.
    for seconds, weight in ((0.0, 0.1), (10 / 3, 1 / 3), (10 / 3, 2 / 3), (4.5, 1.0)):
        stand.now += seconds
        assert share_of_a() == pytest.approx(weight / (1 + weight), abs=0.05)


def test_a_conversation_stays_where_it_was_while_load_comes_back() -> None:
    stand = Stand(["a", "b"], policy="affinity")
    (deployment, _) = stand.model.deployments
    stand.eject("a")
    stand.now += 12.1
    while stand.names() != ["a"]:
        pass
    stand.model.group.usable(stand.now)
    assert deployment.weight == pytest.approx(0.1)
    assert deployment.full_weight == 1.0


@pytest.mark.parametrize("wildcard", [False, True])
def test_a_clients_own_name_of_a_model_harms_nobody(wildcard: bool) -> None:
    config = {
        "upstreams": {"a": {"base_url": "http://127.0.0.1:1/v1"}},
        "models": {"x/*": "a/*"} if wildcard else {"x/known": "a/known"},
    }
    table = ModelTable(load_data(config), fleet=Fleet(lambda: 1000.0))
    model = table.find("x/made-up" if wildcard else "x/known")
    assert model is not None
    plan = Plan(model, Facts())
    plan.next()
    body = b'{"error":{"message":"The model does not exist.","code":"model_not_found"}}'
    plan.next(FakeFault("status", status=404, body=body))  # type: ignore[arg-type]
    assert model.deployments[0].usable(1000.0).yes is wildcard


def test_a_clients_own_account_harms_nobody() -> None:
    upstreams = {"a": {"base_url": "http://127.0.0.1:1/v1", "forward_authorization": True}}
    stand = Stand(["a"], upstreams=upstreams)
    for fault in (FakeFault("status", status=401), FakeFault("status", status=403), limited(60)):
        stand.take(fault)
    assert stand.names() == ["a"]
