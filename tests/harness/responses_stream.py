"""Whether the bytes of a Responses stream keep the protocol's promises, each on its own and together.

`check` reads a stream as a client would that trusts nothing: every event against the `openai` package's
class, every promise about order, numbers and ids, and that the deltas add up to what is said at the end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.strict_openai import missing_members, validate
from sse_reference import ServerSentEvent, parse

LIFE = ("response.queued", "response.created", "response.in_progress")
TERMINAL = ("response.completed", "response.incomplete", "response.failed")

# What may differ between the first and the last that a stream says of its response.
_CHANGES = frozenset(
    {"status", "output", "usage", "completed_at", "error", "incomplete_details", "service_tier"}
)
_TEXTS = {"output_text": "text", "refusal": "refusal", "reasoning_text": "text"}
_CALLS = {"function_call_arguments": "arguments", "custom_tool_call_input": "input"}
_CALL_ITEMS = {"function_call": "function_call_arguments", "custom_tool_call": "custom_tool_call_input"}


@dataclass
class Streamed:
    """A stream that kept its promises."""

    events: list[dict[str, Any]]
    response: dict[str, Any]
    """Of the terminal event."""

    @property
    def types(self) -> list[str]:
        return [event["type"].removeprefix("response.") for event in self.events]

    @property
    def output(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.response["output"]
        return items

    @property
    def text(self) -> str:
        return text_of(self.response)


def text_of(response: Mapping[str, Any]) -> str:
    """The text of all messages of a response."""
    return "".join(
        part["text"]
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
        if part["type"] == "output_text"
    )


def check(
    body: bytes, *, done: bool = True, validated: bool = True, complete: bool = False, cut: bool = False
) -> Streamed:
    """The stream in `body`. Raises `AssertionError` for the first promise that is broken.

    `done`: it must end with `[DONE]`. `validated`: every event is checked against its class. `complete`: its
    responses have every member that the Open Responses specification requires. `cut`: a stream that fails
    may leave items open, as OpenAI's own does.
    """
    events = parse(body)
    assert body.endswith(b"\n\n"), "the last event is not ended"
    assert b"\r" not in body, "line endings other than LF"
    if done:
        assert events, "no events"
        last = events.pop()
        assert last.data == "[DONE]", f"the stream ends with {last}"
        assert not last.name, "[DONE] is no event of the protocol, and has no name"
    stream = _Stream(validated, complete)
    for event in events:
        stream.take(event)
    return stream.ended(cut)


def same_answer(streamed: Mapping[str, Any], whole: Mapping[str, Any]) -> None:
    """Two responses, made of one upstream's text at different times, are the same but for ids and times."""
    one, other = _anonymous(streamed), _anonymous(whole)
    assert one == other, [name for name in {**one, **other} if one.get(name) != other.get(name)]


def _anonymous(value: Any) -> Any:
    if isinstance(value, Mapping):
        left_out = ("id", "created_at", "completed_at")
        return {name: _anonymous(member) for name, member in value.items() if name not in left_out}
    return [_anonymous(member) for member in value] if isinstance(value, list) else value


@dataclass
class _Part:
    kind: str
    pieces: list[str] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    annotations: list[Any] = field(default_factory=list)
    said: str | None = None
    whole: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass
class _Item:
    id: str
    index: int
    added: dict[str, Any]
    content: list[_Part] = field(default_factory=list)
    summary: list[_Part] = field(default_factory=list)
    call: _Part | None = None
    whole: dict[str, Any] | None = None

    @property
    def kind(self) -> str:
        kind: str = self.added["type"]
        return kind


