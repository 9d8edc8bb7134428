"""How long an upstream asks to be left alone, by the headers of its reply."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MOST = 300.0
"""Seconds; who asks for more gets this."""

# Longer than any date or duration.
_LONGEST = 64
_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")
_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# Some state when, in seconds since 1970, and not for how long.
_EPOCH = 1_000_000_000.0


def seconds_stated(headers: Iterable[tuple[bytes, bytes]], wall: float) -> float | None:
    """Seconds from now, between 0 and `MOST`; None where nothing is stated. `wall`: the time of day.

    `retry-after-ms` goes before `retry-after` (RFC 9110, section 10.2.3: seconds or a date), and that before
    the resets of what has nothing remaining: `x-ratelimit-{remaining,reset}-*` as OpenAI has them (`6m0s`),
    and `anthropic-ratelimit-*-{remaining,reset}` (RFC 3339).
    """
    given = {
        name.decode("latin-1").lower(): value.decode("latin-1").strip()
        for name, value in headers
        if len(value) <= _LONGEST
    }
    milliseconds = _number(given.get("retry-after-ms", ""))
    if milliseconds is not None:
        return _bounded(milliseconds / 1000)
    after = given.get("retry-after", "")
    seconds = _number(after)
    if seconds is None:
        seconds = _until_date(after, wall)
    if seconds is None:
        seconds = max(_resets(given, wall), default=None)
    return None if seconds is None else _bounded(seconds)


def _resets(given: dict[str, str], wall: float) -> Iterable[float]:
    for name, value in given.items():
        if "ratelimit" not in name or "remaining" not in name or _number(value) != 0:
            continue
        reset = given.get(name.replace("remaining", "reset"), "")
        seconds = _number(reset)
        if seconds is not None and seconds >= _EPOCH:
            seconds -= wall
        for read in (_duration(reset), _until_instant(reset, wall)):
            seconds = read if seconds is None else seconds
        if seconds is not None:
            yield seconds


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), MOST)


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _duration(text: str) -> float | None:
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _until_date(text: str, wall: float) -> float | None:
    try:
        date = parsedate_to_datetime(text)
        # A date without a zone is in GMT (RFC 9110, section 5.6.7).
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - wall
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


def _until_instant(text: str, wall: float) -> float | None:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return instant.timestamp() - wall if instant.tzinfo else None
