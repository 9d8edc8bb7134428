"""How much has been used: within the last minute or hour, since a day began, or at this moment.

A sliding window never admits more than its limit, whatever the moment it is looked at: it counts in twelve
slices and the one in progress, and a slice counts whole for as long as any of it lies within the window. So
room comes back up to one twelfth of the window late, and never early. A calendar window is what a report of
that day, week or month adds up.
"""

import time
from collections.abc import Mapping
from datetime import date, datetime, timedelta, tzinfo
from typing import Literal, NamedTuple, Protocol

Resource = Literal["requests", "tokens", "cost", "concurrent"]
Unit = Literal["minute", "hour", "day", "week", "month"]
Calendar = Literal["day", "week", "month"]

_SLICES = 12
_KEPT = _SLICES + 1
_SECONDS = {"minute": 60.0, "hour": 3600.0}

SLIDING = frozenset(_SECONDS)


class CounterKey(NamedTuple):
    """What is counted. It names no limit and no amount: what was used outlives a change of either."""

    subject: str
    """`caller:`, `key:`, `team:` or `user:`, and an id."""
    resource: Resource
    model: str
    """Empty: of all models."""
    window: Unit | Literal[""]
    """Empty: what is under way."""


class Moment:
    """The present, looked at once for all windows of a request."""

    __slots__ = ("monotonic", "wall")

    def __init__(self, monotonic: float, wall: float) -> None:
        self.monotonic = monotonic
        """Seconds, of a clock that is never set."""
        self.wall = wall
        """Seconds since 1970, UTC."""

    @classmethod
    def now(cls) -> "Moment":
        return cls(time.monotonic(), time.time())


class Window(Protocol):
    """One count. For the thread that owns it."""

    used: int
    """As of the last `advance`."""

    def advance(self, clock: Moment) -> None:
        """Forget what no longer counts."""

    def add(self, amount: int) -> int:
        """Count `amount` now; gives the place for `correct`."""

    def correct(self, place: int, amount: int) -> int:
        """What was counted at `place` was really `amount` more, or less. Gives the place of that."""

    def recall(self, at: float, clock: Moment) -> int | None:
        """The place of what was counted at the time `at` by another process; None where it counts no more."""

    def raise_to(self, place: int, amount: int) -> None:
        """At least `amount` is counted at `place`, which `recall` gave."""

    def wait(self, amount: int, limit: int, clock: Moment) -> float:
        """Seconds until `amount` more would be within `limit`, if nothing else came; the window's length
        where no time helps.
        """

    def reset(self, clock: Moment) -> float:
        """Seconds until nothing of what is counted by now counts."""


class SlidingWindow:
    """What was used within the last minute or hour."""

    __slots__ = ("_amounts", "_number", "_slice", "used")

    def __init__(self, unit: str) -> None:
        self._slice = _SECONDS[unit] / _SLICES
        self._amounts = [0] * _KEPT
        self._number = 0
        self.used = 0

    def advance(self, clock: Moment) -> None:
        number = int(clock.monotonic / self._slice)
        behind = number - self._number
        if behind <= 0:
            return
        amounts = self._amounts
        if behind >= _KEPT:
            amounts[:] = [0] * _KEPT
            self.used = 0
        else:
            for place in range(self._number + 1, number + 1):
                self.used -= amounts[place % _KEPT]
                amounts[place % _KEPT] = 0
        self._number = number

    def add(self, amount: int) -> int:
        self._amounts[self._number % _KEPT] += amount
        self.used += amount
        return self._number

    def correct(self, place: int, amount: int) -> int:
        if amount > 0:
            # A debt counts from now on, or a long reply would be forgotten as soon as it has ended.
            return self.add(amount)
        if self._number - place < _KEPT:
            self._amounts[place % _KEPT] += amount
            self.used += amount
        return place

    def recall(self, at: float, clock: Moment) -> int | None:
        place = min(int((clock.monotonic - (clock.wall - at)) / self._slice), self._number)
        return place if self._number - place < _KEPT else None

    def raise_to(self, place: int, amount: int) -> None:
        more = amount - self._amounts[place % _KEPT]
        if more > 0:
            self._amounts[place % _KEPT] += more
            self.used += more

    @property
    def seconds(self) -> float:
        """How long a slice is."""
        return self._slice

    def load(self, number: int, amounts: Mapping[int, int]) -> None:
        """These slices are all that counts, and the one with this number is in progress."""
        self._number = number
        self._amounts = [0] * _KEPT
        for place, amount in amounts.items():
            if 0 <= number - place < _KEPT:
                self._amounts[place % _KEPT] = amount
        self.used = sum(self._amounts)

    def wait(self, amount: int, limit: int, clock: Moment) -> float:
        left = self.used
        for place in range(self._number - _SLICES, self._number + 1):
            left -= self._amounts[place % _KEPT]
            if left + amount <= limit:
                return self._gone(place, clock)
        return self._gone(self._number, clock)

    def reset(self, clock: Moment) -> float:
        for place in range(self._number, self._number - _KEPT, -1):
            if self._amounts[place % _KEPT]:
                return self._gone(place, clock)
        return 0.0

    def _gone(self, place: int, clock: Moment) -> float:
        return max(0.0, (place + _KEPT) * self._slice - clock.monotonic)


