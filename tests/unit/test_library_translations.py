"""`ResponsesToChat` and `HarmonyDecoder`: the cases that the core reads too, and any cut."""

import json
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat import ChatCompletionChunk

from harness.tree import tracked
from sluicegate import (
    HarmonyDecoder,
    InvalidJSON,
    ParseError,
    ResponsesToChat,
    SSEDecoder,
    fold_chat,
)
from stream_corpus import reads

CASES = tracked("tests/corpus/responses/*.sse")
CASE = pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
SIZES = pytest.mark.parametrize("size", [1, 64, 1 << 20])


def translated(machine: ResponsesToChat | HarmonyDecoder, data: bytes, size: int) -> bytes:
    return b"".join(machine.feed(read) for read in reads(data, size)) + machine.finish()


def expected(case: Path) -> dict[str, Any]:
    value = json.loads(case.with_suffix(".json").read_bytes())
    assert isinstance(value, dict)
    return value


def payloads(stream: bytes) -> list[str]:
    return [event.data for event in SSEDecoder().feed(stream)]


# === responses ===


@CASE
@SIZES
def test_a_stream_becomes_the_completion_that_it_means(case: Path, size: int) -> None:
    stream = translated(ResponsesToChat(include_usage=True), case.read_bytes(), size)
    data = payloads(stream)
    want = expected(case)
    if "error" in want:
        assert json.loads(data[-1]) == want
        return
    assert data.pop() == "[DONE]"
    got = json.loads(fold_chat(stream))
    # llama.cpp says when it began with its last event; what is asked for begins now.
    assert got.pop("created") >= want.pop("created")
    assert got == want
    for chunk in data:
        # The SDK has a class for custom tool calls in a completion, and none in a chunk.
        if '"type":"custom"' not in chunk:
            ChatCompletionChunk.model_validate_json(chunk, strict=True)


@CASE
def test_a_client_that_does_not_stream_gets_the_completion(case: Path) -> None:
    got = json.loads(translated(ResponsesToChat(stream=False), case.read_bytes(), 100))
    want = expected(case)
    got.pop("created", None), want.pop("created", None)
    assert got == want


def test_usage_comes_if_it_is_asked_for() -> None:
    case = next(case for case in CASES if case.stem == "transformers")
    assert b"usage" not in translated(ResponsesToChat(), case.read_bytes(), 100)


def test_a_reply_that_breaks_off_is_an_error() -> None:
    machine = ResponsesToChat()
    chunks = machine.feed(b'data: {"type":"response.output_text.delta","delta":"Hel"}\n\n') + machine.finish()
    *_, last = payloads(chunks)
    assert json.loads(last)["error"]["code"] == "truncated"
    assert machine.feed(b"data: [DONE]\n\n") + machine.finish() == b""


def test_what_is_no_reply_is_refused() -> None:
    machine = ResponsesToChat()
    for _ in range(2):
        with pytest.raises((ParseError, InvalidJSON)):
            machine.feed(b"<html>" * 200)


# === harmony ===

REPLY = (
    '<|channel|>analysis<|message|>Say "é😀".<|end|>'
    "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
    '{"a": 1}<|call|>'
).encode()


@pytest.mark.parametrize("size", [1, 2, 3, 17, 1 << 20])
def test_text_becomes_chunks_however_it_is_cut(size: int) -> None:
    stream = translated(HarmonyDecoder(id="chatcmpl-7", model='m "x"', created=9), REPLY, size)
    data = payloads(stream)
    assert data.pop() == "[DONE]"
    for chunk in data:
        ChatCompletionChunk.model_validate_json(chunk, strict=True)
    completion = json.loads(fold_chat(stream))
    assert (completion["id"], completion["model"], completion["created"]) == ("chatcmpl-7", 'm "x"', 9)
    [choice] = completion["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"] == {
        "role": "assistant",
        "content": None,
        "reasoning_content": 'Say "é😀".',
        "tool_calls": [
            {"id": "call_7_0", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
        ],
    }


def test_bytes_that_are_no_text_are_replaced() -> None:
    stream = translated(HarmonyDecoder(), b"<|channel|>final<|message|>a\xff\xe2\x82", 1)
    assert json.loads(fold_chat(stream))["choices"][0]["message"]["content"] == "a\ufffd\ufffd"


def test_ids_are_made_up_and_differ() -> None:
    first, second = (json.loads(payloads(HarmonyDecoder().feed(b"Hello, you"))[0]) for _ in range(2))
    assert first["id"].startswith("chatcmpl-")
    assert first["id"] != second["id"]
    assert first["created"] > 1_700_000_000


def test_text_is_given_as_soon_as_it_is_understood() -> None:
    decoder = HarmonyDecoder()
    decoder.feed(b"<|channel|>final<|message|>")
    assert b'"content":"Hel"' in decoder.feed(b"Hel")
    assert b'"content":"lo "' in decoder.feed(b"lo <|")
    assert b'"content":"<|x"' in decoder.feed(b"x")
