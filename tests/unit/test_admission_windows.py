"""What counts within a window, beside a plain reference that remembers each request."""

import random
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from sluicegate.admission.windows import CalendarWindow, Moment, SlidingWindow, bounds

START = datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp()


def at(seconds: float) -> Moment:
    return Moment(1000.0 + seconds, START + seconds)


def test_what_was_used_leaves_a_minute_after_the_minute_and_at_most_a_twelfth_late() -> None:
    window = SlidingWindow("minute")
    window.advance(at(3))
    window.add(7)
    window.advance(at(62.9))
    assert window.used == 7
    window.advance(at(68.1))
    assert window.used == 0


@pytest.mark.parametrize("seed", range(8))
def test_no_minute_ever_has_more_than_its_limit(seed: int) -> None:
    chance = random.Random(seed)
    window, limit, now = SlidingWindow("minute"), 40, 0.0
    admitted: list[tuple[float, int]] = []
    refused_though_free = 0
    for _ in range(3000):
        now += chance.choice([0.0, 0.01, 0.3, 2.0, 7.0, 61.0])
        amount = chance.randint(1, 9)
        window.advance(at(now))
        within = sum(size for when, size in admitted if now - when < 60)
        late = sum(size for when, size in admitted if now - when < 65)
        if window.used + amount <= limit:
            assert within + amount <= limit
            window.add(amount)
            admitted.append((now, amount))
        else:
            # The slice in which the oldest of them lies counts whole.
            assert late + amount > limit
            refused_though_free += within + amount <= limit
    assert admitted
    assert refused_though_free


@pytest.mark.parametrize("seed", range(8))
def test_what_is_settled_is_what_was_used(seed: int) -> None:
    """Reserved, and settled later, in any order: after that nothing is left of what was reserved too much."""
    chance = random.Random(seed)
    window, now = SlidingWindow("minute"), 0.0
    running: list[tuple[int, int]] = []
    for _ in range(2000):
        now += chance.choice([0.0, 0.5, 3.0, 30.0])
        window.advance(at(now))
        if running and chance.random() < 0.5:
            place, reserved = running.pop(chance.randrange(len(running)))
            window.correct(place, chance.randint(0, 20) - reserved)
        else:
            running.append((window.add(10), 10))
        assert window.used >= 0
        assert window.used == sum(window._amounts)
    window.advance(at(now + 66))
    assert window.used == 0


def test_a_debt_counts_from_when_it_is_known() -> None:
    window = SlidingWindow("minute")
    window.advance(at(0))
    place = window.add(10)
    window.advance(at(50))
    window.correct(place, 90)
    window.advance(at(100))
    assert window.used == 90


def test_the_wait_is_until_there_is_room() -> None:
    window = SlidingWindow("minute")
    for second in range(0, 50, 10):
        window.advance(at(second))
        window.add(10)
    moment = at(50)
    window.advance(moment)
    wait = window.wait(10, 50, moment)
    after = at(50 + wait + 0.001)
    window.advance(at(50 + wait - 0.1))
    assert window.used + 10 > 50
    window.advance(after)
    assert window.used + 10 <= 50


@pytest.mark.parametrize(
    ("unit", "zone", "moment", "begins", "ends"),
    [
        ("day", "UTC", "2026-11-22T23:59:59+00:00", "2026-11-22T00:00:00+00:00", "2026-11-23T00:00:00+00:00"),
        (
            "week",
            "UTC",
            "2026-11-22T12:00:00+00:00",
            "2026-11-16T00:00:00+00:00",
            "2026-11-23T00:00:00+00:00",
        ),
        (
            "month",
            "UTC",
            "2026-12-31T12:00:00+00:00",
            "2026-12-01T00:00:00+00:00",
            "2027-01-01T00:00:00+00:00",
        ),
        # The day on which clocks go forward has 23 hours, and that on which they go back has 25.
        (
            "day",
            "Europe/Berlin",
            "2026-03-29T12:00:00+02:00",
            "2026-03-29T00:00:00+01:00",
            "2026-03-30T00:00:00+02:00",
        ),
        (
            "day",
            "Europe/Berlin",
            "2026-10-25T12:00:00+01:00",
            "2026-10-25T00:00:00+02:00",
            "2026-10-26T00:00:00+01:00",
        ),
    ],
)
def test_calendar_windows_are_those_of_the_time_zone(
    unit: str, zone: str, moment: str, begins: str, ends: str
) -> None:
    wall = datetime.fromisoformat(moment).timestamp()
    found = bounds(unit, ZoneInfo(zone), wall)  # type: ignore[arg-type]
    assert found == (datetime.fromisoformat(begins).timestamp(), datetime.fromisoformat(ends).timestamp())


def test_a_request_belongs_to_the_day_in_which_it_was_admitted() -> None:
    window = CalendarWindow("day", UTC)
    window.advance(at(0))
    place = window.add(10)
    window.advance(at(13 * 3600))
    assert window.used == 0
    window.correct(place, 5)
    assert window.used == 0


def test_a_clock_that_is_set_back_begins_no_day_again() -> None:
    window = CalendarWindow("day", UTC)
    window.advance(at(0))
    window.add(10)
    window.advance(at(-24 * 3600))
    assert window.used == 10


def test_the_ledger_raises_a_window_and_never_lowers_it() -> None:
    window = CalendarWindow("day", UTC)
    window.advance(at(0))
    place = window.recall(START, at(0))
    assert place is not None
    window.raise_to(place, 50)
    window.raise_to(place, 20)
    window.raise_to(place - 86400, 99)
    assert window.used == 50