class CalendarWindow:
    """What was used since the day, the week (a Monday) or the month began, in the ledger's time zone.

    A clock that is set back begins no window again.
    """

    __slots__ = ("_unit", "_zone", "began", "ends", "used")

    def __init__(self, unit: Calendar, zone: tzinfo) -> None:
        self._unit = unit
        self._zone = zone
        self.began = 0
        """Seconds since 1970, UTC; before the first `advance`, 0."""
        self.ends = 0.0
        self.used = 0

    def advance(self, clock: Moment) -> None:
        if clock.wall < self.ends:
            return
        self.began, self.ends = bounds(self._unit, self._zone, clock.wall)
        self.used = 0

    def add(self, amount: int) -> int:
        self.used += amount
        return self.began

    def correct(self, place: int, amount: int) -> int:
        # A request belongs to the window in which it was admitted.
        if place == self.began:
            self.used += amount
        return place

    def load(self, began: int, used: int) -> None:
        """So much is used of the window that began then."""
        if began == self.began:
            self.used = used

    def recall(self, at: float, clock: Moment) -> int | None:
        return self.began

    def raise_to(self, place: int, amount: int) -> None:
        if place == self.began:
            self.used = max(self.used, amount)

    def wait(self, amount: int, limit: int, clock: Moment) -> float:
        return self.reset(clock)

    def reset(self, clock: Moment) -> float:
        return max(0.0, self.ends - clock.wall)


class InProgress:
    """How many are under way."""

    __slots__ = ("used",)

    def __init__(self) -> None:
        self.used = 0

    def advance(self, clock: Moment) -> None:
        pass

    def add(self, amount: int) -> int:
        self.used += amount
        return 0

    def correct(self, place: int, amount: int) -> int:
        self.used += amount
        return place

    def recall(self, at: float, clock: Moment) -> int | None:
        return None

    def raise_to(self, place: int, amount: int) -> None:
        pass

    def wait(self, amount: int, limit: int, clock: Moment) -> float:
        return 1.0

    def reset(self, clock: Moment) -> float:
        return 0.0


def bounds(unit: Calendar, zone: tzinfo, wall: float) -> tuple[int, float]:
    """When the calendar window around `wall` began and when it ends: seconds since 1970, UTC."""
    local = datetime.fromtimestamp(wall, zone)
    begin = datetime(local.year, local.month, local.day, tzinfo=zone)
    if unit == "week":
        begin = _days_on(begin, -begin.weekday(), zone)
    elif unit == "month":
        begin = begin.replace(day=1)
    if unit == "month":
        ends = _days_on(begin, 31, zone).replace(day=1)
    else:
        ends = _days_on(begin, 1 if unit == "day" else 7, zone)
    return int(begin.timestamp()), ends.timestamp()


def _days_on(day: datetime, days: int, zone: tzinfo) -> datetime:
    # Of the calendar, not of 24 hours: a day on which clocks are changed is longer or shorter.
    moved = day.replace(tzinfo=None) + timedelta(days=days)
    return moved.replace(tzinfo=zone)


def begins(zone: tzinfo, wall: float) -> dict[Calendar, date]:
    """The days on which the calendar windows around `wall` began."""
    units: tuple[Calendar, ...] = ("day", "week", "month")
    return {unit: datetime.fromtimestamp(bounds(unit, zone, wall)[0], zone).date() for unit in units}


def window_for(unit: Unit, zone: tzinfo) -> Window:
    """An empty window."""
    if unit == "minute" or unit == "hour":
        return SlidingWindow(unit)
    return CalendarWindow(unit, zone)
