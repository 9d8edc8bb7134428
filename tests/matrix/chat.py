"""A client of Chat Completions."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.strict_openai import validate
from matrix.heard import Heard, read_json, same, spelled
from matrix.tools import TOOLS
from sse_reference import parse

PATH = "/v1/chat/completions"
# What OpenRouter and the servers of open models add to OpenAI's own types.
_EXTRA = {
    "ChoiceDelta": frozenset({"reasoning_details", "annotations"}),
    "ChatCompletionMessage": frozenset({"reasoning_details"}),
    "PromptTokensDetails": frozenset({"cache_write_tokens"}),
}


def request(model: str, turns: Sequence[Any], *, streams: bool) -> dict[str, Any]:
    """`turns`: the user's texts, and what was heard in between."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": turn} if isinstance(turn, str) else turn for turn in turns],
        "tools": [{"type": "function", "function": tool} for tool in TOOLS],
    }
    return body | ({"stream": True, "stream_options": {"include_usage": True}} if streams else {})


def stream(body: bytes) -> Heard:
    """What a stream says. Raises AssertionError where it breaks the protocol."""
    *events, last = parse(body)
    heard = Heard()
    if last.data != "[DONE]":
        heard.error = _error(read_json(last.data))
    message: dict[str, Any] = {"role": None}
    finished = None
    chunks = [read_json(event.data) for event in events]
    for number, chunk in enumerate(chunks):
        validate(chunk, extra=_EXTRA)
        same("id", chunk["id"], chunks[0]["id"])
        if not chunk["choices"]:
            assert finished is not None, "usage before the finish"
            assert chunk is chunks[-1], "a chunk without choices is not the last"
            heard.usage = chunk["usage"]
            continue
        [choice] = chunk["choices"]
        assert finished is None, f"a choice behind the finish: {chunk}"
        assert not chunk.get("usage"), "usage on a chunk with choices"
        delta = choice["delta"]
        if number == 0:
            same("role of the first delta", delta.get("role"), "assistant")
        _add(message, delta)
        finished = choice.get("finish_reason")
    if heard.error is None:
        assert finished is not None, "no finish"
        assert heard.usage, "no usage chunk"
    _read(heard, message, finished)
    return heard


def whole(document: Mapping[str, Any]) -> Heard:
    validate(document, extra=_EXTRA)
    heard = Heard(usage=document["usage"])
    [choice] = document["choices"]
    _read(heard, choice["message"], choice["finish_reason"])
    return heard


def error(document: Mapping[str, Any]) -> Heard:
    return Heard(error=_error(document))


def counts(usage: Mapping[str, Any]) -> dict[str, int]:
    """The counts of a usage object; one that is not there is zero."""
    read = usage.get("prompt_tokens_details") or {}
    written = usage.get("completion_tokens_details") or {}
    same("total_tokens", usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
    return {
        "input": usage["prompt_tokens"],
        "cached": read.get("cached_tokens", 0),
        "written": read.get("cache_write_tokens", 0),
        "output": usage["completion_tokens"],
        "reasoning": written.get("reasoning_tokens", 0),
    }


def _add(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """As OpenAI's SDK accumulates: strings are joined, entries are found by their index."""
    message["role"] = delta.get("role") or message["role"]
    for name in ("content", "refusal", "reasoning_content"):
        if delta.get(name):
            message[name] = message.get(name, "") + delta[name]
    for call in delta.get("tool_calls") or ():
        calls = message.setdefault("tool_calls", [])
        if call["index"] == len(calls):
            assert call["id"], f"a call begins without id: {call}"
            assert call["function"]["name"], f"a call begins without name: {call}"
            same("type of a call", call["type"], "function")
            calls.append({"id": call["id"], "type": "function", "function": {"name": "", "arguments": ""}})
        same("index of a call's delta", call["index"], len(calls) - 1)
        function = calls[-1]["function"]
        for name in function:
            function[name] += (call.get("function") or {}).get(name) or ""
    for detail in delta.get("reasoning_details") or ():
        details = message.setdefault("reasoning_details", [])
        if detail["index"] == len(details):
            details.append({})
        same("index of a detail's part", detail["index"], len(details) - 1)
        texts = [one["text"] for one in (details[-1], detail) if "text" in one]
        details[-1] |= detail | ({"text": "".join(texts)} if texts else {})


def _read(heard: Heard, message: Mapping[str, Any], finish: str | None) -> None:
    same("role", message["role"], "assistant")
    heard.text = message.get("content") or ""
    heard.refusal = message.get("refusal") or ""
    heard.reasoning = message.get("reasoning_content") or ""
    heard.stop = finish
    for call in message.get("tool_calls") or ():
        function = call["function"]
        heard.calls.append((call["id"], function["name"], spelled(function["arguments"])))
    heard.turn = {name: value for name, value in message.items() if value is not None}


def _error(document: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["error"]
    same("members of the error", set(found), {"message", "type", "param", "code"})
    return found
