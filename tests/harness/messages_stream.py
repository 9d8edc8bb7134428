"""Whether the bytes of a Messages stream keep the protocol's promises, and the message that they add up to.

The grammar is that of Anthropic's documentation, and of what its own stream was recorded to be:

    message_start (content [])                            once, first
      for each block, index 0, 1, 2 … in order, one at a time:
        content_block_start, content_block_delta*, content_block_stop
    message_delta+ (stop_reason, usage), message_stop     ping anywhere; error in the place of the rest

The message is put together as Anthropic's SDKs do it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from anthropic.types import Message, RawMessageStreamEvent

from harness.strict_openai import COST, conforms
from sse_reference import ServerSentEvent, parse

STOP_REASONS = frozenset(
    {
        "end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal",
        "model_context_window_exceeded",
    }
)  # fmt: skip
ERROR_TYPES = frozenset(
    {
        "invalid_request_error", "authentication_error", "billing_error", "permission_error",
        "not_found_error", "conflict_error", "request_too_large", "rate_limit_error", "api_error",
        "timeout_error", "overloaded_error",
    }
)  # fmt: skip
# What is said of a block's deltas: its member, and the delta's. A block of another type has none.
_TEXTS = {
    ("text", "text_delta"): "text",
    ("thinking", "thinking_delta"): "thinking",
}
_EXTRA = {
    "Usage": COST,
    "MessageDeltaUsage": COST | {"cache_creation", "iterations", "output_tokens_details"},
}


@dataclass
class StreamedMessage:
    """A stream that kept its promises."""

    names: list[str] = field(default_factory=list)
    """Of all events, pings left out."""
    message: dict[str, Any] = field(default_factory=dict)
    """As far as it came. `usage` is what the last event said, over what those before it said."""
    first_usage: dict[str, Any] = field(default_factory=dict)
    """Of `message_start`."""
    error: dict[str, Any] | None = None
    """The `error` of the event that ended the stream; else the message is whole."""


def check(body: bytes, *, validated: bool = True) -> StreamedMessage:
    """The stream in `body`. Raises `AssertionError` for the first promise that is broken.

    `validated`: each event is checked against its class in the `anthropic` package.
    """
    assert body.endswith(b"\n\n"), "the last event is not ended"
    assert b"\r" not in body, "line endings other than LF"
    stream = _Stream(validated)
    for event in parse(body):
        stream.take(event)
    found = stream.found
    if found.error is None:
        assert stream.stopped, f"no message_stop; the last are {found.names[-3:]}"
        check_message(found.message, validated=validated)
    return found


def check_message(message: Mapping[str, Any], *, validated: bool = True) -> None:
    """Whether a whole message is one. Raises `AssertionError`."""
    if validated:
        conforms(Message, message, extra=_EXTRA)
    assert message["id"], "a message without id"
    assert message["type"] == "message"
    assert message["role"] == "assistant"
    assert message["stop_reason"] in STOP_REASONS, f"stop_reason {message['stop_reason']}"
    has_calls = any(block["type"] == "tool_use" for block in message["content"])
    if message["stop_reason"] in ("tool_use", "end_turn"):
        assert has_calls == (message["stop_reason"] == "tool_use"), "calls and stop_reason do not agree"
    for block in message["content"]:
        assert block["type"] != "text" or block["text"], "an empty text block"
        assert block["type"] != "tool_use" or isinstance(block["input"], dict), "input is no object"
    for name in ("input_tokens", "output_tokens"):
        assert isinstance(message["usage"][name], int), f"usage has no {name}"


def check_error(document: Mapping[str, Any]) -> dict[str, Any]:
    """The `error` of an error body or event. Raises `AssertionError`."""
    assert document["type"] == "error", document
    assert set(document) <= {"type", "error", "request_id"}, f"members {sorted(document)}"
    error: dict[str, Any] = document["error"]
    assert set(error) == {"type", "message"}, f"members {sorted(error)}"
    assert error["type"] in ERROR_TYPES, f"an error of type {error['type']}"
    assert error["message"], "an error without message"
    return error


class _Stream:
    def __init__(self, validated: bool) -> None:
        self.found = StreamedMessage()
        self.stopped = False
        self._validated = validated
        self._open: int | None = None
        self._arguments = ""
        self._signed = False
        self._over = False

    def take(self, event: ServerSentEvent) -> None:
        payload = event.json()
        kind = payload["type"]
        assert event.name == kind, f"an event named {event.name!r} is a {kind}"
        if kind == "ping":
            return
        found = self.found
        assert found.error is None, f"{kind} behind an error"
        assert not self.stopped, f"{kind} behind message_stop"
        found.names.append(kind)
        if kind == "error":
            found.error = check_error(payload)
            return
        if self._validated:
            conforms(_events()[kind], payload, extra=_EXTRA)
        assert (kind == "message_start") == (len(found.names) == 1), f"{kind} as event {len(found.names)}"
        match kind:
            case "message_start":
                self._begin(payload["message"])
            case "content_block_start":
                self._open_block(payload["index"], payload["content_block"])
            case "content_block_delta":
                self._block(payload["index"], kind)
                self._add(found.message["content"][-1], payload["delta"])
            case "content_block_stop":
                self._block(payload["index"], kind)
                self._close_block(found.message["content"][-1])
            case "message_delta":
                assert self._open is None, "message_delta while a block is open"
                self._over = True
                found.message |= payload["delta"]
                found.message["usage"] |= payload["usage"]
            case "message_stop":
                assert self._over, "message_stop without message_delta"
                self.stopped = True

    def _begin(self, message: dict[str, Any]) -> None:
        assert message["content"] == [], "a message begins with content"
        assert message["stop_reason"] is None, "a message begins with a stop_reason"
        for name in ("input_tokens", "output_tokens"):
            assert isinstance(message["usage"][name], int), f"message_start has no {name}"
        self.found.first_usage = dict(message["usage"])
        self.found.message = message

    def _open_block(self, index: int, block: dict[str, Any]) -> None:
        content = self.found.message["content"]
        assert self._open is None, f"block {index} begins while block {self._open} is open"
        assert not self._over, "a block behind message_delta"
        assert index == len(content), f"block {index} begins as number {len(content)}"
        for name in ("text", "thinking", "signature"):
            assert not block.get(name), f"a block begins with {name}"
        assert block.get("input", {}) == {}, "a block begins with input"
        self._open, self._arguments, self._signed = index, "", False
        content.append(block)

    def _block(self, index: int, kind: str) -> None:
        assert index == self._open, f"{kind} for block {index}, open is {self._open}"

    def _add(self, block: dict[str, Any], delta: Mapping[str, Any]) -> None:
        match block["type"], delta["type"]:
            case "tool_use", "input_json_delta":
                self._arguments += delta["partial_json"]
            case "thinking", "signature_delta":
                assert not self._signed, "two signatures"
                self._signed = True
                block["signature"] = delta["signature"]
            case "text", "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
            case pair:
                assert pair in _TEXTS, f"a {pair[1]} in a block of type {pair[0]}"
                assert not self._signed, "thinking behind its signature"
                block[_TEXTS[pair]] += delta[_TEXTS[pair]]

    def _close_block(self, block: dict[str, Any]) -> None:
        self._open = None
        if block["type"] == "tool_use":
            block["input"] = json.loads(self._arguments) if self._arguments else {}
        if block["type"] == "thinking":
            assert self._signed, "thinking without signature"


def _events() -> dict[str, Any]:
    union, *_ = get_args(RawMessageStreamEvent)
    return {name: one for one in get_args(union) for name in get_args(one.model_fields["type"].annotation)}
