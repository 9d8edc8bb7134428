"""The headers that tell a client how much is left."""

from collections.abc import Sequence
from datetime import UTC, datetime

from sluicegate.admission.limits import Limit
from sluicegate.admission.windows import Moment, Resource

Header = tuple[bytes, bytes]


def openai(limits: Sequence[Limit], clock: Moment) -> list[Header]:
    """`x-ratelimit-{limit,remaining,reset}-{requests,tokens}` (OpenAI's documentation, "Rate limits"), each
    of the limit with the least left.
    """
    found: list[Header] = []
    for resource in ("requests", "tokens"):
        least = _least(limits, resource)
        if least is not None:
            limit, left = least
            found += [
                (b"x-ratelimit-limit-%s" % resource.encode(), b"%d" % limit.amount),
                (b"x-ratelimit-remaining-%s" % resource.encode(), b"%d" % left),
                (b"x-ratelimit-reset-%s" % resource.encode(), _span(limit.window.reset(clock)).encode()),
            ]
    return found


def anthropic(limits: Sequence[Limit], clock: Moment) -> list[Header]:
    """`anthropic-ratelimit-{requests,tokens}-{limit,remaining,reset}` (Anthropic's documentation, "Rate
    limits").
    """
    found: list[Header] = []
    for resource in ("requests", "tokens"):
        least = _least(limits, resource)
        if least is not None:
            limit, left = least
            resets = datetime.fromtimestamp(clock.wall + limit.window.reset(clock), UTC)
            name = b"anthropic-ratelimit-%s-" % resource.encode()
            found += [
                (name + b"limit", b"%d" % limit.amount),
                (name + b"remaining", b"%d" % left),
                (name + b"reset", f"{resets:%Y-%m-%dT%H:%M:%SZ}".encode()),
            ]
    return found


def _least(limits: Sequence[Limit], resource: Resource | str) -> tuple[Limit, int] | None:
    least: tuple[Limit, int] | None = None
    for limit in limits:
        if limit.resource == resource:
            left = max(0, limit.amount - limit.window.used)
            if least is None or left < least[1]:
                least = limit, left
    return least


def _span(seconds: float) -> str:
    """As OpenAI writes it: `120ms`, `7s`, `6m0s`, `23h59m8s`."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
