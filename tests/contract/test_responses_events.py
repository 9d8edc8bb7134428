"""The events of a response that an upstream of Chat Completions gives, and the response without them."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from harness.responses_stand import (
    ALWAYS,
    HURRIED,
    NEVER,
    RESPONSES,
    ResponsesStand,
    request,
    responses_stand,
)
from harness.responses_stream import Streamed, check, same_answer, text_of
from harness.strict_openai import validate
from harness.wire_stand import DONE, MODEL, chunk, event, usage_chunk
from sluicegate.testing import Fault, Framing, Script, ToolCall, UsageScript, body
from sse_reference import payloads

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "A sluice lets water through and keeps the"
WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}
PARALLEL = (ToolCall(), ToolCall(name="g", arguments=""), ToolCall(name="h", arguments="{}", piece=1))
SCRIPTS: dict[str, Script] = {
    "text": Script(),
    "one token": Script(tokens=1),
    "nothing": Script(tokens=0),
    "reasoning": Script(reasoning_tokens=4),
    "refusal": Script(tokens=0, refusal="I will not."),
    "a call": Script(tokens=0, tool_calls=(ToolCall(),)),
    "parallel calls": Script(tokens=0, tool_calls=PARALLEL),
    "all of them": Script(reasoning_tokens=2, tokens=3, tool_calls=PARALLEL),
    "length": Script(finish_reason="length"),
    "filter": Script(reasoning_tokens=2, finish_reason="content_filter"),
    "logprobs": Script(logprobs=True),
    "escapes": Script(text='"Quotes" and \\ and \u00e9 \U0001f600 and \u2028\n\ttabs'),
    "usage": Script(usage=UsageScript(input_tokens=14, cached_tokens=3, reasoning_tokens=2)),
    "deepseek": Script(dialect="deepseek", reasoning_tokens=3),
    "another framing": Script(framing=Framing(line_ending="crlf", bom=True, keepalive_every_events=2)),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ResponsesStand]:
    config = {"models": {"public": {"routes": [f"local/{MODEL}"], "reply_model": "public"}}}
    async with responses_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
        yield stand


# === every promise, whatever the upstream says and however ===


@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_stream_keeps_every_promise(stand: ResponsesStand, name: str) -> None:
    streamed = await stand.stream(SCRIPTS[name], tools=[WEATHER])
    assert streamed.types[:2] == ["created", "in_progress"]
    assert streamed.response["usage"]["total_tokens"] > 0


# An upstream of OpenAI's kind says `""` in a stream and null in a document where it says nothing.
@pytest.mark.parametrize("name", sorted(SCRIPTS.keys() - {"nothing"}))
async def test_a_response_is_the_same_however_it_is_asked_for(stand: ResponsesStand, name: str) -> None:
    script = SCRIPTS[name]
    streamed = (await stand.stream(script, tools=[WEATHER])).response
    for model in (MODEL, ALWAYS, NEVER):
        same_answer(streamed, await stand.whole(script, tools=[WEATHER], model=model))
    for model in (ALWAYS, NEVER):
        same_answer(streamed, (await stand.stream(script, tools=[WEATHER], model=model)).response)


@pytest.mark.parametrize("size", [1, 7, 100])
async def test_a_stream_is_the_same_however_it_is_cut(stand: ResponsesStand, size: int) -> None:
    script = SCRIPTS["all of them"]
    whole = await stand.stream(script)
    cut = await stand.stream(
        Script(reasoning_tokens=2, tokens=3, tool_calls=PARALLEL, framing=Framing(piece_bytes=size))
    )
    assert anonymous(cut) == anonymous(whole)


def anonymous(streamed: Streamed) -> list[str]:
    """The events without the ids that are made for each response."""
    made = streamed.response["id"].removeprefix("resp_")
    events = [repr(event).replace(made, "ID") for event in streamed.events]
    return [re.sub(r"'(created_at|completed_at)': \d+", "", event) for event in events]


async def test_the_events_of_a_text_come_in_order(stand: ResponsesStand) -> None:
    streamed = await stand.stream(Script())
    assert streamed.types == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * 8,
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert streamed.text == TEXT


async def test_each_token_comes_when_it_is_made(stand: ResponsesStand) -> None:
    script = Script(tokens=2, pace=30.0)
    async with stand.wire.connected(script, path=RESPONSES, body=request(stream=True)) as caller:
        await caller.connection.head()
        seen = b""
        while b"output_text.delta" not in seen:
            seen += await caller.connection.chunk()
        assert seen.endswith(b"\n\n"), "an event is sent whole"


# === ids ===


async def test_ids_are_made_once_and_cannot_be_guessed(stand: ResponsesStand) -> None:
    script = Script(reasoning_tokens=1, tokens=1, tool_calls=(ToolCall(id="call_up"),))
    responses = [(await stand.stream(script)).response for _ in range(3)]
    responses += [await stand.whole(script) for _ in range(3)]
    ids = {response["id"] for response in responses}
    assert len(ids) == 6
    assert all(re.fullmatch(r"resp_[0-9a-f]{32,}", one) for one in ids)
    for response in responses:
        reasoning, message, call = response["output"]
        assert re.fullmatch(r"rs_\w{32,}", reasoning["id"])
        assert re.fullmatch(r"msg_\w{32,}", message["id"])
        assert re.fullmatch(r"fc_\w{32,}", call["id"])
        assert call["call_id"] == "call_up"
    assert len({item["id"] for response in responses for item in response["output"]}) == 18


# === what a response says of its request and of its upstream ===


async def test_a_response_repeats_its_request(stand: ResponsesStand) -> None:
    asked: dict[str, Any] = {
        "instructions": "Be brief.",
        "max_output_tokens": 50,
        "metadata": {"team": "a"},
        "parallel_tool_calls": False,
        "temperature": 0.5,
        "top_p": 0.25,
        "tool_choice": "required",
        "tools": [WEATHER],
        "truncation": "disabled",
        "user": "u",
        "text": {"format": {"type": "json_object"}},
        "reasoning": {"effort": "low"},
        "store": False,
    }
    script = Script(tokens=0, tool_calls=(ToolCall(),))
    for response in ((await stand.stream(script, **asked)).response, await stand.whole(script, **asked)):
        for name, value in asked.items():
            if isinstance(value, dict):
                assert value.items() <= response[name].items()
            elif name == "tools":
                assert WEATHER.items() <= response["tools"][0].items()
            else:
                assert response[name] == value
        assert response["model"] == MODEL


async def test_a_reply_may_name_the_public_model(stand: ResponsesStand) -> None:
    script = Script(model="small-2026-01")
    assert (await stand.stream(script)).response["model"] == "small-2026-01"
    assert (await stand.stream(script, model="public")).response["model"] == "public"
    assert (await stand.whole(script, model="public"))["model"] == "public"


# === usage and cost ===


@pytest.mark.parametrize("model", [MODEL, ALWAYS, NEVER])
@pytest.mark.parametrize("streams", [True, False])
async def test_usage_and_cost_are_in_the_last_event_and_in_the_log(
    stand: ResponsesStand, model: str, streams: bool
) -> None:
    usage = UsageScript(input_tokens=14, cached_tokens=3)
    exchange = await stand.ask(Script(tokens=7, usage=usage), model=model, stream=streams)
    response = check(exchange.body).response if streams else exchange.reply.json()
    assert response["usage"] == {
        "input_tokens": 14,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 21,
        "cost": 0.0000393,
        "cost_details": {
            "input_cost": 0.000011,
            "cached_input_cost": 0.0000003,
            "cache_write_cost": 0,
            "output_cost": 0.000028,
            "reasoning_cost": 0,
        },
    }
    line = exchange.line
    assert (line["endpoint"], line["result"], line["cost"]) == ("responses", "ok", "0.0000393")
    assert (line["input_tokens"], line["cached_input_tokens"], line["output_tokens"]) == (14, 3, 7)
    assert line["streamed"] is streams
    if streams:
        assert line["time_to_first_token"] > 0


async def test_metrics_name_the_endpoint(stand: ResponsesStand) -> None:
    await stand.stream(Script())
    metrics = await stand.wire.gateway.metrics()
    served = {"endpoint": "responses", "status": "200", "result": "ok", "model": MODEL, "upstream": "local"}
    assert (metrics.value("sluicegate_requests_total", **served) or 0) >= 1
    assert (metrics.value("sluicegate_tokens_total", kind="output", model=MODEL, upstream="local") or 0) >= 8
    assert metrics.value("sluicegate_active_streams", model=MODEL) == 0


async def test_a_reply_without_usage_has_none(stand: ResponsesStand) -> None:
    streamed = await stand.stream(body(event(chunk("Hi", finish="stop")) + DONE))
    assert streamed.response["usage"] is None
    assert streamed.text == "Hi"


# === what goes wrong ===


@pytest.mark.parametrize("done", [True, False], ids=["with an end mark", "without"])
async def test_an_error_in_a_stream_that_nobody_streams_is_the_status(
    stand: ResponsesStand, done: bool
) -> None:
    """One document says so, and only once: nothing was said before the stream's end."""
    error = event({"error": {"message": "Overloaded.", "type": "server_error", "code": None, "param": None}})
    before = event(chunk("Hi")) + error
    after = event(chunk("!", finish="stop")) + (DONE if done else b"")
    for pauses in ((0.0, 0.0), (0.05, 0.0), (0.0, 0.05)):
        script = body(before, pauses[0], after, pauses[1])
        exchange = await stand.ask(script, model=ALWAYS)
        assert (exchange.reply.status, exchange.reply.json()["error"]["code"]) == (502, "in_band_error")
        assert (exchange.line["fault"], exchange.line["result"]) == ("in_band_error", "failed")


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (Script(faults=(Fault(action="close", events=5),)), "truncated"),
        (Script(faults=(Fault(action="reset", events=5),)), "truncated"),
        (Script(faults=(Fault(action="close", at="mid_event", events=5),)), "truncated"),
        (Script(faults=(Fault(action="stall", events=5),)), "between_tokens_timeout"),
        (Script(reasoning_tokens=9, faults=(Fault(action="close", events=5),)), "truncated"),
        (
            Script(tokens=0, tool_calls=(ToolCall(),), faults=(Fault(action="close", events=4),)),
            "truncated",
        ),
    ],
    ids=["closed", "reset", "within an event", "stalled", "while it reasons", "within a call"],
)
async def test_a_stream_that_breaks_off_fails_with_its_items_closed(
    stand: ResponsesStand, script: Script, code: str
) -> None:
    exchange = await stand.ask(script, model=HURRIED, stream=True)
    streamed = check(exchange.body, complete=True)
    assert streamed.types[-2:] == ["error", "failed"]
    assert streamed.events[-2]["code"] == code
    assert "'hurried'" in streamed.events[-2]["message"]
    assert streamed.response["status"] == "failed"
    assert [item.get("status") for item in streamed.output][-1] == "incomplete"
    assert (exchange.line["result"], exchange.line["fault"]) == ("failed", code)
    assert exchange.line["estimated"] is True


