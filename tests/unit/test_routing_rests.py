"""How long one is left alone that is too busy, and does not say for how long; and what a reload ends."""

import pytest

from fakes.health import BAD, GOOD, Stand, busy
from sluicegate.config import HealthConfig
from sluicegate.routing.health import State


@pytest.fixture
def stand() -> Stand:
    return Stand()


def test_who_is_busy_and_does_not_say_for_how_long_rests_for_a_second_doubling(stand: Stand) -> None:
    rested = []
    for _ in range(6):
        assert stand.may()
        stand.end(busy(), 3)
        usable = stand.one.usable(stand.now)
        assert usable.why is State.RESTING
        assert not stand.one.asks_for_rest(stand.now)
        rested.append(usable.until - stand.now)
        stand.now = usable.until
        assert stand.state() is State.HALF_OPEN
    assert rested == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert stand.notes.changes == [("up/one", State.RESTING, "429", seconds) for seconds in rested]
    assert stand.one.rest_reason == "429"


def test_one_request_finds_out_whether_one_that_rested_is_back(stand: Stand) -> None:
    stand.end(busy())
    stand.now += 1.0
    trial = stand.one.begin(stand.now)
    assert not stand.may()
    stand.one.ended(GOOD, stand.now, trial)
    assert stand.may()
    assert stand.one.weight(stand.now) == 1.0


def test_a_rest_is_halved_by_being_served_and_by_each_half_minute_of_that(stand: Stand) -> None:
    def rest() -> float:
        stand.end(busy())
        seconds = stand.one.usable(stand.now).until - stand.now
        stand.now += seconds
        return seconds

    assert [rest() for _ in range(5)] == [1.0, 2.0, 4.0, 8.0, 10.0]
    stand.end(GOOD)
    assert rest() == 5.0
    stand.end(GOOD)
    stand.now += 31.0
    assert rest() == 1.25
    stand.end(GOOD)
    stand.now += 3600.0
    assert rest() == 1.0


def test_being_tried_before_its_time_makes_a_rest_no_longer(stand: Stand) -> None:
    stand.end(busy())
    stand.now += 0.5
    stand.end(busy(), 3)
    assert stand.one.usable(stand.now).until == 1001.0
    stand.end(GOOD)
    assert stand.may()


def test_a_reload_that_switches_it_off_ends_what_is_left_alone(stand: Stand) -> None:
    stand.end(busy(60.0), of=stand.two)
    stand.end(BAD, 5)
    assert not stand.may()
    assert not stand.may(stand.two)
    for breaker in (stand.one.own, stand.two.own, stand.reach):
        breaker.adopt(HealthConfig(enabled=False))
    assert stand.state() is stand.state(stand.two) is State.USABLE
    assert stand.may()
    assert stand.may(stand.two)


def test_what_waits_no_time_at_all_is_asked_on_where_health_is_off() -> None:
    stand = Stand(HealthConfig(enabled=False))
    stand.end(busy(), 19)
    assert stand.state() is State.USABLE
    assert not stand.notes.changes
