"""Limits: all of them let a request in, or none counts it; and what a request did not use is given back."""

import random
from datetime import UTC
from typing import Any

import pytest

from harness.holding import held
from sluicegate._core import Clock, Estimates, Excess, Lease, Limit, Limits, Window
from sluicegate.admission import Caller, CounterKey, Counters, Keyring, Limiter
from sluicegate.config import Config, load_data

KEY = {"name": "search", "key": "sk-1"}


def configured(standard: dict[str, Any], **more: Any) -> Config:
    data = {
        "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1"}},
        "models": {"m": "local", "n": "local"},
        "limits": {"standard": standard},
        "keys": [KEY | {"limits": "standard"}],
    }
    return load_data(data | more, {})


class Stand:
    """One limiter with one caller. A token costs a millionth of a USD."""

    def __init__(self, standard: dict[str, Any], **more: Any) -> None:
        self.config = configured(standard, **more)
        self.counters = Counters(UTC)
        self.estimates = Estimates()
        self.limiter = Limiter(self.config, self.counters, self.estimates)
        [self.caller] = [caller for _, caller in Keyring(self.config)._callers.values()]

    def reload(self, standard: dict[str, Any]) -> None:
        config = configured(standard)
        self.limiter = Limiter(config, self.counters, self.estimates)
        [self.caller] = [caller for _, caller in Keyring(config)._callers.values()]

    def ask(
        self,
        input: int = 10,
        output: int | None = 10,
        *,
        model: str = "m",
        user: str | None = None,
        caller: Caller | None = None,
    ) -> Lease | Excess:
        return held(self.limiter, caller or self.caller, input, output, model=model, user=user)

    def let_in(self, *args: Any, **kwargs: Any) -> Lease:
        found = self.ask(*args, **kwargs)
        assert isinstance(found, Lease), found
        return found

    def refused(self, *args: Any, **kwargs: Any) -> Excess:
        found = self.ask(*args, **kwargs)
        assert isinstance(found, Excess)
        return found


def test_requests_are_counted() -> None:
    stand = Stand({"requests": "3/minute"})
    for _ in range(3):
        stand.let_in().ended(10, 10, None, failed=False)
    excess = stand.refused()
    assert excess.limit.resource == "requests"
    assert 0 < excess.wait <= 65
    assert not excess.never


def test_requests_at_once_all_count_before_any_has_ended() -> None:
    stand = Stand({"tokens": "100/minute"})
    stand.let_in(40, 10)
    stand.let_in(40, 10)
    assert stand.refused(40, 10).limit.resource == "tokens"


def test_what_was_not_used_is_given_back() -> None:
    stand = Stand({"tokens": "1000/minute"})
    stand.let_in(10, 900).ended(10, 5, None, failed=False)
    stand.let_in(10, 900)


def test_what_was_used_beyond_the_estimate_counts() -> None:
    stand = Stand({"tokens": "1000/minute"})
    stand.let_in(10, 10).ended(500, 490, None, failed=False)
    assert stand.refused(100, 10).used == 990


def test_what_is_not_known_counts_as_nothing_as_in_the_ledger() -> None:
    stand = Stand({"tokens": "1000/minute"})
    stand.let_in(500, 10).ended(None, 7, None, failed=False)
    assert stand.refused(994, 1).used == 7


def test_a_guess_of_the_output_refuses_nobody_who_is_alone() -> None:
    stand = Stand({"tokens": "500/minute"})
    # Nothing is known of the model, and the client has no bound: 1,024 tokens are assumed.
    stand.let_in(10, None)


def test_an_input_above_the_limit_is_refused_for_good() -> None:
    excess = Stand({"tokens": "100/minute"}).refused(101, 1)
    assert excess.never


def test_a_refusal_counts_nothing() -> None:
    stand = Stand({"requests": "5/minute", "concurrent": 1})
    running = stand.let_in()
    for _ in range(20):
        assert stand.refused().limit.resource == "concurrent"
    running.ended(1, 1, None, failed=False)
    for _ in range(4):
        stand.let_in().ended(1, 1, None, failed=False)
    assert stand.refused().limit.resource == "requests"


