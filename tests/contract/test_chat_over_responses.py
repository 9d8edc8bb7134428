"""Chat Completions where the upstream serves Responses only: request and reply translated."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from harness.strict_openai import validate
from harness.wire_stand import CHAT, MODEL, Exchange, WireStand, wire_stand
from sluicegate.testing import Fault, Script, ScriptedUpstream, ToolCall, UsageScript
from sse_reference import parse, payloads

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "A sluice lets water through and keeps the"
ASKED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
FORMS = ["", "-always", "-never"]
"""How the upstream is asked to answer: as the client asks, always as a stream, never so."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    async with ScriptedUpstream(Script(text="spare")) as spare:
        config = {
            "upstreams": {
                "native": {"api": "responses"},
                "native-always": {"api": "responses", "streaming": "always"},
                "native-never": {"api": "responses", "streaming": "never"},
                "native-text": {
                    "api": "responses",
                    "responses": {"takes_reasoning": True, "omit": ["store"]},
                },
                "spare": {"base_url": spare.base_url},
            },
            "models": {
                **{f"{MODEL}{form}": f"native{form}/{MODEL}" for form in (*FORMS, "-text")},
                "pair": [f"native/{MODEL}", f"spare/{MODEL}"],
                "public": {"routes": [f"native/{MODEL}"], "reply_model": "public"},
            },
            "prices": {MODEL: {"input": "1", "cached_input": "0.1", "output": "4"}},
        }
        async with wire_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
            yield stand


def chunks(exchange: Exchange) -> list[dict[str, Any]]:
    """The chunks of a healthy stream, each checked."""
    *events, done = parse(exchange.body)
    assert done.data == "[DONE]"
    assert exchange.reply.headers["content-type"].startswith("text/event-stream")
    found = [event.json() for event in events]
    for chunk in found:
        validate(chunk)
    assert len({chunk["id"] for chunk in found}) == 1
    return found


def said(found: list[dict[str, Any]], name: str = "content") -> str:
    return "".join(choice["delta"].get(name) or "" for chunk in found for choice in chunk["choices"])


# === replies ===


@pytest.mark.parametrize("form", FORMS)
async def test_a_stream(wire: WireStand, form: str) -> None:
    script = Script(reasoning_tokens=2, usage=UsageScript(input_tokens=14, cached_tokens=3))
    exchange = await wire.ask(script, model=MODEL + form, **ASKED)
    assert wire.request.path == "/v1/responses"
    found = chunks(exchange)
    assert said(found) == TEXT
    assert said(found, "reasoning_content") == "The skipper"
    *_, last = found
    assert last["choices"] == []
    assert last["usage"]["prompt_tokens"] == 14
    assert last["usage"]["prompt_tokens_details"]["cached_tokens"] == 3
    assert last["usage"]["completion_tokens"] == 10
    assert last["usage"]["cost"] == 0.0000513
    assert [c["finish_reason"] for x in found for c in x["choices"] if c["finish_reason"]] == ["stop"]
    assert (exchange.line["endpoint"], exchange.line["cost"]) == ("chat_completions", "0.0000513")


