"""A client of the Messages API."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from harness.messages_stream import check, check_error, check_message
from matrix.heard import Heard, read_json, spelled
from matrix.tools import TOOLS
from sse_reference import parse

PATH = "/v1/messages"


def request(model: str, turns: Sequence[Any], *, streams: bool) -> dict[str, Any]:
    """`turns`: the user's texts, and what was heard in between."""
    roles = ["user" if isinstance(turn, str) else "assistant" for turn in turns]
    return {
        "model": model,
        "max_tokens": 4096,
        "messages": [{"role": role, "content": turn} for role, turn in zip(roles, turns, strict=True)],
        "tools": [
            {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
            for tool in TOOLS
        ],
        "stream": streams,
    }


def stream(body: bytes) -> Heard:
    """What a stream says. Raises AssertionError where it breaks the protocol."""
    for event in parse(body):
        read_json(event.data)
    streamed = check(body)
    heard = _read(streamed.message)
    heard.error = streamed.error
    heard.first_usage = streamed.first_usage
    return heard


def whole(document: Mapping[str, Any]) -> Heard:
    check_message(document)
    return _read(document)


def error(document: Mapping[str, Any]) -> Heard:
    return Heard(error=check_error(document))


def counts(usage: Mapping[str, Any]) -> dict[str, int]:
    """The counts of a usage object, input as the sum that the others report."""
    read, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
    return {
        "input": usage["input_tokens"] + read + written,
        "cached": read,
        "written": written,
        "output": usage["output_tokens"],
        "reasoning": (usage.get("output_tokens_details") or {}).get("thinking_tokens", 0),
    }


def _read(message: Mapping[str, Any]) -> Heard:
    heard = Heard(stop=message["stop_reason"], usage=message["usage"], turn=message["content"])
    for block in message["content"]:
        match block["type"]:
            case "text":
                heard.text += block["text"]
            case "thinking":
                heard.reasoning += block["thinking"]
            case "redacted_thinking":
                pass
            case "tool_use":
                arguments = json.dumps(block["input"], default=str)
                heard.calls.append((block["id"], block["name"], spelled(arguments)))
            case other:
                raise AssertionError(f"a block of type {other}")
    return heard
