"""Replies of Ollama's own `/api/chat`: one JSON document, or one a line."""

import json
from collections.abc import Iterator
from typing import Any

from sluicegate.testing.chat import finish_reason
from sluicegate.testing.counts import Counts, count
from sluicegate.testing.question import Question
from sluicegate.testing.reply import Document, Event, Stream
from sluicegate.testing.script import Script
from sluicegate.testing.speech import Call, Speech, speech


def ollama_reply(script: Script, question: Question, *, stream: bool) -> Stream | Document:
    said = speech(script, question, 0)
    counts = count(script, [said])
    if stream:
        return Stream(tuple(_lines(script, question, said, counts)))
    message = {"role": "assistant", "content": "".join(said.content)}
    if said.reasoning:
        message["thinking"] = "".join(said.reasoning)
    whole: dict[str, Any] = message | ({"tool_calls": [_call(c) for c in said.calls]} if said.calls else {})
    return Document(_line(script, question, whole) | _ending(script, said, counts))


def _lines(script: Script, question: Question, said: Speech, counts: Counts) -> Iterator[Event]:
    for word in said.reasoning:
        message = {"role": "assistant", "content": "", "thinking": word}
        yield Event({**_line(script, question, message), "done": False}, kind="token")
    for word in said.content:
        message = {"role": "assistant", "content": word}
        yield Event({**_line(script, question, message), "done": False}, kind="token")
    for call in said.calls:
        called = {"role": "assistant", "content": "", "tool_calls": [_call(call)]}
        yield Event({**_line(script, question, called), "done": False}, kind="token")
    if script.finish_reason is not None:
        last = _line(script, question, {"role": "assistant", "content": ""})
        yield Event(last | _ending(script, said, counts), kind="end")


def _line(script: Script, question: Question, message: dict[str, Any]) -> dict[str, Any]:
    model = script.model or question.model
    return {"model": model, "created_at": "2026-01-01T00:00:00Z", "message": message}


def _ending(script: Script, said: Speech, counts: Counts) -> dict[str, Any]:
    reason = finish_reason(script, said)
    ending: dict[str, Any] = {"done": True, "done_reason": "stop" if reason == "tool_calls" else reason}
    if script.usage.placement != "none":
        ending |= {
            "total_duration": 1_000_000_000,
            "load_duration": 10_000_000,
            "prompt_eval_count": counts.input,
            "prompt_eval_duration": 90_000_000,
            "eval_count": counts.output,
            "eval_duration": 900_000_000,
            **script.usage.extra,
        }
    return ending


def _call(call: Call) -> dict[str, Any]:
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        arguments = call.arguments
    return {"function": {"name": call.name, "arguments": arguments}}
