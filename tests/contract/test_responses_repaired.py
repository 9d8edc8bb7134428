"""Upstreams whose Responses streams break the protocol, and those whose content is raw gpt-oss text."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from harness.responses_stand import RESPONSES, ResponsesStand, request, responses_stand
from harness.responses_stream import check, text_of
from harness.strict_openai import missing_members, validate
from harness.tree import ROOT, tracked
from harness.wire_stand import DONE, MODEL, chunk, event, usage_chunk
from sluicegate.testing import Script, body
from sse_reference import payloads

pytestmark = pytest.mark.asyncio(loop_scope="module")

CORPUS = ROOT / "tests" / "corpus" / "responses"
STREAMS = [path.stem for path in tracked("tests/corpus/responses/*.sse")]
USAGE = {"prompt_tokens": 14, "completion_tokens": 7, "total_tokens": 21}
HARMONY = (
    '<|channel|>analysis<|message|>Weather: "call" it.<|end|>'
    "<|start|>assistant<|channel|>commentary<|message|>I look. \u00e9\U0001f600<|end|>"
    "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json"
    '<|message|>{"city":"Oslo"}<|call|>'
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ResponsesStand]:
    config = {
        "upstreams": {
            "broken": {"api": "responses", "repair": True},
            "broken-always": {"api": "responses", "repair": True, "streaming": "always"},
            "raw": {"format": "harmony"},
        },
        "models": {name: f"{name}/{MODEL}" for name in ("broken", "broken-always", "raw")},
    }
    async with responses_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
        yield stand


# === repair ===


@pytest.mark.parametrize("name", STREAMS)
async def test_a_broken_stream_keeps_every_promise_once_repaired(stand: ResponsesStand, name: str) -> None:
    sent = (CORPUS / f"{name}.sse").read_bytes()
    expected = json.loads((CORPUS / f"{name}.json").read_text())
    exchange = await stand.ask(body(sent), model="broken", stream=True)
    streamed = check(exchange.body, complete=True)
    if "error" in expected:
        assert streamed.response["status"] == "failed"
        return
    message = expected["choices"][0]["message"]
    assert streamed.text == (message.get("content") or "")
    calls = [item for item in streamed.output if item["type"] == "function_call"]
    assert [call["arguments"] for call in calls] == [
        call["function"]["arguments"] for call in message.get("tool_calls", []) if "function" in call
    ]
    if "usage" in expected:
        assert streamed.response["usage"]["input_tokens"] == expected["usage"]["prompt_tokens"]
        assert exchange.line["output_tokens"] == expected["usage"]["completion_tokens"]
        assert exchange.line["cost"]


async def test_a_repaired_response_keeps_its_name(stand: ResponsesStand) -> None:
    sent = (CORPUS / "llama-cpp.sse").read_bytes()
    streamed = await stand.stream(body(sent), model="broken", instructions="Be brief.")
    assert streamed.response["id"] == "resp_e1"
    assert streamed.response["instructions"] == "Be brief."


async def test_a_repaired_response_is_the_same_whole(stand: ResponsesStand) -> None:
    sent = (CORPUS / "llama-cpp.sse").read_bytes()
    streamed = await stand.stream(body(sent), model="broken")
    exchange = await stand.ask(body(sent), model="broken-always")
    response = exchange.reply.json()
    validate(response)
    assert not missing_members(response)
    assert text_of(response) == streamed.text
    assert stand.wire.request.json()["stream"] is True


async def test_a_repaired_stream_that_breaks_off_fails_with_its_items_closed(stand: ResponsesStand) -> None:
    sent = (CORPUS / "llama-cpp.sse").read_bytes()
    cut = sent[: sent.index(b"response.function_call_arguments")]
    exchange = await stand.ask(body(cut[: cut.rindex(b"\n\n") + 2]), model="broken", stream=True)
    streamed = check(exchange.body, complete=True)
    assert streamed.types[-2:] == ["error", "failed"]
    assert streamed.output[-1].get("status") == "incomplete"
    assert exchange.line["fault"] == "truncated"


async def test_a_healthy_stream_stays_whole_when_repaired(stand: ResponsesStand) -> None:
    script = Script(reasoning_tokens=3, logprobs=True)
    plain = await stand.wire.ask(script, path=RESPONSES, body=request(model="broken", stream=True))
    assert check(plain.body, complete=True).text == "A sluice lets water through and keeps the"
    assert plain.line["result"] == "ok"


# === harmony ===


def raw(letters: int) -> Script:
    pieces = [HARMONY[start : start + letters] for start in range(0, len(HARMONY), letters)]
    ending = [chunk(finish="stop"), usage_chunk(USAGE)]
    return body(*[event(payload) for payload in [*map(chunk, pieces), *ending]], DONE)


@pytest.mark.parametrize("letters", [1, 3, 40, 1000])
async def test_the_text_of_gpt_oss_becomes_items(stand: ResponsesStand, letters: int) -> None:
    streamed = await stand.stream(raw(letters), model="raw")
    reasoning, message, call = streamed.output
    assert reasoning["content"][0]["text"] == 'Weather: "call" it.'
    assert message["content"][0]["text"] == "I look. \u00e9\U0001f600"
    assert (call["name"], call["arguments"]) == ("get_weather", '{"city":"Oslo"}')
    assert streamed.response["usage"]["total_tokens"] == 21


async def test_the_text_of_gpt_oss_becomes_a_chat(stand: ResponsesStand) -> None:
    exchange = await stand.wire.ask(raw(5), model="raw", stream=True)
    found: list[dict[str, Any]] = payloads(exchange.body)
    for one in found:
        validate(one)
    deltas = [choice["delta"] for one in found for choice in one["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "I look. \u00e9\U0001f600"
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == 'Weather: "call" it.'
    arguments = [call["function"] for delta in deltas for call in delta.get("tool_calls") or ()]
    assert "".join(function.get("arguments") or "" for function in arguments) == '{"city":"Oslo"}'
    assert exchange.line["cost"] == "0.000042"
