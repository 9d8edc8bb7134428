"""A window that is made holds what was used before it was made, as the ledger has it."""

import time
from collections.abc import Callable, Collection
from datetime import UTC
from typing import Any

import pytest

from harness.holding import hold
from sluicegate._core import Estimates, Excess, Lease
from sluicegate.admission import (
    Answer,
    CounterKey,
    Counters,
    Keyring,
    Later,
    Limiter,
    Recalled,
    SharedCounters,
    used_by,
)
from sluicegate.admission.windows import user_subject
from sluicegate.config import load_data
from sluicegate.ledger.spent import Spent

KEY = {"name": "search", "key": "sk-1", "limits": "standard"}


class Book:
    """A ledger that answers when a test says so."""

    def __init__(self, *spent: Spent) -> None:
        self.spent = spent
        self.asked: list[tuple[set[CounterKey], float, Callable[[Recalled | None], None]]] = []

    def ask(
        self, keys: Collection[CounterKey], after: float, then: Callable[[Recalled | None], None]
    ) -> None:
        self.asked.append(({*keys}, after, then))

    def answer(self) -> None:
        keys, _, then = self.asked.pop(0)
        models = {key.model for key in keys}
        found: dict[tuple[CounterKey, float], int] = {}
        for each in self.spent:
            for key, amount in used_by(each, models):
                if key in keys:
                    found[key, each.at] = found.get((key, each.at), 0) + amount
        then(found)

    def fail(self) -> None:
        self.asked.pop(0)[2](None)


def spent(window: Any, at: float = 0.0, *, user: str = "", model: str = "m", requests: int = 1) -> Spent:
    key = "" if user and window != "lately" else "k"
    return Spent(window, at, OWNER, key, "", user, model, requests, 10 * requests, 10**6)


class Stand:
    def __init__(
        self, book: Book, standard: dict[str, Any], counters: Counters | None = None, **more: Any
    ) -> None:
        data = {
            "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1"}},
            "models": {"m": "local", "n": "local", "gpt-*": "local"},
            "limits": {"standard": standard, "person": {"requests": "2/day"}},
            "keys": [KEY],
        }
        self.config = load_data(data | more, {})
        self.counters = counters or Counters(UTC)
        self.counters.seeding.ask = book.ask
        self.limiter = Limiter(self.config, self.counters, Estimates())
        [self.caller] = [caller for _, caller in Keyring(self.config)._callers.values()]

    def ask(self, model: str = "m", user: str | None = None) -> list[Answer]:
        answers: list[Answer] = []
        answer = hold(self.limiter, self.caller, 5, 5, model=model, user=user)
        if isinstance(answer, Later):
            answer.then(answers.append)
        else:
            answers.append(answer)
        return answers


OWNER = Stand(Book(), {}).caller.owner


def ended(answers: list[Answer]) -> None:
    [answer] = answers
    assert isinstance(answer, Lease)
    answer.ended(5, 5, None, failed=False)


def test_a_request_waits_until_the_ledger_says_what_was_used() -> None:
    book = Book(spent("day", requests=3))
    stand = Stand(book, {"requests": "4/day", "concurrent": 5})
    first, second = stand.ask(), stand.ask()
    assert first == second == []
    [(keys, after, _)] = book.asked
    assert ({key.resource for key in keys}, after) == ({"requests"}, 0.0)
    book.answer()
    assert isinstance(first[0], Lease)
    assert isinstance(second[0], Excess)
    assert second[0].used == 4
    # From then on nobody waits.
    assert isinstance(stand.ask()[0], Excess)
    assert not book.asked


def test_windows_that_slide_have_what_was_used_lately() -> None:
    now = time.time()
    book = Book(spent("lately", now - 20, requests=2), spent("lately", now - 20), spent("lately", now - 3000))
    stand = Stand(book, {"requests": ["100/hour", "90/minute"]})
    answers = stand.ask()
    book.answer()
    [lease] = answers
    assert isinstance(lease, Lease)
    assert {limit.key.window: limit.window.used for limit in lease.limits} == {"minute": 4, "hour": 5}


def test_a_limit_that_is_added_later_knows_what_was_used() -> None:
    book = Book(spent("day", requests=7), spent("month", requests=90))
    before = Stand(book, {"requests": "50/day"})
    first = before.ask()
    book.answer()
    ended(first)
    after = Stand(book, {"requests": ["50/day", "91/month"]}, before.counters)
    answers = after.ask()
    assert [key.window for key in book.asked[0][0]] == ["month"]
    book.answer()
    assert isinstance(answers[0], Lease)
    assert isinstance(after.ask()[0], Excess)