def test_a_failure_without_output_counts_as_no_request() -> None:
    stand = Stand({"requests": "1/minute", "tokens": "100/minute"})
    for _ in range(5):
        stand.let_in().ended(None, None, None, failed=True)
    stand.let_in().ended(10, 3, None, failed=True)
    stand.refused()


def test_a_request_whose_end_is_unknown_counts_as_estimated_and_frees_its_place() -> None:
    stand = Stand({"tokens": "100/minute", "concurrent": 1})
    stand.let_in(30, 20).release()
    stand.let_in(30, 20).release()
    assert stand.refused(1, 1).limit.resource == "tokens"


def test_a_budget_is_never_passed_by_more_than_one_request_in_sequence() -> None:
    stand = Stand({"cost": "0.001/day"})
    spent = 0
    while isinstance(found := stand.ask(), Lease):
        found.ended(10, 290, 3 * 10**8, failed=False)
        spent += 3 * 10**8
    assert spent == 12 * 10**8
    assert isinstance(found, Excess)
    assert found.limit.resource == "cost"


def test_requests_at_once_reserve_what_they_would_cost() -> None:
    stand = Stand({"cost": "0.00005/day"})
    stand.let_in(10, 10)
    stand.let_in(10, 10)
    # The last one takes what is left, and no budget cuts a stream.
    stand.let_in(10, 10)
    stand.refused(10, 10)


def test_a_model_has_a_limit_of_its_own() -> None:
    stand = Stand({"requests": "10/minute", "models": {"m": {"requests": "1/minute"}}})
    stand.let_in()
    assert "`m`" in stand.refused().limit.name
    stand.let_in(model="n")


def test_what_was_used_outlives_a_change_of_the_limit() -> None:
    stand = Stand({"requests": "2/minute"})
    stand.let_in()
    stand.let_in()
    stand.reload({"requests": "3/minute"})
    stand.let_in()
    stand.refused()


def test_a_team_shares_its_limits() -> None:
    more = {
        "teams": {"discovery": {"limits": "standard"}},
        "callers": [{"name": "a", "team": "discovery"}, {"name": "b", "team": "discovery"}],
        "keys": [{"name": "a", "key": "sk-1"}, {"name": "b", "key": "sk-2"}],
    }
    config = configured({"requests": "2/minute"}, **more)
    limiter = Limiter(config, Counters(UTC), Estimates())
    callers = [caller for _, caller in Keyring(config)._callers.values()]
    found = [held(limiter, caller, 1, 1) for caller in (*callers, callers[0])]
    assert [type(each) for each in found] == [Lease, Lease, Excess]


def test_keys_of_one_caller_share_its_limits_and_have_their_own() -> None:
    more = {
        "limits": {"standard": {"requests": "3/minute"}, "one": {"requests": "1/minute"}},
        "callers": [{"name": "a", "limits": "standard"}],
        "keys": [{"name": "a", "key": "sk-1", "limits": "one"}, {"name": "a", "key": "sk-2"}],
    }
    config = configured({}, **more)
    limiter = Limiter(config, Counters(UTC), Estimates())
    first, second = (caller for _, caller in Keyring(config)._callers.values())
    found = [held(limiter, caller, 1, 1) for caller in (first, first, second, second, second)]
    assert [type(each) for each in found] == [Lease, Excess, Lease, Lease, Excess]


def test_users_are_told_apart_within_a_caller() -> None:
    more = {
        "limits": {"standard": {"requests": "100/minute"}, "person": {"requests": "1/minute"}},
        "users": {"header": "x-user-id", "limits": "person"},
    }
    stand = Stand({}, **more)
    stand.let_in(user="ada")
    stand.refused(user="ada")
    stand.let_in(user="bob")
    other = Caller("other", "id:other", limits=stand.caller.limits)
    stand.let_in(user="ada", caller=other)


REQUESTS = CounterKey("user", "requests", "", "minute")


def test_the_longest_idle_user_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluicegate.admission.users.MOST_USERS", 2)
    counters = Counters(UTC)

    def used(name: str) -> int:
        return counters.user_window("search", name, REQUESTS._replace(subject=name)).used

    for name in ("a", "b", "c"):
        counters.user_window("search", name, REQUESTS._replace(subject=name)).add(1)
        used("a")
        counters.keep("search", name)
    assert [used(name) for name in ("a", "b", "c")] == [1, 0, 1]


