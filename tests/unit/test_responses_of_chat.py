"""`ChatToResponses`: chat completions as responses, checked against OpenAI's types."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from harness import needed
from harness.responses_stream import Streamed, check
from harness.strict_openai import missing_members, validate
from sluicegate import ChatToResponses, DocumentTooLarge, InvalidJSON, InvalidRequest, ParseError
from stream_corpus import reads

CORPUS = Path(__file__).parents[1] / "corpus" / "responses_replies.json"
RECORDED = os.environ.get("SLUICEGATE_CORPUS")


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 3, "model": "m", "choices": [choice]}


def stream_of(case: dict[str, Any]) -> bytes:
    chunks = [chunk(delta) for delta in case["deltas"]]
    if (finish := case.get("finish", "stop")) is not None:
        chunks.append(chunk({}, finish))
    if usage := case.get("usage"):
        chunks.append({"choices": [], "usage": usage})
    if error := case.get("error"):
        chunks.append({"error": error})
    end = "data: [DONE]\n\n" if case.get("done", True) else ""
    return ("".join(f"data: {json.dumps(one)}\n\n" for one in chunks) + end).encode()


def translated(stream: bytes, request: dict[str, Any], size: int = 1 << 16) -> bytes:
    body = json.dumps({"model": "m", "input": "Hi", **request}).encode()
    translation = ChatToResponses(body, response_id="resp_1", created_at=7)
    return b"".join(translation.feed(read) for read in reads(stream, size)) + translation.finish()


def events(stream: bytes, request: dict[str, Any] | None = None, size: int = 1 << 16) -> Streamed:
    return check(translated(stream, {**(request or {}), "stream": True}, size), complete=True)


def short(item: dict[str, Any]) -> str:
    """An item's kind and what it says."""
    match item["type"]:
        case "function_call":
            return f"{item['name']}({item['arguments']})"
        case "custom_tool_call":
            return f"{item['name']}<{item['input']}>"
        case kind:
            texts = (part.get("text", part.get("refusal")) for part in item["content"])
            return f"{kind}: {'|'.join(texts)}"


CASES = [
    pytest.param(case, id=case["name"]) for case in json.loads(CORPUS.read_text(encoding="utf-8"))["cases"]
]


@pytest.mark.parametrize("size", [1, 7, 1 << 16])
@pytest.mark.parametrize("case", CASES)
def test_a_stream_becomes_valid_events(case: dict[str, Any], size: int) -> None:
    seen = events(stream_of(case), case.get("request"), size)
    expected = case["expected"]
    assert [short(item) for item in seen.output] == expected["items"]
    assert seen.response["status"] == expected.get("status", "completed")
    if types := expected.get("types"):
        assert seen.types[2:-1] == types
    for name, value in expected.get("response", {}).items():
        assert seen.response[name] == value


@pytest.mark.parametrize("case", CASES)
def test_a_client_that_does_not_stream_gets_the_last_events_response(case: dict[str, Any]) -> None:
    request = case.get("request", {})
    whole = json.loads(translated(stream_of(case), request))
    if case["expected"].get("status") == "failed":
        assert whole["error"]["message"]
        return
    validate(whole)
    assert missing_members(whole) == set()
    streamed = events(stream_of(case), request).response
    for response in (whole, streamed):
        response.pop("completed_at")
    assert whole == streamed


def test_what_a_response_says_of_its_request() -> None:
    tool = {"type": "function", "name": "f", "parameters": {}, "strict": True}
    request = {"instructions": "Be brief.", "tools": [tool], "temperature": 0.5, "metadata": {"a": "b"}}
    seen = events(stream_of({"deltas": [{"content": "Hi"}]}), request)
    for event in seen.events[0], seen.events[-1]:
        response = event["response"]
        assert (response["id"], response["created_at"]) == ("resp_1", 7)
        assert response["instructions"] == "Be brief."
        assert response["temperature"] == 0.5
        assert response["metadata"] == {"a": "b"}
        assert response["tools"][0]["name"] == "f"


def test_an_id_is_made_for_each_response() -> None:
    body = b'{"model":"m","input":"Hi"}'
    replies = []
    for _ in range(2):
        translation = ChatToResponses(body)
        replies.append(json.loads(translation.feed(stream_of({"deltas": []})) + translation.finish()))
    ids = {reply["id"] for reply in replies}
    assert len(ids) == 2
    assert all(name.startswith("resp_") and len(name) == 37 for name in ids)
    assert all(abs(reply["completed_at"] - reply["created_at"]) < 60 for reply in replies)


def test_a_reply_that_breaks_off_has_failed() -> None:
    stream = stream_of({"deltas": [{"content": "Hel"}], "finish": None, "done": False})
    seen = events(stream)
    assert seen.response["status"] == "failed"
    assert seen.output[0]["status"] == "incomplete"
    assert json.loads(translated(stream, {}))["error"]["code"] == "truncated"


@pytest.mark.parametrize(
    ("request_body", "error"), [(b"{", InvalidJSON), (b'{"stream":1}', InvalidRequest), (b"[]", InvalidJSON)]
)
def test_a_request_must_be_one(request_body: bytes, error: type[ParseError]) -> None:
    with pytest.raises(error):
        ChatToResponses(request_body)


def test_what_is_no_completion_is_refused() -> None:
    translation = ChatToResponses(b'{"model":"m"}')
    with pytest.raises(ParseError):
        translation.feed(b'{"detail":"Not Found"}')
    with pytest.raises(ParseError):
        translation.finish()
    assert not issubclass(DocumentTooLarge, InvalidJSON)


def recorded() -> list[dict[str, Any]]:
    if RECORDED is None:
        return []
    lines = (Path(RECORDED) / "expected.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    return [entry for entry in entries if entry["api"] in ("chat.completions", "completions")]


@pytest.mark.skipif(RECORDED is None, reason=needed.RECORDINGS)
@pytest.mark.parametrize("entry", recorded() or [{"file": "none"}], ids=lambda entry: entry["file"])
def test_a_recorded_stream_becomes_valid_events(entry: dict[str, Any]) -> None:
    stream = (Path(RECORDED or "") / entry["file"]).read_bytes()
    seen = events(stream)
    choice = entry["choices"].get("0", {})
    said = choice.get("text") or ""
    # White space between reasoning and a call is no message.
    assert seen.text == said or (not said.strip() and not seen.text)
    thought = [short(item) for item in seen.output if item["type"] == "reasoning"]
    # Reasoning that has come in typed details only is not in what is expected.
    if reasoning := choice.get("reasoning"):
        assert "".join(text.removeprefix("reasoning: ") for text in thought) == reasoning
    calls = [(item["name"], item["arguments"]) for item in seen.output if item["type"] == "function_call"]
    assert calls == [(call["name"], call["arguments"]) for call in choice.get("tool_calls") or []]
    assert events(stream, size=100).events[:-1] == seen.events[:-1]
