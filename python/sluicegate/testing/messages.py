"""Replies of Anthropic's `/messages`: the message, and its events."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from sluicegate.testing.chat import finish_reason
from sluicegate.testing.counts import count, messages_usage
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


def count_tokens_reply(script: Script, question: Question) -> Document:
    return Document({"input_tokens": script.usage.input_tokens})


def models_page(names: Sequence[str]) -> Document:
    """`GET /v1/models`, as Anthropic's API answers it."""
    data = [model_entry(name) for name in names]
    ends = {"first_id": names[0], "last_id": names[-1]} if names else {"first_id": None, "last_id": None}
    return Document({"data": data, "has_more": False, **ends})


def model_entry(name: str) -> dict[str, Any]:
    return {"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"}


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
        self.usage = messages_usage(script, count(script, [self.said]))
        reason = finish_reason(script, self.said)
        self.stop_reason = _STOP_REASONS.get(reason, reason) if reason is not None else None
        if self.said.refusal and self.stop_reason == "end_turn":
            self.stop_reason = "refusal"

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
            signature = self.script.reasoning_signature
            signature = self.question.made_id("sig-") if signature is None else signature
            deltas = [{"type": "thinking_delta", "thinking": word} for word in said.reasoning]
            deltas.append({"type": "signature_delta", "signature": signature})
            thought = "".join(said.reasoning)
            blocks.append(({"type": "thinking", "thinking": thought, "signature": signature}, deltas))
        words = said.refusal or said.content
        if words:
            deltas = [{"type": "text_delta", "text": word} for word in words]
            blocks.append(({"type": "text", "text": "".join(words)}, deltas))
        for call in said.calls:
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *call.pieces)]
            block = {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call)}
            blocks.append((block, deltas))
        return blocks

    def events(self) -> Iterator[Event]:
        message = self._message([], None)
        counted = self.script.usage.placement != "none"
        if counted:
            # The start counts the input and one token of output; `message_delta` then has the totals.
            message["usage"] = {**self.usage, "output_tokens": 1}
        yield _event("message_start", message=message)
        for index, (block, deltas) in enumerate(self._blocks()):
            yield _event("content_block_start", index=index, content_block=_opened(block))
            if index == 0:
                yield _event("ping")
            for delta in deltas:
                yield _event("content_block_delta", "token", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        if self.script.finish_reason is not None:
            delta = {"stop_reason": self.stop_reason, "stop_sequence": None}
            members: dict[str, Any] = {"usage": self.usage} if counted else {}
            yield _event("message_delta", "end", delta=delta, **members)
            yield _event("message_stop", "end")


def _opened(block: dict[str, Any]) -> dict[str, Any]:
    empty: dict[str, Any] = {"thinking": "", "signature": "", "text": "", "input": {}}
    return {name: empty.get(name, value) for name, value in block.items()}


def _input(call: Call) -> Any:
    try:
        return json.loads(call.arguments)
    except ValueError:
        return {"text": call.arguments}


def _event(name: str, kind: Any = "preamble", /, **members: Any) -> Event:
    return Event({"type": name, **members}, name=name, kind=kind)