def test_no_caller_takes_the_room_of_anothers_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluicegate.admission.users.MOST_USERS", 10)
    counters = Counters(UTC)
    kept = {}
    for name in ("ada", "bob", "eve"):
        kept[name] = counters.user("search", name)
        counters.keep("search", name)
    for number in range(100):
        counters.user("hostile", str(number))
        counters.keep("hostile", str(number))
    assert {name: counters.user("search", name) for name in kept} == kept
    assert sum(len(room.kept) for room in counters._users._rooms.values()) == 10
    # Whoever comes later gets its share from the one that has most.
    for number in range(5):
        counters.user("late", str(number))
        counters.keep("late", str(number))
    sizes = {owner: len(room.kept) for owner, room in counters._users._rooms.items()}
    assert sizes["search"] == 3
    assert sorted((sizes["hostile"], sizes["late"])) == [3, 4]


def test_a_refusal_costs_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluicegate.admission.users.MOST_USERS", 3)
    monkeypatch.setattr("sluicegate.admission.users.MOST_TRIED", 2)
    more = {
        "limits": {"standard": {"requests": "3/minute"}, "person": {"requests": "1/minute"}},
        "users": {"header": "x-user-id", "limits": "person"},
    }
    stand = Stand({}, **more)
    for user in ("ada", "bob", "eve"):
        stand.let_in(user=user).ended(1, 1, None, failed=False)
    for number in range(50):
        stand.refused(user=str(number))
    other = Caller("other", "id:other", limits=stand.caller.limits)
    [room] = stand.counters._users._rooms.values()
    assert (len(room.kept), len(room.tried)) == (3, 2)
    stand.refused(user="ada", caller=other)
    for kept in room.kept.values():
        assert [window.used for window in kept.windows.values()] == [1]


def test_a_users_limits_are_bound_once_and_go_with_its_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluicegate.admission.users.MOST_USERS", 1)
    monkeypatch.setattr("sluicegate.admission.users.MOST_TRIED", 1)
    more = {
        "limits": {"standard": {}, "person": {"requests": "1/minute", "concurrent": 5}},
        "users": {"header": "x-user-id", "limits": "person"},
    }
    stand = Stand({}, **more)
    limits = stand.limiter.limits(stand.caller, "m", "ada")
    assert stand.limiter.limits(stand.caller, "m", "ada") is limits
    assert stand.limiter.limits(stand.caller, "n", "ada") is not limits
    running = stand.let_in(user="ada")
    # Whoever has a request under way is not forgotten; afterwards nothing is left of either.
    stand.let_in(user="bob").unused()
    stand.refused(user="ada")
    running.ended(1, 1, None, failed=False)
    del running, limits
    for user in ("carl", "dora"):
        stand.let_in(user=user).unused()
    stand.let_in(user="ada")
    # Another configuration binds its own.
    limits = stand.limiter.limits(stand.caller, "m", "ada")
    other = Limiter(stand.config, stand.counters, stand.estimates)
    assert other.limits(stand.caller, "m", "ada") is not limits
    assert isinstance(held(other, stand.caller, 1, 1, user="ada"), Excess)


def test_output_is_learnt_from_what_the_caller_used() -> None:
    stand = Stand({"tokens": "1M/minute"})

    def reserved() -> int:
        lease = stand.let_in(100, None)
        lease.unused()
        return lease.demand.of(next(iter(lease.limits)))

    assert reserved() == 100 + 1024
    for _ in range(50):
        stand.let_in(100, None).ended(130, 40, None, failed=False)
    assert 115 + 80 < reserved() <= 130 + 80


