"""What is forwarded and is no conversation: speech, images, moderations, rankings, scores, tokens."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from harness.wire_stand import MODEL, Exchange, WireStand, dumps, event, sent_up, wire_stand
from sluicegate.testing import Fault, Script, UsageScript, body

pytestmark = pytest.mark.asyncio(loop_scope="module")

SPEECH = "/v1/audio/speech"
SAID = {"model": MODEL, "input": "Say something.", "voice": "alloy"}
HTML = b"<html><head><title>Welcome</title></head><body>It works</body></html>"
USAGE = {"input_tokens": 14, "output_tokens": 7, "total_tokens": 21}

ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "/v1/moderations": ("moderations", {"input": ["a", "b"]}),
    "/v1/rerank": ("rerank", {"query": "a", "documents": ["b", "c"]}),
    "/rerank": ("rerank", {"query": "a", "documents": ["b", "c"]}),
    "/v2/rerank": ("rerank", {"query": "a", "documents": ["b", "c"]}),
    "/v1/score": ("score", {"text_1": "a", "text_2": "b"}),
    "/score": ("score", {"text_1": "a", "text_2": "b"}),
    "/tokenize": ("tokenize", {"prompt": "Hi"}),
    "/detokenize": ("detokenize", {"tokens": [72, 105]}),
    "/v1/images/generations": ("image_generations", {"prompt": "a boat", "n": 2}),
    SPEECH: ("speech", {"input": "Hi", "voice": "alloy"}),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    config = {
        "upstreams": {
            "keyed": {"api_key": "sk-ours"},
            "spare": {},
            "slow": {"deadlines": {"between_tokens": 0.4}},
        },
        "models": {
            "renamed": "keyed/theirs",
            "pair": [f"local/{MODEL}", "spare/second"],
            "slow": f"slow/{MODEL}",
        },
    }
    async with wire_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
        yield stand


async def ask(wire: WireStand, script: Script, path: str, **members: Any) -> Exchange:
    return await wire.ask(script, path=path, body=json.dumps({"model": MODEL} | members).encode())


@pytest.mark.parametrize("path", ASKED)
async def test_each_is_forwarded_to_where_servers_have_it(wire: WireStand, path: str) -> None:
    name, members = ASKED[path]
    exchange = await ask(wire, Script(), path, **members, unknown={"kept": 1.50})
    assert exchange.reply.status == 200
    assert wire.request.path == path
    assert (
        wire.request.request.body
        == json.dumps({"model": MODEL, **members, "unknown": {"kept": 1.5}}).encode()
    )
    assert (exchange.line["endpoint"], exchange.line["result"]) == (name, "ok")
    assert exchange.line["model"] == MODEL


@pytest.mark.parametrize("path", ASKED)
async def test_each_has_its_model_renamed_and_our_key(wire: WireStand, path: str) -> None:
    exchange = await ask(wire, Script(), path, model="renamed", **ASKED[path][1])
    assert exchange.reply.status == 200
    assert json.loads(wire.request.request.body)["model"] == "theirs"
    assert sent_up(wire)["authorization"] == ["Bearer sk-ours"]


@pytest.mark.parametrize("path", ASKED)
async def test_each_goes_on_to_the_next_upstream(wire: WireStand, path: str) -> None:
    wire.upstream.enqueue(Script(status=503))
    exchange = await ask(wire, Script(), path, model="pair", **ASKED[path][1])
    assert exchange.reply.status == 200
    assert exchange.line["attempts"] == 2
    assert json.loads(wire.request.request.body)["model"] == "second"


@pytest.mark.parametrize("path", ASKED)
async def test_a_page_in_place_of_a_reply_is_a_fault(wire: WireStand, path: str) -> None:
    exchange = await ask(wire, body(HTML, content_type="text/html"), path, **ASKED[path][1])
    assert exchange.reply.status == 502
    error = json.loads(exchange.body)["error"]
    assert error["code"] == "protocol"
    assert "It works" in error["message"]


@pytest.mark.parametrize("path", ASKED)
async def test_an_error_of_the_upstream_is_the_clients(wire: WireStand, path: str) -> None:
    exchange = await ask(wire, Script(status=422), path, **ASKED[path][1])
    assert exchange.reply.status == 422
    assert "error" in json.loads(exchange.body)


async def test_without_a_model_it_is_refused(wire: WireStand) -> None:
    exchange = await wire.ask(Script(), path="/v1/moderations", body=b'{"input":"a"}')
    assert exchange.reply.status == 400
    assert json.loads(exchange.body)["error"]["code"] == "missing_model"


# === usage ===


async def test_a_ranking_is_billed_by_its_total(wire: WireStand) -> None:
    script = Script(usage=UsageScript(input_tokens=1000))
    exchange = await ask(wire, script, "/v2/rerank", query="a", documents=["b"])
    assert json.loads(exchange.body)["usage"]["cost"] == 0.001
    assert (exchange.line["input_tokens"], exchange.line["cost"]) == (1000, "0.001")


async def test_cohere_units_are_read(wire: WireStand) -> None:
    reply = {"results": [], "meta": {"billed_units": {"search_units": 1, "input_tokens": 1000}}}
    script = body(dumps(reply), content_type="application/json")
    exchange = await ask(wire, script, "/v2/rerank", query="a", documents=["b"])
    assert exchange.body == dumps(reply), "there is no usage object to put a cost into"
    assert (exchange.line["input_tokens"], exchange.line["cost"]) == (1000, "0.001")


async def test_an_image_is_billed_by_its_tokens(wire: WireStand) -> None:
    script = Script(tokens=10, usage=UsageScript(input_tokens=1000))
    exchange = await ask(wire, script, "/v1/images/generations", prompt="a boat")
    assert json.loads(exchange.body)["usage"]["cost"] == 0.00104
    assert (exchange.line["input_tokens"], exchange.line["output_tokens"]) == (1000, 10)


async def test_a_streamed_image_is_events_with_a_cost(wire: WireStand) -> None:
    script = Script(tokens=10, usage=UsageScript(input_tokens=1000))
    exchange = await ask(wire, script, "/v1/images/generations", prompt="a boat", stream=True)
    *_, last = [line for line in exchange.body.decode().splitlines() if line.startswith("data: ")]
    event = json.loads(last.removeprefix("data: "))
    assert event["type"] == "image_generation.completed"
    assert event["usage"]["cost"] == 0.00104
    assert (exchange.line["result"], exchange.line["finish_reason"]) == ("ok", "completed")


# === speech ===


@pytest.mark.parametrize("kind", ["audio/mpeg", "audio/wav", "application/octet-stream"])
async def test_audio_is_forwarded_as_it_is(wire: WireStand, kind: str) -> None:
    audio = bytes(range(256)) * 10
    exchange = await ask(wire, body(b'{"usage":', audio, b"data: x\n\n", content_type=kind), SPEECH, **SAID)
    assert exchange.body == b'{"usage":' + audio + b"data: x\n\n"
    assert exchange.reply.headers["content-type"] == kind
    assert exchange.line["result"] == "ok"
    assert "input_tokens" not in exchange.line


async def test_audio_comes_piece_by_piece(wire: WireStand) -> None:
    asked = json.dumps(SAID).encode()
    script = Script(tokens=2, faults=(Fault(action="stall"),))
    async with wire.connected(script, path=SPEECH, body=asked) as caller:
        await caller.connection.head()
        assert len(await caller.read(1024)) == 1024
    line = await caller.line()
    assert line["result"] == "client_left"
    assert line["time_to_first_token"] >= 0
    assert "estimated" not in line


async def test_audio_that_breaks_off_cuts_the_client(wire: WireStand) -> None:
    script = Script(tokens=3, faults=(Fault(action="close"),))
    exchange = await ask(wire, script, SPEECH, **SAID)
    assert (len(exchange.body), exchange.reply.ended) == (1024, "eof")
    assert (exchange.line["result"], exchange.line["fault"]) == ("failed", "truncated")


async def test_audio_that_stalls_meets_the_deadline_between_tokens(wire: WireStand) -> None:
    asked = json.dumps(SAID | {"model": "slow"}).encode()
    script = Script(tokens=2, faults=(Fault(action="stall"),))
    async with wire.connected(script, path=SPEECH, body=asked) as caller:
        reply = await caller.connection.reply()
    assert (len(reply.body), reply.ended) == (1024, "eof")
    assert (await caller.line())["fault"] == "between_tokens_timeout"


async def test_a_steady_stream_of_audio_does_not(wire: WireStand) -> None:
    script = Script(tokens=8, pace=0.1)
    exchange = await ask(wire, script, SPEECH, **(SAID | {"model": "slow"}))
    assert len(exchange.body) == 8 * 1024
    assert exchange.line["result"] == "ok"


async def test_no_audio_at_all_is_a_fault(wire: WireStand) -> None:
    exchange = await ask(wire, Script(tokens=0), SPEECH, **SAID)
    assert exchange.reply.status == 502
    assert json.loads(exchange.body)["error"]["code"] == "empty"


async def test_speech_as_events_is_billed(wire: WireStand) -> None:
    script = Script(tokens=3, usage=UsageScript(input_tokens=1000))
    exchange = await ask(wire, script, SPEECH, **SAID, stream_format="sse")
    assert exchange.reply.headers["content-type"].startswith("text/event-stream")
    lines = exchange.body.decode().splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert [event["type"] for event in events] == ["speech.audio.delta"] * 3 + ["speech.audio.done"]
    assert events[-1]["usage"]["cost"] == 0.001012
    assert exchange.line["output_tokens"] == 3


async def test_events_that_break_off_end_with_an_error(wire: WireStand) -> None:
    script = body(event({"type": "speech.audio.delta", "audio": "AA=="}))
    exchange = await ask(wire, script, SPEECH, **SAID, stream_format="sse")
    assert b'"code":"truncated"' in exchange.body
    assert exchange.line["fault"] == "truncated"


async def test_an_error_in_json_is_read_among_audio(wire: WireStand) -> None:
    script = body(dumps({"error": {"message": "no voice"}}), content_type="application/json")
    exchange = await ask(wire, script, SPEECH, **SAID)
    assert exchange.line["fault"] == "in_band_error"


async def test_many_at_once_get_their_own(wire: WireStand) -> None:
    wire.upstream.script = Script()
    asked = [{"model": MODEL, "prompt": f"text {number}"} for number in range(24)]
    exchanges = await asyncio.gather(
        *(wire.ask(Script(), path="/tokenize", body=json.dumps(members).encode()) for members in asked)
    )
    for exchange, members in zip(exchanges, asked, strict=True):
        assert json.loads(exchange.body)["tokens"] == [ord(letter) for letter in members["prompt"]]
