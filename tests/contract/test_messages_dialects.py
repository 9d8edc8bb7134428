"""Servers of the Messages API that deviate from Anthropic's: each client reads what they say all the same."""

import json
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import pytest
import pytest_asyncio

from harness.wire_stand import MODEL, Exchange, WireStand, wire_stand
from matrix import chat, messages, responses
from matrix.heard import Heard, read_json, spelled
from sluicegate.testing import Script, ToolCall, UsageScript
from sluicegate.testing.dialects import DialectName

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLIENTS: dict[str, ModuleType] = {"chat": chat, "responses": responses, "messages": messages}
DIALECTS: tuple[DialectName, ...] = ("bedrock", "llamacpp", "ollama", "sglang", "vllm")
THOUGHT = "The skipper wants"
USAGE = UsageScript(input_tokens=100, cached_tokens=30, output_tokens=20)
CALLS = (
    ToolCall(name="get_weather", arguments='{"city":"Rome","n":[1,2]}', id="toolu_1"),
    ToolCall(name="get_time", arguments="{}", id="toolu_2"),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    settings = {"api": "messages", "messages": {"signed": False}}
    config = {
        # For a client of Messages these streams have to be written again, which is what `repair` says.
        "upstreams": {"other": settings, "repaired": {**settings, "repair": True}},
        "models": {"other": f"other/{MODEL}", "repaired": f"repaired/{MODEL}"},
        "prices": {name: {"input": 1, "cached_input": 0.1, "output": 4} for name in ("other", "repaired")},
    }
    async with wire_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
        yield stand


async def ask(wire: WireStand, client: str, script: Script, turns: list[Any], *, streams: bool) -> Exchange:
    module = CLIENTS[client]
    model = "repaired" if client == "messages" else "other"
    body = json.dumps(module.request(model, turns, streams=streams)).encode()
    return await wire.ask(script, path=module.PATH, body=body)


async def heard(wire: WireStand, client: str, script: Script, *, streams: bool) -> Heard:
    exchange = await ask(wire, client, script, ["Hi"], streams=streams)
    assert exchange.reply.status == 200, exchange.body
    assert exchange.line["result"] == "ok"
    module = CLIENTS[client]
    found: Heard = module.stream(exchange.body) if streams else module.whole(read_json(exchange.body))
    assert found.error is None
    return found


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_all_that_is_said_arrives(
    wire: WireStand, dialect: DialectName, client: str, streams: bool
) -> None:
    script = Script(
        text="A look.", reasoning_tokens=3, tool_calls=CALLS, usage=USAGE, dialect=dialect, stream=True
    )
    found = await heard(wire, client, script, streams=streams)
    assert (found.text, found.reasoning) == ("A look.", THOUGHT)
    assert found.calls == [(call.id, call.name, spelled(call.arguments)) for call in CALLS]
    assert found.stop == {"chat": "tool_calls", "responses": "completed", "messages": "tool_use"}[client]
    counts = CLIENTS[client].counts(found.usage)
    assert (counts["input"], counts["cached"], counts["output"]) == (100, 30, 20)
    # 70 at 1, 30 at 0.1, 20 at 4 USD per million tokens.
    assert found.usage["cost"] == 0.000153


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_reason_that_vllm_does_not_know_is_a_regular_end(wire: WireStand, client: str) -> None:
    script = Script(text="Yes.", finish_reason="repetition", dialect="vllm")
    found = await heard(wire, client, script, streams=True)
    assert found.text == "Yes."
    assert found.stop == {"chat": "stop", "responses": "completed", "messages": "end_turn"}[client]


@pytest.mark.parametrize(("dialect", "stop"), [("sglang", "stop"), ("vllm", "content_filter")])
async def test_a_filters_end_is_what_the_upstream_calls_it(
    wire: WireStand, dialect: DialectName, stop: str
) -> None:
    script = Script(text="No.", finish_reason="content_filter", dialect=dialect)
    assert (await heard(wire, "chat", script, streams=True)).stop == stop


@pytest.mark.parametrize("client", ["chat", "responses"])
async def test_an_error_keeps_its_words_whatever_its_type(wire: WireStand, client: str) -> None:
    exchange = await ask(wire, client, Script(status=400, dialect="vllm"), ["Hi"], streams=False)
    error = exchange.reply.json()["error"]
    assert (exchange.reply.status, error["message"]) == (400, "Bad request.")
    assert error["type"] == "BadRequestError"


async def test_a_block_that_the_server_refuses_is_told_to_the_client(wire: WireStand) -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "A page."}
    turn = [{"type": "document", "source": source}]
    body = {"model": "repaired", "max_tokens": 9, "messages": [{"role": "user", "content": turn}]}
    exchange = await wire.ask(Script(dialect="vllm"), path="/v1/messages", body=json.dumps(body).encode())
    assert exchange.reply.status == 400
    assert "document" in exchange.reply.json()["error"]["message"]


async def test_a_server_that_cannot_count_is_not_asked_twice(wire: WireStand) -> None:
    body = {"model": "other", "messages": [{"role": "user", "content": "Hi"}]}
    exchange = await wire.ask(
        Script(dialect="ollama"), path="/v1/messages/count_tokens", body=json.dumps(body).encode()
    )
    assert (exchange.reply.status, exchange.line["attempts"]) == (404, 1)
    assert exchange.line["code"] == "tokens_not_counted"


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("dialect", ["llamacpp", "ollama", "sglang"])
async def test_reasoning_that_nobody_signed_goes_back_as_text(
    wire: WireStand, dialect: DialectName, client: str
) -> None:
    script = Script(text="Yes.", reasoning_tokens=3, dialect=dialect)
    found = await heard(wire, client, script, streams=True)
    exchange = await ask(wire, client, script, ["Hi", found.turn, "And?"], streams=False)
    assert exchange.reply.status == 200
    [turn] = [one["content"] for one in wire.request.json()["messages"] if one["role"] == "assistant"]
    thinking = [block for block in turn if block["type"] == "thinking"]
    assert [block["thinking"] for block in thinking] == [THOUGHT]
    assert all(not block.get("signature", "").startswith("sg1.") for block in thinking)