@pytest.mark.parametrize("form", FORMS)
async def test_a_completion(wire: WireStand, form: str) -> None:
    script = Script(reasoning_tokens=2, usage=UsageScript(input_tokens=14, cached_tokens=3))
    exchange = await wire.ask(script, model=MODEL + form)
    completion = exchange.reply.json()
    validate(completion)
    message = completion["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == (TEXT, "The skipper")
    assert completion["choices"][0]["finish_reason"] == "stop"
    assert completion["usage"]["cost"] == 0.0000513
    assert exchange.line["cost"] == "0.0000513"


@pytest.mark.parametrize("form", FORMS)
async def test_usage_that_was_not_asked_for_is_not_shown_and_yet_billed(wire: WireStand, form: str) -> None:
    exchange = await wire.ask(Script(), model=MODEL + form, stream=True)
    assert all(chunk["choices"] and not chunk.get("usage") for chunk in chunks(exchange))
    assert exchange.line["output_tokens"] == 8
    assert exchange.line["cost"]


@pytest.mark.parametrize("form", FORMS)
async def test_calls(wire: WireStand, form: str) -> None:
    calls = (ToolCall(id="call_1"), ToolCall(name="g", arguments='{"b": "\u00e9\\n"}', id="call_2"))
    script = Script(tokens=2, tool_calls=calls)
    streamed = chunks(await wire.ask(script, model=MODEL + form, stream=True))
    pieces: dict[int, list[str]] = {}
    for chunk in streamed:
        for call in chunk["choices"][0]["delta"].get("tool_calls") or ():
            piece = pieces.setdefault(call["index"], ["", "", ""])
            function = call.get("function", {})
            for place, text in enumerate((call.get("id"), function.get("name"), function.get("arguments"))):
                piece[place] += text or ""
    whole = (await wire.ask(script, model=MODEL + form)).reply.json()["choices"][0]
    expected = [[call.id, call.name, call.arguments] for call in calls]
    assert [*pieces.values()] == expected
    assert [*pieces] == [0, 1], "reasoning and messages are not counted as calls (pipecat#4987)"
    assert [
        [call["id"], call["function"]["name"], call["function"]["arguments"]]
        for call in whole["message"]["tool_calls"]
    ] == expected
    assert whole["finish_reason"] == "tool_calls"


async def test_a_reply_may_name_the_public_model(wire: WireStand) -> None:
    found = chunks(await wire.ask(Script(), model="public", stream=True))
    assert {chunk["model"] for chunk in found} == {"public"}
    assert (await wire.ask(Script(), model="public")).reply.json()["model"] == "public"


@pytest.mark.parametrize(("reason", "shown"), [("length", "length"), ("content_filter", "content_filter")])
async def test_a_reply_that_was_cut_short_says_why(wire: WireStand, reason: str, shown: str) -> None:
    script = Script(finish_reason=reason)
    found = chunks(await wire.ask(script, stream=True))
    assert [c["finish_reason"] for x in found for c in x["choices"] if c["finish_reason"]] == [shown]
    assert (await wire.ask(script)).reply.json()["choices"][0]["finish_reason"] == shown


# === what goes wrong ===


async def test_a_stream_that_breaks_off_ends_in_the_clients_words(wire: WireStand) -> None:
    exchange = await wire.ask(Script(faults=(Fault(action="close", events=7),)), stream=True)
    *_, last = payloads(exchange.body)
    assert last["error"].keys() == {"message", "type", "code", "param"}
    assert last["error"]["code"] == "truncated"
    assert b"[DONE]" not in exchange.body
    assert (exchange.line["result"], exchange.line["fault"]) == ("failed", "truncated")


async def test_an_error_in_the_stream_is_told(wire: WireStand) -> None:
    error = {"message": "Out of memory.", "type": "server_error", "code": "oom"}
    exchange = await wire.ask(Script(faults=(Fault(action="error", events=7, error=error),)), stream=True)
    *_, last = payloads(exchange.body)
    assert last["error"]["message"] == "Out of memory."
    assert b"[DONE]" not in exchange.body
    assert exchange.line["fault"] == "in_band_error"


async def test_an_upstreams_error_is_passed_on(wire: WireStand) -> None:
    error = {"message": "Too long.", "type": "invalid_request_error", "param": "input", "code": "too_long"}
    exchange = await wire.ask(Script(status=400, error=error), stream=True)
    assert (exchange.reply.status, exchange.reply.json()) == (400, {"error": error})


async def test_what_cannot_be_asked_is_refused_or_asked_elsewhere(wire: WireStand) -> None:
    exchange = await wire.ask(Script(), n=2)
    assert exchange.reply.status == 400
    error = exchange.reply.json()["error"]
    assert (error["param"], error["type"]) == ("n", "invalid_request_error")
    assert exchange.line["result"] == "refused"
    exchange = await wire.ask(Script(), model="pair", n=2)
    assert exchange.line["upstream"] == "spare"
    assert len(exchange.reply.json()["choices"]) == 2


async def test_a_failure_behind_the_preamble_is_tried_elsewhere(wire: WireStand) -> None:
    exchange = await wire.ask(Script(faults=(Fault(action="error", events=2),)), model="pair", stream=True)
    assert said(chunks(exchange)) == "spare"
    assert exchange.line["failed_attempts"] == ["native: in_band_error"]


# === requests ===


async def test_a_request_is_asked_in_the_upstreams_words(wire: WireStand) -> None:
    weather = {"name": "f", "parameters": {"type": "object", "properties": {}}}
    asked: dict[str, Any] = {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."},
            {"role": "user", "content": "Why?"},
        ],
        "tools": [{"type": "function", "function": weather}],
        "max_tokens": 50,
        "temperature": 0.5,
    }
    exchange = await wire.ask(Script(), path=CHAT, body=json.dumps(asked).encode())
    assert exchange.reply.status == 200
    sent = wire.request.json()
    assert sent["max_output_tokens"] == 50
    assert sent["temperature"] == 0.5
    assert sent["store"] is False
    assert sent["tools"][0]["name"] == "f"
    assert [item.get("role") for item in sent["input"]] == ["system", "assistant", "user"]
    assert exchange.line["left_out"] == ["messages[1].reasoning_content"]
    await wire.ask(Script(), path=CHAT, body=json.dumps(asked | {"model": f"{MODEL}-text"}).encode())
    sent = wire.request.json()
    assert "store" not in sent
    assert [item["type"] for item in sent["input"] if item.get("type") == "reasoning"] == ["reasoning"]


async def test_usage_options_stay_with_the_gateway(wire: WireStand) -> None:
    await wire.ask(Script(), **ASKED)
    assert "stream_options" not in wire.request.json()
