"""What is counted, and when the windows of a calendar begin and end. `_core.Window` counts."""

from datetime import date, datetime, timedelta, tzinfo
from typing import Literal, NamedTuple

Resource = Literal["requests", "tokens", "cost", "concurrent"]
Unit = Literal["minute", "hour", "day", "week", "month"]
Calendar = Literal["day", "week", "month"]


class CounterKey(NamedTuple):
    """What is counted. It names no limit and no amount: what was used outlives a change of either."""

    subject: str
    """`caller:`, `key:`, `team:` or `user:`, and an id."""
    resource: Resource
    model: str
    """Empty: of all models."""
    window: Unit | Literal[""]
    """Empty: what is under way."""


def user_subject(owner: str, user: str) -> str:
    """The subject of one of the people behind a caller. Either may have colons."""
    return f"user:{len(owner)}:{owner}:{user}"


def owner_and_user(id: str) -> tuple[str, str]:
    """Of whom a subject is: `id` is what follows `user:`."""
    length, _, names = id.partition(":")
    return names[: int(length)], names[int(length) + 1 :]


def owner_of(subject: str) -> str:
    """Who made up this subject: the owner of a user, or else itself."""
    kind, _, id = subject.partition(":")
    return owner_and_user(id)[0] if kind == "user" else subject


def bounds(zone: tzinfo, unit: Calendar, wall: float) -> tuple[int, float]:
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
    return {unit: datetime.fromtimestamp(bounds(zone, unit, wall)[0], zone).date() for unit in units}
