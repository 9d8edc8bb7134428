"""A client of the Responses API."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.responses_stream import check
from harness.strict_openai import missing_members, validate
from matrix.heard import Heard, read_json, same, spelled
from matrix.tools import TOOLS
from sse_reference import parse

PATH = "/v1/responses"


def request(model: str, turns: Sequence[Any], *, streams: bool) -> dict[str, Any]:
    """`turns`: the user's texts, and what was heard in between."""
    items: list[Any] = []
    for turn in turns:
        items += [{"role": "user", "content": turn}] if isinstance(turn, str) else turn
    return {
        "model": model,
        "input": items,
        "tools": [{"type": "function", "strict": False, **tool} for tool in TOOLS],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "stream": streams,
    }


def stream(body: bytes) -> Heard:
    """What a stream says. Raises AssertionError where it breaks the protocol.

    Items that a failing upstream leaves open are not looked at: a stream of its own is forwarded as it came.
    """
    for event in parse(body):
        if event.data != "[DONE]":
            read_json(event.data)
    streamed = check(body, done=body.endswith(b"data: [DONE]\n\n"), cut=True)
    heard = _read(streamed.response)
    if heard.error is not None:
        errors = [event for event in streamed.events if event["type"] == "error"]
        same("error events", len(errors), 1)
        heard.text = "".join(
            event["delta"] for event in streamed.events if event["type"] == "response.output_text.delta"
        )
    return heard


def whole(document: Mapping[str, Any]) -> Heard:
    validate(document)
    assert not missing_members(document), missing_members(document)
    return _read(document)


def error(document: Mapping[str, Any]) -> Heard:
    found: dict[str, Any] = document["error"]
    same("members of the error", set(found), {"message", "type", "param", "code"})
    return Heard(error=found)


def counts(usage: Mapping[str, Any]) -> dict[str, int]:
    """The counts of a usage object."""
    same("total_tokens", usage["total_tokens"], usage["input_tokens"] + usage["output_tokens"])
    return {
        "input": usage["input_tokens"],
        "cached": usage["input_tokens_details"]["cached_tokens"],
        "written": usage["input_tokens_details"]["cache_write_tokens"],
        "output": usage["output_tokens"],
        "reasoning": usage["output_tokens_details"]["reasoning_tokens"],
    }


def _read(response: Mapping[str, Any]) -> Heard:
    heard = Heard(usage=response["usage"] or {}, turn=response["output"])
    for item in response["output"]:
        match item["type"]:
            case "message":
                for part in item["content"]:
                    heard.text += part.get("text", "")
                    heard.refusal += part.get("refusal", "")
            case "reasoning":
                parts = [*item["summary"], *(item.get("content") or ())]
                heard.reasoning += "".join(part["text"] for part in parts)
            case "function_call":
                heard.calls.append((item["call_id"], item["name"], spelled(item["arguments"])))
            case other:
                raise AssertionError(f"an item of type {other}")
    heard.stop = response["status"]
    if heard.stop == "incomplete":
        heard.stop = response["incomplete_details"]["reason"]
    if response["status"] == "failed":
        heard.error = response["error"]
    return heard
