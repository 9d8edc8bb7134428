"""When days, weeks and months begin and end, and windows that go by it; the rest is tested in Rust."""

from datetime import UTC, datetime
from functools import partial
from zoneinfo import ZoneInfo

import pytest

from sluicegate._core import Clock, Window
from sluicegate.admission.windows import Calendar, bounds

START = datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp()


class Held:
    """A clock that stands still, and what it has asked for."""

    def __init__(self) -> None:
        self.asked: list[Calendar] = []
        self.clock = Clock(self._bounds)
        self.at(0)

    def at(self, seconds: float) -> None:
        self.clock.hold(1000.0 + seconds, START + seconds)

    def _bounds(self, unit: Calendar, wall: float) -> tuple[int, float]:
        self.asked.append(unit)
        return bounds(UTC, unit, wall)


def test_what_was_used_leaves_a_minute_after_the_minute() -> None:
    held = Held()
    window = Window(held.clock, "minute")
    window.add(7)
    held.at(59.9)
    assert (window.used, round(window.reset, 3)) == (7, 5.1)
    held.at(65.1)
    assert (window.used, window.reset) == (0, 0)


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
    unit: Calendar, zone: str, moment: str, begins: str, ends: str
) -> None:
    wall = datetime.fromisoformat(moment).timestamp()
    found = bounds(ZoneInfo(zone), unit, wall)
    assert found == (datetime.fromisoformat(begins).timestamp(), datetime.fromisoformat(ends).timestamp())


def test_a_day_is_asked_for_once() -> None:
    held = Held()
    window, other = Window(held.clock, "day"), Window(held.clock, "month")
    assert held.asked == []
    window.add(10)
    other.add(20)
    assert window.span == bounds(UTC, "day", START)
    assert held.asked == ["day", "week", "month"]
    held.at(12 * 3600)
    assert (window.used, other.used) == (0, 20)
    # The 22nd is a Sunday.
    assert held.asked[3:] == ["day", "week"]


def test_a_clock_that_is_set_back_begins_no_day_again() -> None:
    held = Held()
    window = Window(held.clock, "day")
    window.add(10)
    held.at(-24 * 3600)
    assert window.used == 10


def test_the_ledger_raises_a_window_and_never_lowers_it() -> None:
    held = Held()
    window = Window(held.clock, "day")
    place = window.recall(START)
    assert place is not None
    window.raise_to(place, 50)
    window.raise_to(place, 20)
    window.raise_to(place - 86400, 99)
    assert window.used == 50


def test_a_servers_clock_is_everybodys() -> None:
    clock = Clock(partial(bounds, UTC))
    window = Window(clock, "day")
    clock.hear(START + 5 * 86400)
    assert window.span == bounds(UTC, "day", START + 5 * 86400)