async def test_an_error_of_the_upstream_in_its_stream_is_told(stand: ResponsesStand) -> None:
    error = {"message": "Out of memory.", "type": "server_error", "code": "oom"}
    exchange = await stand.ask(Script(faults=(Fault(action="error", events=4, error=error),)), stream=True)
    streamed = check(exchange.body, complete=True)
    assert streamed.events[-2]["message"] == streamed.response["error"]["message"] == "Out of memory."
    assert streamed.events[-2]["code"] == "oom"
    assert (exchange.line["result"], exchange.line["fault"]) == ("failed", "in_band_error")


async def test_an_abort_is_a_failure(stand: ResponsesStand) -> None:
    exchange = await stand.ask(Script(finish_reason="abort"), stream=True)
    assert check(exchange.body, complete=True).response["status"] == "failed"
    assert exchange.line["result"] == "failed"


@pytest.mark.parametrize("streams", [True, False])
async def test_an_upstreams_error_is_passed_on(stand: ResponsesStand, streams: bool) -> None:
    error = {"message": "Too long.", "type": "invalid_request_error", "param": None, "code": "too_long"}
    exchange = await stand.ask(Script(status=400, error=error), stream=streams)
    assert (exchange.reply.status, exchange.reply.json()) == (400, {"error": error})


