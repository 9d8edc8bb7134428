"""Comments that keep a client's connection alive while an upstream is silent: off unless configured."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

import sse_reference
from harness.wire_stand import (
    DONE,
    MODEL,
    REPORTED,
    Exchange,
    WireStand,
    assert_billed_as_reported,
    chunk,
    completion,
    dumps,
    event,
    priced,
    usage_chunk,
    wire_stand,
)
from sluicegate.testing import Fault, Script, ScriptedUpstream, body

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVERY = 0.1
SILENCE = 1.0
"""Seconds: many times as long."""
SELDOM = 2.0
COMMENT = b": keep-alive\n\n"
ASKED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
ANSWER = event(chunk("a")) + event(chunk(finish="stop")) + event(usage_chunk(REPORTED)) + DONE


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    async with ScriptedUpstream(body(ANSWER)) as spare:
        config = {
            "server": {"keepalive_seconds": EVERY},
            "upstreams": {
                "spare": {"base_url": spare.base_url},
                "hasty": {"deadlines": {"first_token": SILENCE}},
            },
            "models": {"pair": [f"local/{MODEL}", f"spare/{MODEL}"], "hasty": f"hasty/{MODEL}"},
        }
        async with wire_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
            yield stand


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def quiet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    async with wire_stand(tmp_path_factory.mktemp("quiet")) as stand:
        yield stand


def without_comments(exchange: Exchange, at_least: int = 2) -> bytes:
    """The body but for the gateway's own comments, of which there must be some."""
    assert exchange.body.count(COMMENT) >= at_least
    return exchange.body.replace(COMMENT, b"")


async def test_a_silent_upstreams_client_gets_comments_before_the_head(wire: WireStand) -> None:
    exchange = await wire.ask(Script(head_delay=SILENCE, body=(ANSWER,)), **ASKED)
    assert exchange.body.startswith(COMMENT)
    assert without_comments(exchange) == priced(ANSWER)
    assert exchange.reply.status == 200
    assert exchange.reply.headers["content-type"].startswith("text/event-stream")
    assert exchange.reply.headers["cache-control"] == "no-cache"
    assert exchange.reply.headers["x-accel-buffering"] == "no"
    assert_billed_as_reported(exchange.line)


async def test_it_gets_them_between_events(wire: WireStand) -> None:
    first, rest = ANSWER.split(b"\n\n", 1)
    exchange = await wire.ask(body(first + b"\n\n", SILENCE, rest), **ASKED)
    assert exchange.body.startswith(first + b"\n\n" + COMMENT)
    assert without_comments(exchange) == priced(ANSWER)


async def test_none_stands_within_an_event(wire: WireStand) -> None:
    first, rest = ANSWER[:40], ANSWER[40:]
    exchange = await wire.ask(body(first, SILENCE, rest), **ASKED)
    assert without_comments(exchange) == priced(ANSWER)
    assert exchange.body.startswith(COMMENT)


async def test_the_upstreams_own_keep_alives_are_enough(tmp_path_factory: pytest.TempPathFactory) -> None:
    steps = [step for _ in range(20) for step in (b": ping\n\n", SELDOM / 15)]
    config = {"server": {"keepalive_seconds": SELDOM}}
    async with wire_stand(tmp_path_factory.mktemp("seldom"), config) as stand:
        exchange = await stand.ask(body(*steps, ANSWER), **ASKED)
    assert exchange.line["duration"] > SELDOM
    assert exchange.body == b": ping\n\n" * 20 + priced(ANSWER)


async def test_a_comment_is_nothing_but_a_comment(wire: WireStand) -> None:
    """`id:` and `retry:` break some clients, and data that is no chunk breaks all."""
    exchange = await wire.ask(body(b": ping\n\n", SILENCE, ANSWER), **ASKED)
    lines = set(exchange.body.replace(priced(ANSWER), b"").split(b"\n"))
    assert lines == {b": ping", b": keep-alive", b""}
    assert [sse.data for sse in sse_reference.parse(exchange.body)] == [
        sse.data for sse in sse_reference.parse(priced(ANSWER))
    ]


async def test_they_are_off_by_default(quiet: WireStand) -> None:
    exchange = await quiet.ask(body(b": ping\n\n", SILENCE, ANSWER), **ASKED)
    assert exchange.body == b": ping\n\n" + priced(ANSWER)


async def test_a_client_that_does_not_stream_gets_none(wire: WireStand) -> None:
    document = dumps(completion(usage=REPORTED))
    slow = body(document[:10], SILENCE, document[10:], content_type="application/json")
    exchange = await wire.ask(slow)
    assert exchange.body == priced(document)
    exchange = await wire.ask(Script(head_delay=SILENCE, status=429))
    assert exchange.reply.status == 429


async def test_a_late_document_becomes_a_stream_all_the_same(wire: WireStand) -> None:
    slow = Script(
        head_delay=SILENCE, body=(dumps(completion(usage=REPORTED)),), content_type="application/json"
    )
    exchange = await wire.ask(slow, **ASKED)
    stream = without_comments(exchange)
    assert stream.startswith(b"data: {")
    assert stream.endswith(DONE)
    assert_billed_as_reported(exchange.line)


async def test_a_late_error_reply_is_an_error_event(wire: WireStand) -> None:
    """The status has gone out with the first comment."""
    error = {"message": "Slow down.", "type": "requests", "code": "rate_limit_exceeded", "param": None}
    exchange = await wire.ask(Script(head_delay=SILENCE, status=429, error=error), **ASKED)
    assert exchange.reply.status == 200
    [event_] = sse_reference.parse(without_comments(exchange))
    assert json.loads(event_.data) == {"error": error}
    assert b"[DONE]" not in exchange.body
    assert (exchange.line["fault"], exchange.line["result"]) == ("status", "failed")


async def test_a_deadline_behind_comments_is_an_error_event(wire: WireStand) -> None:
    exchange = await wire.ask(
        Script(faults=(Fault(action="stall", at="before_head"),)), model="hasty", **ASKED
    )
    [event_] = sse_reference.parse(without_comments(exchange))
    assert json.loads(event_.data)["error"]["code"] == "first_token_timeout"
    assert b"[DONE]" not in exchange.body


async def test_what_is_no_reply_is_an_error_event(wire: WireStand) -> None:
    script = Script(head_delay=SILENCE, body=(b"<html>\n</html>",), content_type="text/html")
    exchange = await wire.ask(script, **ASKED)
    [event_] = sse_reference.parse(without_comments(exchange))
    error = json.loads(event_.data)["error"]
    assert error["code"] == "protocol"
    assert '"<html> </html>"' in error["message"]


async def test_comments_are_no_output_another_upstream_may_still_serve(wire: WireStand) -> None:
    exchange = await wire.ask(Script(head_delay=SILENCE, status=500), model="pair", **ASKED)
    assert without_comments(exchange) == priced(ANSWER)
    assert (exchange.line["upstream"], exchange.line["attempts"]) == ("spare", 2)
    assert_billed_as_reported(exchange.line)


async def test_a_preamble_that_is_held_back_is_a_silence(wire: WireStand) -> None:
    role = event({"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]})
    exchange = await wire.ask(body(role, SILENCE, ANSWER), model="pair", **ASKED)
    assert exchange.body.startswith(COMMENT)
    assert without_comments(exchange) == role + priced(ANSWER)