class _Stream:
    def __init__(self, validated: bool, complete: bool) -> None:
        self._validated = validated
        self._complete = complete
        self._events: list[dict[str, Any]] = []
        self._items: list[_Item] = []
        self._closed = 0
        self._first: dict[str, Any] = {}
        self._terminal: dict[str, Any] | None = None
        self._failing = False

    def take(self, event: ServerSentEvent) -> None:
        payload = event.json()
        kind = payload["type"]
        assert event.name == kind, f"an event named {event.name!r} is a {kind}"
        assert self._terminal is None, f"{kind} after the terminal event"
        assert payload["sequence_number"] == len(self._events), (
            f"{kind} has number {payload['sequence_number']}, not {len(self._events)}"
        )
        if self._validated:
            validate(payload)
        assert not self._failing or kind == "response.failed", f"{kind} after an error"
        place = {name: payload[name] for name in payload if name.endswith("_index")}
        assert all(isinstance(index, int) and index >= 0 for index in place.values()), place
        if kind in LIFE or kind in TERMINAL:
            self._life(kind, payload["response"])
        elif kind == "error":
            self._failing = True
        else:
            assert "response.created" in self._types(), f"{kind} before response.created"
            self._inner(kind.removeprefix("response."), payload)
        self._events.append(payload)

    def _types(self) -> list[str]:
        return [event["type"] for event in self._events]

    def _life(self, kind: str, response: dict[str, Any]) -> None:
        seen = self._types()
        if self._complete:
            missing = missing_members(response)
            assert not missing, f"{kind} lacks {sorted(missing)}"
        if not self._first:
            assert kind in ("response.created", "response.queued"), f"the first event is {kind}"
            self._first = response
        assert response["id"] == self._first["id"], "the response's id has changed"
        status = "in_progress" if kind == "response.created" else kind.removeprefix("response.")
        # A stream has no event for `cancelled`.
        other = {"response.created": "queued", "response.incomplete": "cancelled"}.get(kind, status)
        assert response["status"] in (status, other), f"{kind} with status {response['status']}"
        if kind in TERMINAL:
            self._terminal = response
            assert "response.created" in seen, f"{kind} without response.created"
            return
        assert kind not in seen, f"{kind} twice"
        assert not self._items, f"{kind} after an item"
        assert response["output"] == [], f"{kind} with output"

    def _inner(self, kind: str, event: dict[str, Any]) -> None:
        if kind == "output_item.added":
            self._add(event)
            return
        index = event["output_index"]
        assert index < len(self._items), f"{kind} of an item that was not added"
        item = self._items[index]
        assert item.whole is None, f"{kind} of an item that is done"
        if kind == "output_item.done":
            self._close(item, event["item"])
            return
        assert event["item_id"] == item.id, f"{kind} names item {event['item_id']}, not {item.id}"
        family, _, step = kind.rpartition(".")
        if family == "content_part":
            _part_step(step, item.content, event["content_index"], event["part"])
        elif family == "reasoning_summary_part":
            _part_step(step, item.summary, event["summary_index"], event["part"])
        elif family in _TEXTS:
            part = _open(item.content, event["content_index"], kind)
            assert part.kind == family, f"{kind} in a part of type {part.kind}"
            _text_step(step, part, event, _TEXTS[family])
        elif family == "reasoning_summary_text":
            _text_step(step, _open(item.summary, event["summary_index"], kind), event, "text")
        elif family in _CALLS:
            assert _CALL_ITEMS.get(item.kind) == family, f"{kind} in an item of type {item.kind}"
            item.call = item.call or _Part(family)
            _text_step(step, item.call, event, _CALLS[family])
        elif family == "output_text.annotation":
            part = _open(item.content, event["content_index"], kind)
            assert event["annotation_index"] == len(part.annotations), "annotations are not in order"
            part.annotations.append(event["annotation"])

    def _add(self, event: dict[str, Any]) -> None:
        item, index = event["item"], event["output_index"]
        assert index == len(self._items), f"item {index} is added as number {len(self._items)}"
        assert item["id"] not in {other.id for other in self._items}, f"two items are {item['id']}"
        assert item.get("status", "in_progress") == "in_progress", f"an item begins {item['status']}"
        assert not item.get("content"), "an item begins with content"
        for member in _CALLS.values():
            assert not item.get(member), f"a call begins with {member}"
        self._items.append(_Item(item["id"], index, item))

    def _close(self, item: _Item, whole: dict[str, Any]) -> None:
        assert whole["id"] == item.id, f"item {item.id} is done as {whole['id']}"
        assert whole["type"] == item.kind, f"a {item.kind} is done as a {whole['type']}"
        # A client that replays the items in the order in which they were done must have them in theirs.
        assert item.index == self._closed, f"item {item.index} is done before item {self._closed}"
        self._closed += 1
        item.whole = whole
        for name in ("role", "call_id", "name", "phase"):
            assert whole.get(name) == item.added.get(name), f"{name} of item {item.id} has changed"
        for parts, member in ((item.content, "content"), (item.summary, "summary")):
            for part in parts:
                assert part.whole is not None, f"a {part.kind} of {item.id} is not done"
            said = [part.whole for part in parts]
            if item.kind in ("message", "reasoning"):
                assert said == (whole.get(member) or []), f"{member} of {item.id} is not what was streamed"
        if (family := _CALL_ITEMS.get(item.kind)) is not None:
            assert item.call is not None, f"{family} of {item.id} is not done"
            assert item.call.said is not None, f"{family} of {item.id} is not done"
            assert item.call.said == whole[_CALLS[family]], f"{family} of {item.id} is not what was streamed"

    def ended(self, cut: bool) -> Streamed:
        response = self._terminal
        assert response is not None, f"no terminal event; the last are {self._types()[-3:]}"
        if not (cut and response["status"] == "failed"):
            left = [item.id for item in self._items if item.whole is None]
            assert not left, f"items that were never done: {left}"
            assert response["output"] == [item.whole for item in self._items], (
                "the response's output is not what was streamed"
            )
        for name in response.keys() | self._first.keys():
            if name not in _CHANGES:
                assert response.get(name) == self._first.get(name), f"{name} has changed on the way"
        states = [item.get("status") or "completed" for item in response["output"]]
        assert set(states) <= {"completed", "incomplete"}, f"items are left {states}"
        if response["status"] == "completed":
            assert "incomplete" not in states, "a completed response has an incomplete item"
            assert response.get("error") is None, "a completed response has an error"
        assert states == sorted(states), "an incomplete item is not the last"
        if response["status"] == "incomplete":
            assert response["incomplete_details"]["reason"], "incomplete without a reason"
        if response["status"] == "failed":
            assert response["error"]["message"], "failed without an error"
        return Streamed(self._events, response)


