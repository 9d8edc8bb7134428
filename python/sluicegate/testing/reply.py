"""A reply before it becomes bytes: one document, or events."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

# A fixed time, so that replies are the same every time: 2026-01-01T00:00:00Z.
CREATED = 1_767_225_600


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `data`: a JSON value, or a string that is sent as it stands (`[DONE]`).

    `name` is the SSE `event` field. `kind` tells what may be waited for before it: a token, or what ends the
    stream. A `field` event has no `data` line: the field of that name stands in its place.
    """

    data: Mapping[str, Any] | str
    name: str | None = None
    kind: Literal["preamble", "token", "end"] = "preamble"
    field: str = "data"


@dataclass(frozen=True, slots=True)
class Stream:
    """All events, `[DONE]` included. `ndjson`: written as lines of JSON."""

    events: tuple[Event, ...]
    ndjson: bool = False

    def dressed(self, extra: Mapping[str, Any], first: Mapping[str, Any]) -> "Stream":
        """With members added to each event, and to the first."""
        if not extra and not first:
            return self
        members = [{**extra, **first}] + [dict(extra)] * len(self.events)
        return replace(
            self,
            events=tuple(
                event if isinstance(event.data, str) else replace(event, data={**event.data, **added})
                for event, added in zip(self.events, members, strict=False)
            ),
        )


@dataclass(frozen=True, slots=True)
class Document:
    value: Mapping[str, Any]
    status: int = 200

    def dressed(self, extra: Mapping[str, Any], first: Mapping[str, Any]) -> "Document":
        """With members added."""
        return replace(self, value={**self.value, **extra, **first})


@dataclass(frozen=True, slots=True)
class Bytes:
    """A body of any other form, one piece a write: audio, subtitles."""

    content_type: str
    pieces: tuple[bytes, ...]

    def dressed(self, extra: Mapping[str, Any], first: Mapping[str, Any]) -> "Bytes":
        """Itself: it has no members."""
        return self