def test_while_the_ledger_is_away_nobody_waits_twice_and_it_is_asked_again() -> None:
    book = Book(spent("day", requests=3))
    stand = Stand(book, {"requests": "4/day"})
    first = stand.ask()
    book.fail()
    ended(first)
    ended(stand.ask())
    [(_, after, _)] = book.asked
    assert after > 0
    book.fail()
    ended(stand.ask())
    # What was used before, and what of this process's requests has been shipped.
    book.spent = (spent("day", requests=3 + 3),)
    book.answer()
    assert isinstance(stand.ask()[0], Excess)
    assert not book.asked


def test_what_a_user_has_used_outlives_its_windows_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluicegate.admission.users.MOST_USERS", 1)
    book = Book()
    stand = Stand(book, {}, users={"header": "x-user-id", "limits": "person"})

    def ask(user: str) -> Answer:
        answers = stand.ask(user=user)
        if not answers:
            book.answer()
        return answers[0]

    for _ in range(2):
        ended([ask("ada")])
    ended([ask("bob")])
    book.spent = (spent("day", user="ada", requests=2),)
    assert isinstance(ask("ada"), Excess)
    ended([ask("bob")])


def test_a_user_who_has_to_go_while_the_ledger_is_asked_is_held_against_what_it_says() -> None:
    book = Book(spent("day", user="ann", requests=2, model=""))
    stand = Stand(book, {"requests": "100000/day"}, users={"header": "x-user", "limits": "person"})
    stand.ask()
    book.answer()
    stand.ask(user="first")  # Its question is on its way.
    answers = stand.ask(user="ann")
    for number in range(1_000):
        stand.ask(user=f"other {number}")
    while book.asked:
        book.answer()
    again = stand.ask(user="ann")
    while book.asked:
        book.answer()
    assert [type(answer) for answer in answers + again] == [Excess, Excess]


def test_people_of_two_callers_are_never_one() -> None:
    assert user_subject("id:a", "b:x") != user_subject("id:a:b", "x")


def test_what_was_used_of_a_model_counts_for_all_limits_that_hold_for_it() -> None:
    book = Book(spent("day", model="gpt-4", requests=3), spent("day", model="m", requests=50))
    models = {
        "gpt-*": {"requests": "10/day"},
        "gpt-4": {"requests": "8/day"},
        "small": {"requests": "60/day"},
    }
    stand = Stand(book, {"models": models}, aliases={"small": "m"})
    used = {}
    for model, name in (("gpt-*", "gpt-4"), ("gpt-*", "gpt-5"), ("m", "m")):
        limits = stand.limiter.limits(stand.caller, model, None, name)
        stand.counters.when_seeded(limits, lambda: None)
        while book.asked:
            book.answer()
        used[name] = {limit.key.model: limit.window.used for limit in limits}
    assert used == {"gpt-4": {"gpt-4": 3, "gpt-*": 3}, "gpt-5": {"gpt-*": 3}, "m": {"m": 50}}


def test_where_the_server_of_counters_is_lost_from_the_start_the_ledger_is_asked() -> None:
    book = Book(spent("day", requests=4))
    counters = SharedCounters(UTC, "local")
    counters.lost = True
    stand = Stand(book, {"requests": "4/day"}, counters)
    answers = stand.ask()
    assert answers == []
    book.answer()
    assert isinstance(answers[0], Excess)


def test_who_is_refused_anyway_asks_the_ledger_nothing() -> None:
    """Any number of made-up users of a caller without anything left: none of them has others wait."""
    book = Book()
    stand = Stand(book, {"requests": "1/day"}, users={"header": "x-user", "limits": "person"})
    first = stand.ask()
    book.answer()
    assert isinstance(first[0], Lease)
    for number in range(50):
        assert isinstance(stand.ask(user=f"made-up-{number}")[0], Excess)
    assert not book.asked


def test_windows_of_each_owner_are_asked_for_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluicegate.admission.seeding.MOST_AT_ONCE", 4)
    book = Book()
    busy = Stand(book, {}, users={"header": "x-user", "limits": "person"})
    other = Stand(book, {"requests": "3/day"}, busy.counters, keys=[{**KEY, "name": "other", "key": "sk-2"}])
    waiting = [busy.ask(user=f"u{number}") for number in range(10)]
    late = other.ask()
    book.answer()
    assert [len(answers) for answers in waiting] == [1] + [0] * 9
    [(keys, _, _)] = book.asked
    assert "caller" in {key.subject.partition(":")[0] for key in keys}
    assert len(keys) == 4
    book.answer()
    assert isinstance(late[0], Lease)
    while book.asked:
        book.answer()
    assert all(isinstance(answers[0], Lease) for answers in waiting)
