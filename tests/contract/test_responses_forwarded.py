"""`/v1/responses` where the upstream serves it: forwarded, with usage and cost as for chat."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import pytest_asyncio

from harness.responses_stream import check
from harness.strict_openai import validate
from harness.wire_stand import DONE, MODEL, Exchange, WireStand, chunk, completion, dumps, event, wire_stand
from sluicegate.testing import Fault, Script, ScriptedUpstream, Step, ToolCall, UsageScript, body
from sse_reference import parse

pytestmark = pytest.mark.asyncio(loop_scope="module")

RESPONSES = "/v1/responses"
PATIENCE = 0.3

USAGE = {
    "input_tokens": 14,
    "input_tokens_details": {"cached_tokens": 3},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 21,
}
# 11 at 1, 3 at 0.1, 5 at 4 and 2 at 6 USD per million tokens.
COST = (
    b',"cost":0.0000433,"cost_details":{"input_cost":0.000011,"cached_input_cost":0.0000003,'
    b'"cache_write_cost":0,"output_cost":0.000032,"reasoning_cost":0.000012}'
)
RESPONSE = {
    "id": "resp_up1", "object": "response", "created_at": 1761000000, "model": f"{MODEL}-2026",
    "output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": None,
}  # fmt: skip


def named(kind: str, number: int, **members: Any) -> bytes:
    """One event, spelled in a way that no one would spell it again."""
    payload = json.dumps({"type": kind, "sequence_number": number, **members}, indent=1).split("\n")
    return f"event: {kind}\n".encode() + b"".join(f"data:{line}\n".encode() for line in payload) + b"\n"


def state(kind: str, number: int, **members: Any) -> bytes:
    status = "in_progress" if kind == "created" else kind
    return event_of(f"response.{kind}", number, response={**RESPONSE, "status": status, **members})


def event_of(kind: str, number: int, **members: Any) -> bytes:
    return f"event: {kind}\n".encode() + event({"type": kind, "sequence_number": number, **members})


CREATED = state("created", 0)
PROGRESS = state("in_progress", 1)
DELTA = {"item_id": "msg_1", "output_index": 0, "content_index": 0, "logprobs": []}
TOKEN = event_of("response.output_text.delta", 2, delta="Hi", **DELTA)
NO_QUOTA = event_of("error", 2, code="insufficient_quota", message="No quota.", param=None) + state(
    "failed", 3, error={"code": "server_error", "message": "No quota."}
)


@dataclass(frozen=True)
class Stand:
    """`native` serves Responses, `dual` both; `pair` is served by `native`, then by `spare`."""

    wire: WireStand
    spare: ScriptedUpstream

    async def ask(self, script: Script, *, model: str = MODEL, **members: Any) -> Exchange:
        return await self.wire.ask(script, path=RESPONSES, body=request(model=model, **members))

    async def stream(self, *steps: Step, model: str = MODEL) -> Exchange:
        return await self.ask(body(*steps), model=model, stream=True)


def request(**members: Any) -> bytes:
    return json.dumps({"model": MODEL, "input": "Say something.", **members}).encode()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    async with ScriptedUpstream() as spare:
        config = {
            "upstreams": {
                "native": {"api": "responses"},
                "dual": {"api": "both"},
                "hurried": {"api": "responses", "deadlines": {"between_tokens": PATIENCE}},
                "always": {"api": "responses", "streaming": "always"},
                "never": {"api": "responses", "streaming": "never"},
                "spare": {"api": "both", "base_url": spare.base_url},
            },
            "models": {
                MODEL: "native",
                "dual": f"dual/{MODEL}",
                "hurried": f"hurried/{MODEL}",
                "always": f"always/{MODEL}",
                "never": f"never/{MODEL}",
                "pair": [f"native/{MODEL}", f"spare/{MODEL}"],
                "public": {"routes": [f"native/{MODEL}"], "reply_model": "public"},
            },
        }
        async with wire_stand(tmp_path_factory.mktemp("gateway"), config) as wire:
            yield Stand(wire, spare)


# === a reply in the other form than was asked for ===


@pytest.mark.parametrize(("model", "sent"), [("always", True), (MODEL, None)])
async def test_a_stream_that_the_client_did_not_ask_for_is_folded(
    stand: Stand, model: str, sent: bool | None
) -> None:
    # transformers streams where the request does not say `stream`.
    script = Script(stream=True)
    exchange = await stand.ask(script, model=model)
    assert json.loads(stand.wire.request.body).get("stream") is sent
    assert exchange.reply.headers["content-type"] == "application/json"
    response = json.loads(exchange.body)
    validate(response, extra={"ResponseUsage": frozenset({"cost", "cost_details"})})
    assert (response["object"], response["status"]) == ("response", "completed")
    assert response["output"][-1]["content"][0]["text"]
    assert response["usage"]["cost"] > 0
    assert exchange.line["result"] == "ok"


@pytest.mark.parametrize(("model", "stream"), [("never", True), ("never", None), (MODEL, True)])
async def test_a_document_in_place_of_a_stream_is_unfolded(
    stand: Stand, model: str, stream: bool | None
) -> None:
    script = Script(stream=False)
    members = {} if stream is None else {"stream": stream}
    exchange = await stand.ask(script, model=model, **members)
    assert json.loads(stand.wire.request.body)["stream"] is (model == MODEL)
    if stream is None:
        assert json.loads(exchange.body)["status"] == "completed"
        return
    streamed = check(exchange.body)
    assert streamed.response["status"] == "completed"
    assert streamed.response["usage"]["cost"] > 0


# === bytes ===


@pytest.mark.parametrize("kind", ["completed", "incomplete", "failed"])
async def test_a_stream_is_forwarded_as_it_came_but_for_its_cost(stand: Stand, kind: str) -> None:
    odd = named("response.output_text.delta", 3, delta="\\u0041", unknown={"kept": [1.0]}, **DELTA)
    end = state(kind, 4, usage=USAGE)
    exchange = await stand.stream(CREATED, b": ping\n\n", PROGRESS, TOKEN, odd, end)
    plain = dumps(USAGE)
    assert exchange.body == CREATED + b": ping\n\n" + PROGRESS + TOKEN + odd + end.replace(
        plain, plain[:-1] + COST + b"}"
    )
    line = exchange.line
    assert (line["endpoint"], line["finish_reason"], line["cost"]) == ("responses", kind, "0.0000433")
    assert (line["input_tokens"], line["cached_input_tokens"]) == (14, 3)
    assert (line["output_tokens"], line["reasoning_tokens"]) == (7, 2)


async def test_a_document_is_forwarded_as_it_came_but_for_its_cost(stand: Stand) -> None:
    sent = dumps({**RESPONSE, "status": "completed", "usage": USAGE, "unknown": 1.50})
    exchange = await stand.ask(body(sent, content_type="application/json"))
    plain = dumps(USAGE)
    assert exchange.body == sent.replace(plain, plain[:-1] + COST + b"}")
    assert exchange.line["cost"] == "0.0000433"
    assert exchange.line["streamed"] is False


async def test_a_usage_that_comes_early_is_no_bill(stand: Stand) -> None:
    preview = state("in_progress", 1, usage={**USAGE, "output_tokens": 1, "total_tokens": 15})
    exchange = await stand.stream(CREATED, preview, TOKEN, state("completed", 3, usage=USAGE))
    assert exchange.body.startswith(CREATED + preview)
    assert exchange.line["cost"] == "0.0000433"


async def test_the_request_arrives_as_it_came_but_for_the_models_name(stand: Stand) -> None:
    sent = b'{"stream" : true,"model":"pair", "stream_options": {"include_obfuscation": false}, "x": 1.50}'
    exchange = await stand.wire.ask(Script(), path=RESPONSES, body=sent)
    seen = stand.wire.request
    assert seen.path == RESPONSES
    assert seen.body == sent.replace(b'"pair"', f'"{MODEL}"'.encode())
    assert check(exchange.body).text


async def test_a_reply_may_name_the_public_model(stand: Stand) -> None:
    exchange = await stand.ask(Script(), model="public", stream=True)
    assert check(exchange.body).response["model"] == "public"
    exchange = await stand.ask(Script(), model="public")
    assert validate(exchange.reply.json())
    assert exchange.reply.json()["model"] == "public"


@pytest.mark.parametrize("streams", [True, False])
async def test_a_healthy_reply_is_valid_and_has_its_cost(stand: Stand, streams: bool) -> None:
    script = Script(usage=UsageScript(input_tokens=14, cached_tokens=3), reasoning_tokens=2, tokens=5)
    exchange = await stand.ask(script, stream=streams)
    response = check(exchange.body).response if streams else exchange.reply.json()
    validate(response)
    assert response["usage"]["cost"] == 0.0000433
    assert exchange.line["cost"] == "0.0000433"


# === where it goes ===


async def test_an_upstream_may_serve_both(stand: Stand) -> None:
    exchange = await stand.ask(Script(), model="dual", stream=True)
    assert check(exchange.body).text
    assert stand.wire.request.path == RESPONSES
    exchange = await stand.wire.ask(body(event(chunk("Hi", finish="stop")) + DONE), model="dual", stream=True)
    assert exchange.body == event(chunk("Hi", finish="stop")) + DONE
    assert stand.wire.request.path == "/v1/chat/completions"
    exchange = await stand.wire.ask(body(dumps(completion()), content_type="application/json"), model="dual")
    assert exchange.body == dumps(completion())


async def test_the_next_upstream_is_tried_where_the_first_fails_behind_its_preamble(stand: Stand) -> None:
    stand.spare.script = body(CREATED, TOKEN, state("completed", 3))
    exchange = await stand.stream(CREATED, PROGRESS, NO_QUOTA, model="pair")
    assert exchange.body == CREATED + TOKEN + state("completed", 3)
    assert exchange.line["failed_attempts"] == ["native: in_band_error"]


async def test_none_is_tried_once_output_has_come(stand: Stand) -> None:
    exchange = await stand.stream(CREATED, TOKEN, NO_QUOTA, model="pair")
    assert exchange.body == CREATED + TOKEN + NO_QUOTA
    assert (exchange.line["result"], exchange.line["fault"]) == ("failed", "in_band_error")


# === what goes wrong ===


async def test_a_stream_that_breaks_off_ends_in_the_protocols_words(stand: Stand) -> None:
    exchange = await stand.stream(CREATED, PROGRESS, TOKEN, "close")
    sent = CREATED + PROGRESS + TOKEN
    assert exchange.body.startswith(sent)
    error, failed, done = parse(exchange.body.removeprefix(sent))
    assert (error.name, failed.name, done.data) == ("error", "response.failed", "[DONE]")
    for said in (error, failed):
        validate(said.json())
    assert error.json()["sequence_number"] == 3
    assert error.json()["code"] == "truncated"
    assert "'native'" in error.json()["message"]
    assert failed.json()["sequence_number"] == 4
    response = failed.json()["response"]
    assert (response["id"], response["model"]) == ("resp_up1", f"{MODEL}-2026")
    assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
    assert (exchange.line["result"], exchange.line["fault"]) == ("failed", "truncated")


@pytest.mark.parametrize("ending", ["close", "reset"])
async def test_wherever_a_stream_breaks_off_every_promise_is_kept(stand: Stand, ending: Any) -> None:
    calls = (ToolCall(id="call_1"), ToolCall(id="call_2", arguments='{"city":"Oslo"}'))
    whole = Script(reasoning_tokens=2, tokens=3, tool_calls=calls)
    events = len(check((await stand.ask(whole, stream=True)).body).events)
    assert events > 25
    output: list[Any] = []
    for count in range(1, events):
        script = replace(whole, faults=(Fault(action=ending, events=count),))
        streamed = check((await stand.ask(script, stream=True)).body)
        assert streamed.response["status"] == "failed"
        assert streamed.types[count:][-2:] == ["error", "failed"]
        assert len(streamed.output) >= len(output)
        output = streamed.output
    assert [item["type"] for item in output] == ["reasoning", "message", "function_call", "function_call"]


async def test_a_response_that_was_never_named_has_an_id_of_ours(stand: Stand) -> None:
    exchange = await stand.stream(b": ping\n\n", "close")
    streamed = check(exchange.body)
    assert streamed.types == ["created", "in_progress", "error", "failed"]
    assert streamed.response["id"].startswith("resp_")
    assert streamed.response["id"] != "resp_unknown"
    assert streamed.response["model"] == MODEL
    again = await stand.stream(b": ping\n\n", "close")
    assert check(again.body).response["id"] != streamed.response["id"]


async def test_an_upstreams_error_event_is_followed_by_the_failure(stand: Stand) -> None:
    alone = event_of("error", 3, code="insufficient_quota", message="No quota.", param=None)
    sent = CREATED + PROGRESS + TOKEN + alone
    for ending in ("close", "reset", b""):
        exchange = await stand.stream(sent, 0.05, ending)
        assert exchange.body.startswith(sent)
        failed, done = parse(exchange.body.removeprefix(sent))
        assert (failed.name, done.data) == ("response.failed", "[DONE]")
        validate(failed.json())
        assert failed.json()["sequence_number"] == 4
        assert failed.json()["response"]["error"]["message"] == "No quota."
        assert exchange.line["result"] == "failed"


async def test_a_stall_ends_in_the_protocols_words(stand: Stand) -> None:
    exchange = await stand.stream(CREATED, TOKEN, "stall", model="hurried")
    error, failed, _ = parse(exchange.body.removeprefix(CREATED + TOKEN))
    assert error.json()["code"] == "between_tokens_timeout"
    assert failed.json()["response"]["status"] == "failed"


@pytest.mark.parametrize("ending", ["close", "reset", "stall"])
async def test_nothing_is_said_after_a_terminal_event(stand: Stand, ending: Any) -> None:
    sent = CREATED + TOKEN + state("completed", 3)
    exchange = await stand.stream(sent, 0.05, ending, model="hurried")
    assert exchange.body == sent
    assert exchange.line["result"] == "ok"


@pytest.mark.parametrize("streams", [True, False])
async def test_an_upstreams_error_is_passed_on(stand: Stand, streams: bool) -> None:
    error = {"message": "Too long.", "type": "invalid_request_error", "param": "input", "code": "too_long"}
    exchange = await stand.ask(Script(status=400, error=error), stream=streams)
    assert (exchange.reply.status, exchange.reply.json()) == (400, {"error": error})
    assert exchange.line["result"] == "refused"


async def test_a_dead_upstream_is_a_502(stand: Stand) -> None:
    fault = Fault(action="reset", at="before_head")
    exchange = await stand.ask(Script(faults=(fault,)), stream=True)
    assert exchange.reply.status == 502
    error = exchange.reply.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["code"] == "reset"


async def test_a_client_that_leaves_ends_the_upstream(stand: Stand) -> None:
    script = Script(tokens=10_000, pace=0.01)
    async with stand.wire.connected(script, path=RESPONSES, body=request(stream=True)) as caller:
        await caller.connection.head()
        await caller.read(3000)
    async with asyncio.timeout(10):
        assert (await stand.wire.request.ended()).client_left
    line = await caller.line()
    assert (line["result"], line["estimated"]) == ("client_left", True)
    assert line["output_tokens"] > 0


async def test_metrics_name_the_endpoint(stand: Stand) -> None:
    await stand.ask(Script())
    served = {"endpoint": "responses", "status": "200", "result": "ok", "model": MODEL, "upstream": "native"}
    metrics = await stand.wire.gateway.metrics()
    assert (metrics.value("sluicegate_requests_total", **served) or 0) >= 1
    assert (metrics.value("sluicegate_tokens_total", kind="output", model=MODEL, upstream="native") or 0) >= 8
