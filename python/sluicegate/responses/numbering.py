"""From the frames of a reply to the events that are kept: split, numbered, with the response's own id.

Numbers are given here, whatever the frames say: kept events count 0, 1, 2 … without a gap, over those that
the gateway itself puts before an upstream's and over a second attempt.
"""

import contextlib
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sluicegate._core import SSESplitter
from sluicegate.responses.entry import Status
from sluicegate.responses.members import member, replace, spans

# How this gateway, OpenAI and vLLM write an event: what needs no more than its number changed.
_PLAIN = re.compile(
    rb"(?:event: ?[^\r\n]*\r?\n)?data: ?"
    rb'\{"type": ?"(?P<type>[a-z_.]+)", ?"sequence_number": ?(?P<number>-?\d+)(?=[,}])'
)

# These the gateway has sent already, before there was an upstream.
_BEGINNING = frozenset({"response.created", "response.queued", "response.in_progress"})
_ENDING: dict[str, Status] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}
_ITEMS = {"response.output_item.added": 1, "response.output_item.done": -1}
_STATES = _BEGINNING | _ENDING.keys() | {"error"}


@dataclass(frozen=True, slots=True)
class Ending:
    """The event that ended a response. `response` is the object in it, JSON."""

    status: Status
    response: str


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive events, as they are sent."""

    first: int
    last: int
    data: bytes


class Numbering:
    """Takes a reply's bytes, gives runs of numbered events.

    `own` are the members of the Response object that are the gateway's and not the upstream's (`id` …), as
    JSON. None: a client has seen these very events, so nothing but a number that is wrong or missing is
    changed, and the first events are not ours.
    """

    def __init__(
        self, following: int, own: dict[str, str] | None, *, max_event_bytes: int | None = None
    ) -> None:
        self.following = following
        """The number of the next event."""
        self.ending: Ending | None = None
        self.error: dict[str, Any] | None = None
        """Of an `error` event, which is held back until the end that must follow it, or of `broken`."""
        self.broken = False
        """It has failed with items that nobody closed: that end is not in a run."""
        self._held: str | None = None
        self._open = 0
        self._own = own
        self._splitter = SSESplitter(max_event_bytes=max_event_bytes)

    def feed(self, data: bytes) -> Run | None:
        """The events that `data` completes. Raises `EventTooLarge`."""
        return self._run(self._splitter.feed(data))

    def finish(self) -> Run | None:
        """The event that the reply ended in. Raises `EventTooLarge`."""
        rest = self._splitter.finish()
        return self._run([rest]) if rest else None

    def _run(self, events: list[bytes]) -> Run | None:
        first = self.following
        frames: list[bytes] = []
        for event in events:
            if self.ending is None and not self.broken:
                frames += self._frames(event)
        return Run(first, self.following - 1, b"".join(frames)) if frames else None

    def _frames(self, event: bytes) -> Sequence[bytes]:
        plain = _PLAIN.match(event)
        if plain is None:
            return self._rebuilt(event)
        kind = plain["type"].decode()
        if kind in _STATES or kind in _ITEMS or not event.endswith(b"}\n\n"):
            return self._rebuilt(event)
        number = b"%d" % self._number()
        if plain["number"] == number:
            return (event,)
        start, end = plain.span("number")
        return (event[:start] + number + event[end:],)

    def _number(self) -> int:
        number, self.following = self.following, self.following + 1
        return number

    def _rebuilt(self, event: bytes) -> Sequence[bytes]:
        """Any way of writing an event, and those in which more than the number changes."""
        text = _data(event)
        if not text.startswith("{"):
            return ()  # A comment, or `[DONE]`.
        try:
            found, _ = spans(text)
            kind = json.loads(_slice(text, found, "type"))
        except ValueError:
            return ()
        if not isinstance(kind, str):
            return ()
        if kind in _ENDING:
            return self._end(kind, text, _slice(text, found, "response"))
        if self._own is not None:
            if kind in _BEGINNING:
                return ()
            if kind == "error":
                self.error = error_of(json.loads(text))
                self._held = text
                return ()
        self._open += _ITEMS.get(kind, 0)
        return (self._numbered(kind, text),)

    def _numbered(self, kind: str, text: str, **values: str) -> bytes:
        return frame(kind, replace(text, {"sequence_number": str(self._number()), **values}))

    def _end(self, kind: str, text: str, response: str) -> Sequence[bytes]:
        status = _ENDING[kind]
        if self._own is None:
            self.ending = Ending(status, response)
            return (self._numbered(kind, text),)
        if self._open > 0 and kind == "response.failed":
            # Whoever made this knew only that the upstream was gone: its items must still be closed.
            with contextlib.suppress(ValueError):
                self.error = error_of({"error": json.loads(member(response, "error") or "null")})
            self.broken = True
            return ()
        held = () if self._held is None else (self._numbered("error", self._held),)
        response = _ended(status, response, self._own)
        self.ending = Ending(status, response)
        return (*held, self._numbered(kind, text, response=response))


def _ended(status: Status, response: str, own: dict[str, str]) -> str:
    try:
        response = replace(response, own)
    except ValueError:
        response = replace("{}", own)
    changed = {}
    if member(response, "status") != f'"{status}"':
        changed["status"] = f'"{status}"'
    if status == "completed" and (member(response, "completed_at") or "null") == "null":
        changed["completed_at"] = str(int(time.time()))
    return replace(response, changed) if changed else response


def _slice(text: str, found: dict[str, tuple[int, int]], name: str) -> str:
    span = found.get(name)
    return "null" if span is None else text[span[0] : span[1]]


def frame(kind: str, data: str) -> bytes:
    """An event as it is sent. `data`: JSON."""
    # Only between members can JSON have line ends.
    return f"event: {kind}\ndata: {' '.join(data.splitlines())}\n\n".encode()


def _data(event: bytes) -> str:
    lines = []
    for line in re.split(rb"\r\n|\n|\r", event):
        if line.startswith(b"data:"):
            value = line[5:]
            lines.append(value[1:] if value.startswith(b" ") else value)
    return b"\n".join(lines).decode("utf-8", "replace").strip()


def split(data: bytes) -> list[bytes]:
    """The events of a run, each with its blank line."""
    splitter = SSESplitter()
    events = splitter.feed(data)
    rest = splitter.finish()
    return [*events, rest] if rest else events


def tail(run: Run, after: int) -> bytes:
    """The events of `run` with a number greater than `after`."""
    if after < run.first:
        return run.data
    return b"".join(split(run.data)[after + 1 - run.first :])


def payloads(data: bytes) -> list[dict[str, Any]]:
    """The objects of the events of a run."""
    return [json.loads(_data(event)) for event in split(data)]


def error_of(event: dict[str, Any]) -> dict[str, Any]:
    """`code` and `message` of an `error` event or an error body, in OpenAI's servers' form or flat."""
    nested = event.get("error")
    said = nested if isinstance(nested, dict) else event
    code, message = said.get("code"), said.get("message")
    return {
        "code": code if isinstance(code, str) and code else "server_error",
        "message": message if isinstance(message, str) and message else "The upstream reported an error.",
    }
