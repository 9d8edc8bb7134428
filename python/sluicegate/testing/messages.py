"""Replies of Anthropic's `/messages`: the message, and its events."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sluicegate.testing.chat import finish_reason
from sluicegate.testing.counts import count, messages_usage
from sluicegate.testing.messages_dialects import messages_traits
from sluicegate.testing.question import Question
from sluicegate.testing.reply import Document, Event, Stream
from sluicegate.testing.script import Script
from sluicegate.testing.speech import Call, speech

_STOP_REASONS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}

_KNOWN = frozenset({*_STOP_REASONS.values(), "stop_sequence", "pause_turn"})


def count_tokens_reply(script: Script, question: Question) -> Document:
    return Document({"input_tokens": script.usage.input_tokens})


def models_page(names: Sequence[str]) -> Document:
    """`GET /v1/models`, as Anthropic's API answers it."""
    data = [model_entry(name) for name in names]
    ends = {"first_id": names[0], "last_id": names[-1]} if names else {"first_id": None, "last_id": None}
    return Document({"data": data, "has_more": False, **ends})


def model_entry(name: str) -> dict[str, Any]:
    return {"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"}


def refused_block(script: Script, question: Question) -> str | None:
    """The type of a block in the request that the script's dialect does not take."""
    refused = messages_traits(script.dialect).refused_blocks
    messages = question.body.get("messages")
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, Mapping) else None
        for block in content if isinstance(content, list) else ():
            if isinstance(block, Mapping) and block.get("type") in refused:
                return str(block["type"])
    return None


def messages_reply(script: Script, question: Question, *, stream: bool) -> Stream | Document:
    message = _Message(script, question)
    if stream:
        return Stream(tuple(message.events()))
    return Document(message.whole())


class _Message:
    def __init__(self, script: Script, question: Question) -> None:
        self.script = script
        self.question = question
        self.said = speech(script, question, 0)
        self.traits = messages_traits(script.dialect)
        self.usage = messages_usage(script, count(script, [self.said]))
        reason = finish_reason(script, self.said)
        self.stop_reason = _STOP_REASONS.get(reason, reason) if reason is not None else None
        if self.said.refusal and self.stop_reason == "end_turn":
            self.stop_reason = "refusal"
        if self.stop_reason == "refusal":
            self.stop_reason = self.traits.filtered
        elif self.traits.unknown_stop == "null" and self.stop_reason not in _KNOWN:
            self.stop_reason = None

    def whole(self) -> dict[str, Any]:
        message = self._message([block for block, _ in self._blocks()], self.stop_reason)
        if self.script.usage.placement != "none":
            message["usage"] = self.usage
        return message

    def _message(self, content: list[dict[str, Any]], stop_reason: str | None) -> dict[str, Any]:
        return {
            "id": self.script.reply_id or self.question.made_id("msg_"),
            "type": "message",
            "role": "assistant",
            "model": self.script.model or self.question.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
        }

    def _blocks(self) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """Whole content blocks, each with the deltas that it is made from."""
        said = self.said
        blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
        if said.reasoning:
            deltas = [{"type": "thinking_delta", "thinking": word} for word in said.reasoning]
            thinking = {"type": "thinking", "thinking": "".join(said.reasoning)}
            signature = self._signature()
            if signature is not None:
                deltas.append({"type": "signature_delta", "signature": signature})
                thinking["signature"] = signature
            blocks.append((thinking, deltas))
        words = said.refusal or said.content
        if words:
            deltas = [{"type": "text_delta", "text": word} for word in words]
            blocks.append(({"type": "text", "text": "".join(words)}, deltas))
        for call in said.calls:
            pieces = (call.arguments,) if self.traits.arguments_whole else ("", *call.pieces)
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
            block = {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call)}
            blocks.append((block, deltas))
        return blocks

    def _signature(self) -> str | None:
        if self.script.reasoning_signature is not None:
            return self.script.reasoning_signature
        made = {"made": self.question.made_id("sig-"), "empty": "", "absent": None}
        return made[self.traits.signature]

    def events(self) -> Iterator[Event]:
        traits = self.traits
        message = self._message([], None)
        if not traits.start_stop_reason:
            del message["stop_reason"]
        counted = self.script.usage.placement != "none"
        if counted:
            message["usage"] = self._first_usage()
        yield _event("message_start", message=message)
        blocks = self._blocks()
        for index, (block, deltas) in enumerate(blocks):
            yield _event("content_block_start", index=index, content_block=self._opened(block))
            if index == 0 and traits.pings:
                yield _event("ping")
            for delta in deltas:
                yield _event("content_block_delta", "token", index=index, delta=delta)
            if not traits.late_stops:
                yield _event("content_block_stop", index=index)
        if traits.late_stops:
            for index in range(len(blocks)):
                yield _event("content_block_stop", index=index)
        if self.script.finish_reason is not None:
            yield from self._end(counted)

    def _end(self, counted: bool) -> Iterator[Event]:
        usage = self.usage
        if self.traits.end_counts == "output":
            usage = {"output_tokens": usage["output_tokens"]}
        members: dict[str, Any] = {"usage": usage} if counted else {}
        delta = {"stop_reason": self.stop_reason, "stop_sequence": None}
        yield _event("message_delta", "end", delta=delta, **members)
        if self.traits.metrics_event:
            metrics = {"inputTokenCount": self.usage["input_tokens"], "invocationLatency": 42}
            yield Event({"amazon-bedrock-invocationMetrics": metrics}, kind="end")
            yield _event("message_stop", "end", **members)
        else:
            yield _event("message_stop", "end")

    def _first_usage(self) -> dict[str, Any]:
        """The start counts the input and one token of output; `message_delta` then has the totals."""
        first = {**self.usage, "output_tokens": 1}
        match self.traits.start_input:
            case "zero":
                return {**first, "input_tokens": 0, "output_tokens": 0}
            case "guessed":
                return {**first, "input_tokens": self.usage["input_tokens"] // 2}
            case _:
                return first

    def _opened(self, block: dict[str, Any]) -> dict[str, Any]:
        empty: dict[str, Any] = {"thinking": "", "signature": "", "text": "", "input": {}}
        opened = {name: empty.get(name, value) for name, value in block.items()}
        if not self.traits.call_input:
            opened.pop("input", None)
        return opened


def _input(call: Call) -> Any:
    try:
        return json.loads(call.arguments)
    except ValueError:
        return {"text": call.arguments}


def _event(name: str, kind: Any = "preamble", /, **members: Any) -> Event:
    return Event({"type": name, **members}, name=name, kind=kind)
