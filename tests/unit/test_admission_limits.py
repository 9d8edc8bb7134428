"""Limits: all of them let a request in, or none counts it; and what a request did not use is given back."""

import random
from datetime import UTC
from decimal import Decimal
from typing import Any

import pytest

from sluicegate.admission import Admitted, Caller, Counters, Estimates, Excess, Keyring, Limiter, Wish
from sluicegate.admission.windows import CounterKey
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
    ) -> Admitted | Excess:
        wish = Wish(caller or self.caller, model, user, input, output)
        found: list[Any] = []
        self.limiter.admit(wish, lambda i, o: Decimal(i + o) / 1_000_000, found.append)
        [answer] = found
        assert isinstance(answer, Admitted | Excess)
        return answer

    def let_in(self, *args: Any, **kwargs: Any) -> Admitted:
        found = self.ask(*args, **kwargs)
        assert isinstance(found, Admitted), found
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


def test_an_input_that_nobody_has_told_counts_as_nothing_as_in_the_ledger() -> None:
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


def test_a_failure_without_output_counts_as_nothing() -> None:
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
    spent = Decimal(0)
    while isinstance(found := stand.ask(), Admitted):
        found.ended(10, 290, "0.0003", failed=False)
        spent += Decimal("0.0003")
    assert spent == Decimal("0.0012")
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
    found: list[Any] = []
    for caller in (*callers, callers[0]):
        limiter.admit(Wish(caller, "m", None, 1, 1), lambda *_: None, found.append)
    assert [type(each) for each in found] == [Admitted, Admitted, Excess]


def test_keys_of_one_caller_share_its_limits_and_have_their_own() -> None:
    more = {
        "limits": {"standard": {"requests": "3/minute"}, "one": {"requests": "1/minute"}},
        "callers": [{"name": "a", "limits": "standard"}],
        "keys": [{"name": "a", "key": "sk-1", "limits": "one"}, {"name": "a", "key": "sk-2"}],
    }
    config = configured({}, **more)
    limiter = Limiter(config, Counters(UTC), Estimates())
    first, second = (caller for _, caller in Keyring(config)._callers.values())
    found: list[Any] = []
    for caller in (first, first, second, second, second):
        limiter.admit(Wish(caller, "m", None, 1, 1), lambda *_: None, found.append)
    assert [type(each) for each in found] == [Admitted, Excess, Admitted, Admitted, Excess]


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


def test_the_longest_idle_user_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluicegate.admission.counters.MOST_USERS", 3)
    counters = Counters(UTC)
    requests = CounterKey("user", "requests", "", "minute")
    under_way = CounterKey("user", "concurrent", "", "")
    counters.user_window("busy", under_way).add(1)
    first = counters.user_window("a", requests)
    counters.user_window("b", requests)
    counters.user_window("c", requests)
    assert counters.user_window("a", requests) is not first
    assert counters.user_window("busy", under_way).used == 1


def test_output_is_learnt_from_what_the_caller_used() -> None:
    estimates = Estimates()
    assert estimates.output("a", "m", None) == 1024
    assert estimates.output("a", "m", 100) == 100
    for _ in range(50):
        estimates.learn("a", "m", 100, 130, 40)
    assert estimates.output("a", "m", None) == 80
    assert estimates.output("b", "m", None) == 80
    assert 115 < estimates.input("m", 100) <= 130


@pytest.mark.parametrize("seed", range(6))
def test_counters_equal_a_plain_reference(seed: int) -> None:
    """Requests are let in, refused, ended and lost in any order: what is used is the sum of what is held and
    what was really used.
    """
    chance = random.Random(seed)
    stand = Stand({"requests": "80/day", "tokens": "9000/day", "concurrent": 6})
    running: list[tuple[Admitted, int]] = []
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
            if isinstance(found, Admitted):
                reserved = found.demand.input + found.demand.output
                running.append((found, reserved))
                requests, tokens = requests + 1, tokens + reserved
        used = {key.resource: window.used for key, window in stand.counters._windows.items()}
        assert used == {"requests": requests, "tokens": tokens, "concurrent": len(running)}