def test_no_caller_is_locked_out_by_what_an_upstream_made_up() -> None:
    stand = Stand({"tokens": "1000/minute"})
    lying, honest = 100_000_000, 300
    limits = stand.limiter.limits(stand.caller, "m", None)
    for _ in range(200):
        demand = limits.demand(honest, 10)
        assert demand is not None
        limits.take(demand).ended(lying, 10, None, failed=False)
    assert stand.refused(honest, 10).used > lying

    # Another minute: nothing is used any more, and only what was learnt is larger than the limit.
    fresh = Limiter(stand.config, Counters(UTC), stand.estimates)
    answers = [held(fresh, stand.caller, honest, 10, model="m") for _ in range(2)]
    first, last = answers[0], answers[-1]
    assert isinstance(first, Excess)
    assert first.never
    assert isinstance(last, Lease)
    # It is this caller's alone.
    other = Caller("other", owner="id:other", limits=stand.caller.limits)
    again = Limiter(stand.config, Counters(UTC), stand.estimates)
    assert isinstance(held(again, other, honest, 10, model="m"), Lease)


def test_an_estimated_input_is_charged_and_teaches_nothing() -> None:
    stand = Stand({"tokens": "1000/minute"})
    lease = stand.let_in(100, 10)
    assert lease.estimate_input(400) == 400
    lease.ended(400, 0, None, failed=True, estimated_input=True)
    assert stand.refused(600, 10).used == 400
    for _ in range(100):
        lease = stand.let_in(1, 1)
        lease.estimate_input(100)
        lease.ended(0, 0, None, failed=False, estimated_input=True)
    assert stand.let_in(1, 1).estimate_input(100) == 100


def test_a_limit_may_go_by_the_clients_own_bound() -> None:
    stand = Stand({"tokens": "1M/minute", "reserve": "maximum"})
    lease = stand.let_in(100, 50_000)
    assert [lease.demand.of(limit) for limit in lease.limits] == [50_100]


def test_what_limits_are_made_of_is_checked() -> None:
    clock = Clock(lambda unit, wall: (0, wall + 1))
    with pytest.raises(ValueError, match="no window"):
        Window(clock, "year")  # type: ignore[arg-type]
    window = Window(clock, "minute")
    with pytest.raises(ValueError, match="not limited"):
        Limit("streams", 1, window, None, "")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="finite"):
        clock.hear(float("nan"))
    limits = Limits([], clock, Estimates(), caller="", model="")
    demand = limits.demand(1, 1)
    assert demand is not None
    with pytest.raises(ValueError, match="no limit refuses"):
        limits.refused(demand, [(3, 1)])
    lease = limits.take(demand)
    assert lease.headers("anthropic") == []
    with pytest.raises(ValueError, match="openai or anthropic"):
        lease.headers("other")  # type: ignore[arg-type]


def test_what_says_when_days_end_may_fail() -> None:
    def broken(unit: str, wall: float) -> tuple[int, float]:
        raise RuntimeError("no such time zone")

    window = Window(Clock(broken), "day")
    with pytest.raises(RuntimeError, match="no such time zone"):
        window.add(1)


@pytest.mark.parametrize("seed", range(6))
def test_counters_equal_a_plain_reference(seed: int) -> None:
    """Requests are let in, refused, ended and lost in any order: what is used is the sum of what is held and
    what was really used.
    """
    chance = random.Random(seed)
    stand = Stand({"requests": "80/day", "tokens": "9000/day", "concurrent": 6})
    running: list[tuple[Lease, int]] = []
    requests = tokens = 0
    for _ in range(600):
        if running and chance.random() < 0.45:
            admitted, reserved = running.pop(chance.randrange(len(running)))
            requests, tokens = requests - 1, tokens - reserved
            match chance.choice(["ok", "ok", "failed", "lost"]):
                case "ok":
                    input, output = chance.randint(1, 60), chance.randint(0, 90)
                    admitted.ended(input, output, None, failed=False)
                    requests, tokens = requests + 1, tokens + input + output
                case "failed":
                    admitted.ended(None, None, None, failed=True)
                case _:
                    admitted.release()
                    requests, tokens = requests + 1, tokens + reserved
            # A second end changes nothing.
            admitted.ended(999, 999, None, failed=False)
        else:
            found = stand.ask(chance.randint(1, 50), chance.randint(1, 50))
            if isinstance(found, Lease):
                [reserved] = [amount for limit, _, amount in found.held if limit.resource == "tokens"]
                running.append((found, reserved))
                requests, tokens = requests + 1, tokens + reserved
        used = {key.resource: window.used for key, window in stand.counters._windows.items()}
        assert used == {"requests": requests, "tokens": tokens, "concurrent": len(running)}
