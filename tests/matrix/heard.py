"""What a client makes of a reply, in its own API's words."""

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Heard:
    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    """Id, name, arguments as `spelled` reads them."""
    stop: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    first_usage: dict[str, Any] = field(default_factory=dict)
    """What a stream of Messages says of it at its beginning."""
    error: dict[str, Any] | None = None
    """The `error` object, where the reply ended so; nothing else counts then but the text so far."""
    turn: Any = None
    """What the client gives back of this reply in its next request."""


class Twice(ValueError):
    """A JSON object has two members of one name."""


def read_json(text: bytes | str) -> Any:
    """Raises `Twice` where an object names a member twice."""
    return json.loads(text, object_pairs_hook=_once)


def spelled(arguments: str) -> Any:
    """Arguments to be compared: the order of members and the spelling of numbers count."""
    return json.loads(arguments, parse_float=str, object_pairs_hook=lambda pairs: ("object", *pairs))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise Twice(f"two members of one name: {[name for name, _ in pairs]}")
    return members


def same(what: str, found: object, expected: object) -> None:
    """Raises AssertionError, which says both, where they differ."""
    if found != expected:
        raise AssertionError(f"{what}: {found!r}, not {expected!r}")