def _open(parts: list[_Part], index: int, kind: str) -> _Part:
    assert index < len(parts), f"{kind} in a part that was not added"
    assert parts[index].whole is None, f"{kind} in a part that is done"
    return parts[index]


def _part_step(step: str, parts: list[_Part], index: int, part: dict[str, Any]) -> None:
    kind = part["type"]
    if step == "added":
        assert index == len(parts), f"part {index} is added as number {len(parts)}"
        assert all(other.whole is not None for other in parts), "a part is added while another is open"
        assert not any(part.get(member) for member in _TEXTS.values()), "a part begins with text"
        parts.append(_Part(kind))
        return
    opened = _open(parts, index, f"{kind} done")
    assert kind == opened.kind, f"a part of type {opened.kind} is done as {kind}"
    text = part["refusal"] if kind == "refusal" else part["text"]
    assert opened.said is not None, f"a {kind} is done before its text"
    assert text == opened.said, f"a {kind} says {text!r}, its text was {opened.said!r}"
    assert part.get("annotations", []) == opened.annotations, "annotations are not what was streamed"
    assert _tokens(part.get("logprobs")) == _tokens(opened.logprobs), "logprobs are not what was streamed"
    opened.whole = part


def _text_step(step: str, part: _Part, event: dict[str, Any], member: str) -> None:
    assert part.said is None, f"{event['type']} after the text was done"
    if step == "delta":
        part.pieces.append(event["delta"])
        part.logprobs += event.get("logprobs") or []
        return
    part.said = event[member]
    assert part.said == part.text, f"{event['type']} says {part.said!r}, the deltas {part.text!r}"
    if "logprobs" in event:
        assert _tokens(event["logprobs"]) == _tokens(part.logprobs), "logprobs are not what was streamed"


def _tokens(logprobs: list[Any] | None) -> list[tuple[str, float]]:
    return [(one["token"], one["logprob"]) for one in logprobs or []]