async def test_a_reply_that_is_no_reply_is_an_error(stand: ResponsesStand) -> None:
    for sent in (b"<html>", b'{"answer": 42}', b""):
        exchange = await stand.ask(body(sent, content_type="text/plain"))
        assert exchange.reply.status == 502, sent
        assert exchange.reply.json()["error"].keys() == {"message", "type", "param", "code"}


async def test_a_whole_reply_that_breaks_off_is_an_error(stand: ResponsesStand) -> None:
    exchange = await stand.ask(Script(faults=(Fault(action="close", events=3),)), model=ALWAYS)
    assert exchange.reply.status == 502
    assert exchange.reply.json()["error"]["code"] == "truncated"


async def test_a_client_that_leaves_ends_the_upstream(stand: ResponsesStand) -> None:
    script = Script(tokens=10_000, pace=0.01)
    async with stand.wire.connected(script, path=RESPONSES, body=request(stream=True)) as caller:
        await caller.connection.head()
        await caller.read(6000)
    async with asyncio.timeout(10):
        assert (await stand.wire.request.ended()).client_left
    line = await caller.line()
    assert (line["result"], line["estimated"]) == ("client_left", True)
    assert line["output_tokens"] > 0


async def test_comments_pass_between_events(stand: ResponsesStand) -> None:
    framing = Framing(keepalive_every_events=1)
    exchange = await stand.ask(Script(framing=framing), stream=True)
    assert b": keep-alive\n\n" in exchange.body
    assert check(exchange.body).text == TEXT


async def test_what_an_upstream_says_after_the_end_is_not_said(stand: ResponsesStand) -> None:
    sent = event(chunk("Hi", finish="stop")) + event(
        usage_chunk({"prompt_tokens": 1, "completion_tokens": 1})
    )
    exchange = await stand.ask(body(sent + DONE + event(chunk("more")) + DONE), stream=True)
    assert check(exchange.body).text == "Hi"
    assert exchange.line["output_tokens"] == 1


async def test_whole_and_streamed_texts_are_those_of_the_upstream(stand: ResponsesStand) -> None:
    script = SCRIPTS["escapes"]
    assert script.text is not None
    exchange = await stand.ask(script, stream=True)
    deltas = [one["delta"] for one in payloads(exchange.body) if one["type"].endswith("text.delta")]
    assert "".join(deltas) == script.text
    response = await stand.whole(script)
    validate(response)
    assert text_of(response) == script.text
