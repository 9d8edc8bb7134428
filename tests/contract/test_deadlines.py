"""Five deadlines, each its own; keep-alives hold a connection open and are no tokens."""

import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

import sse_reference
from harness.wire_stand import (
    DONE,
    MODEL,
    Exchange,
    WireStand,
    chunk,
    completion,
    dumps,
    event,
    usage_chunk,
    wire_stand,
)
from sluicegate.testing import Fault, Script, Step, body, raw

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHORT = 0.4
"""Seconds of a deadline that shall pass. The others of its upstream are the defaults: minutes."""
FIRM = 2.0
"""Seconds of one that must not pass too soon: the model `firm_first_token` has such a first token."""
PAUSE = 0.15
"""Seconds well below it."""
FOR_EVER = 60.0
ASKED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
TOKEN = event(chunk("a"))
ROLE = event(
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
)


@contextlib.contextmanager
def full_listener() -> Iterator[int]:
    """A port where connections are neither accepted nor refused: its queue is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(16):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.connect(listener.getsockname())
        yield listener.getsockname()[1]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    with full_listener() as port:
        deadlines = {
            name + kind: {kind: seconds}
            for kind in ("first_byte", "first_token", "between_tokens", "total")
            for name, seconds in (("", SHORT), ("firm_", FIRM))
        }
        upstreams: dict[str, Any] = {name: {"deadlines": each} for name, each in deadlines.items()}
        upstreams["connect"] = {
            "base_url": f"http://127.0.0.1:{port}/v1", "deadlines": {"connect": SHORT}
        }  # fmt: skip
        config = {
            "upstreams": {name.replace("_", "-"): upstream for name, upstream in upstreams.items()},
            "models": {name: f"{name.replace('_', '-')}/{MODEL}" for name in upstreams},
        }
        async with wire_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
            yield stand


def assert_error_reply(exchange: Exchange, kind: str) -> None:
    """Nothing had gone to the client."""
    assert exchange.reply.status == 504
    error = exchange.reply.json()["error"]
    assert (error["type"], error["code"]) == ("upstream_error", f"{kind}_timeout")
    assert kind in error["message"], "says which deadline"
    assert f"'{kind.replace('_', '-')}'" in error["message"], "says which upstream"
    assert (exchange.line["fault"], exchange.line["status"]) == (f"{kind}_timeout", 504)


def assert_error_event(exchange: Exchange, sent: bytes, kind: str) -> None:
    """`sent` had gone to the client."""
    assert exchange.reply.status == 200
    assert exchange.body.startswith(sent)
    [last] = sse_reference.parse(exchange.body.removeprefix(sent))
    assert json.loads(last.data)["error"]["code"] == f"{kind}_timeout"
    assert b"[DONE]" not in exchange.body
    assert (exchange.line["fault"], exchange.line["result"]) == (f"{kind}_timeout", "failed")


async def timed(wire: WireStand, kind: str, *steps: Step, stream: bool = True) -> Exchange:
    started = time.monotonic()
    exchange = await wire.ask(body(*steps), model=kind, stream=stream)
    assert time.monotonic() - started > SHORT * 0.9
    assert (await wire.request.ended()).client_left, "the upstream's connection is closed"
    return exchange


# === connect ===


async def test_connect_is_bounded(wire: WireStand) -> None:
    exchange = await wire.stream(Script(), model="connect")
    assert_error_reply(exchange, "connect")
    assert exchange.line["duration"] > SHORT * 0.9


# === first byte ===


async def test_first_byte_is_bounded_before_the_head(wire: WireStand) -> None:
    exchange = await wire.stream(
        Script(faults=(Fault(action="stall", at="before_head"),)), model="first_byte"
    )
    assert_error_reply(exchange, "first_byte")
    assert (await wire.request.ended()).client_left


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "no stream"])
async def test_first_byte_is_bounded_after_the_head(wire: WireStand, stream: bool) -> None:
    assert_error_reply(await timed(wire, "first_byte", b"", "stall", stream=stream), "first_byte")


async def test_once_there_is_a_byte_it_is_over(wire: WireStand) -> None:
    sent: list[bytes | float] = [b":", FIRM + PAUSE, b" slow\n\n" + TOKEN + DONE]
    exchange = await wire.stream(body(*sent), model="firm_first_byte")
    assert exchange.line["result"] == "ok"
    assert exchange.body == b"".join(step for step in sent if isinstance(step, bytes))


# === first token ===


async def test_first_token_is_bounded_where_nothing_came(wire: WireStand) -> None:
    assert_error_reply(await timed(wire, "first_token", b"", "stall"), "first_token")


NO_TOKENS = {
    "a role": ROLE,
    "comments": b": ping\n\n",
    "usage": event(usage_chunk({"prompt_tokens": 1, "completion_tokens": 0}, choices=None)),
    "a filter chunk": event({"choices": [], "prompt_filter_results": []}),
    "empty content": event(chunk("")),
    "data that is no JSON": b"data: : keepalive\n\n",
    "an empty event": b"event: keepalive\ndata:\n\n",
}


def going_on_with(sent: bytes) -> list[bytes | float]:
    """The same again and again, until well after the deadline; then nothing."""
    return [step for _ in range(20) for step in (sent, FIRM / 10)] + [FOR_EVER]


async def test_what_is_no_token_does_not_end_the_wait_for_the_first(wire: WireStand) -> None:
    steps = map(going_on_with, NO_TOKENS.values())
    for name, exchange in zip(
        NO_TOKENS, await wire.ask_each(steps, model="firm_first_token", **ASKED), strict=True
    ):
        assert exchange.body.startswith(NO_TOKENS[name][:60]), "it comes as it is sent"
        assert exchange.line["fault"] == "first_token_timeout", name
        [*_, last] = sse_reference.parse(exchange.body)
        assert json.loads(last.data)["error"]["code"] == "first_token_timeout"


TOKENS = {
    "text": TOKEN,
    "reasoning": event({"choices": [{"delta": {"reasoning": "Hm"}}]}),
    "reasoning_content": event({"choices": [{"delta": {"reasoning_content": "Hm"}}]}),
    "refusal": event({"choices": [{"delta": {"refusal": "No"}}]}),
    "a tool call": event({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"name": "f"}}]}}]}),
    "a completion's text": event({"choices": [{"text": "a"}]}),
}


async def test_text_reasoning_and_tool_calls_are_tokens(wire: WireStand) -> None:
    steps: list[list[bytes | float]] = [[token, FIRM + PAUSE, DONE] for token in TOKENS.values()]
    exchanges = await wire.ask_each(steps, model="firm_first_token", **ASKED)
    for name, exchange in zip(TOKENS, exchanges, strict=True):
        assert exchange.body == TOKENS[name] + DONE, name
        assert exchange.line["result"] == "ok"
        assert exchange.line["time_to_first_token"] < FIRM


async def test_the_wait_for_the_first_token_counts_from_the_request(wire: WireStand) -> None:
    exchange = await wire.stream(
        Script(head_delay=SHORT * 0.6, first_token_delay=SHORT * 0.8), model="first_token"
    )
    assert exchange.line["fault"] == "first_token_timeout"


# === between tokens ===


async def test_between_tokens_is_bounded(wire: WireStand) -> None:
    assert_error_event(await timed(wire, "between_tokens", TOKEN, "stall"), TOKEN, "between_tokens")


async def test_a_stall_behind_keep_alives_still_fires(wire: WireStand) -> None:
    steps = [[TOKEN, *going_on_with(sent)] for sent in NO_TOKENS.values()]
    for name, exchange in zip(
        NO_TOKENS, await wire.ask_each(steps, model="firm_between_tokens", **ASKED), strict=True
    ):
        assert exchange.body.startswith(TOKEN + NO_TOKENS[name][:60])
        assert exchange.line["fault"] == "between_tokens_timeout", name


async def test_half_an_event_is_no_token(wire: WireStand) -> None:
    exchange = await timed(wire, "between_tokens", TOKEN, TOKEN[:-1], "stall")
    assert exchange.line["fault"] == "between_tokens_timeout"
    assert len(sse_reference.parse(exchange.body)) == 2, "the half event is not in the way of the error"


async def test_a_stream_that_said_its_end_is_not_failed_by_it(wire: WireStand) -> None:
    """An upstream that keeps the connection open after `[DONE]`: the client has everything."""
    sent = TOKEN + event(chunk(finish="stop")) + DONE
    for kind in ("between_tokens", "total"):
        exchange = await wire.stream(body(sent, "stall"), model=kind)
        assert exchange.body == sent
        assert exchange.reply.ended == "complete"
        assert exchange.line["result"] == "ok"
        assert (await wire.request.ended()).client_left


async def test_a_stream_that_is_folded_is_bound_as_well(wire: WireStand) -> None:
    """It is the upstream that must not stall, whatever the client asked for."""
    exchange = await timed(wire, "between_tokens", TOKEN, "stall", stream=False)
    assert_error_reply(exchange, "between_tokens")


async def test_tokens_move_it_on(wire: WireStand) -> None:
    steps = [step for _ in range(6) for step in (TOKEN, FIRM / 4)]
    exchange = await wire.stream(body(*steps, DONE), model="firm_between_tokens")
    assert exchange.body == TOKEN * 6 + DONE
    assert exchange.line["duration"] > FIRM


# === total ===


async def test_total_is_bounded_while_tokens_flow(wire: WireStand) -> None:
    steps = [step for _ in range(100) for step in (TOKEN, FIRM / 40)]
    exchange = await timed(wire, "firm_total", *steps)
    count = exchange.body.count(TOKEN)
    assert 2 <= count < 100
    assert_error_event(exchange, TOKEN * count, "total")
    assert (exchange.line["output_tokens"], exchange.line["estimated"]) == (count, True)


async def test_total_is_bounded_for_a_document(wire: WireStand) -> None:
    half = dumps(completion())[:20]
    assert_error_reply(await timed(wire, "total", half, "stall", stream=False), "total")


async def test_total_is_bounded_before_the_head(wire: WireStand) -> None:
    exchange = await wire.ask(Script(head_delay=30), model="total")
    assert_error_reply(exchange, "total")


async def test_total_is_bounded_for_an_error_reply(wire: WireStand) -> None:
    head = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 100\r\n\r\n{"
    exchange = await wire.ask(raw(head, "stall"), model="total")
    assert exchange.reply.status == 500
    assert exchange.reply.json()["error"]["code"] == "status"


# === a document ===


async def test_a_document_is_bound_by_first_byte_and_total_alone(wire: WireStand) -> None:
    document = dumps(completion())
    for kind in ("first_token", "between_tokens"):
        steps = (document[:10], SHORT + PAUSE, document[10:])
        exchange = await wire.ask(body(*steps, content_type="application/json"), model=kind)
        assert exchange.body == document
        assert exchange.line["result"] == "ok"


async def test_a_document_that_is_unfolded_is_too(wire: WireStand) -> None:
    document = dumps(completion())
    for kind in ("first_token", "between_tokens"):
        steps = (document[:10], SHORT + PAUSE, document[10:])
        exchange = await wire.stream(body(*steps, content_type="application/json"), model=kind)
        assert exchange.line["result"] == "ok"
        assert exchange.body.endswith(DONE)


async def test_one_upstreams_deadlines_are_not_anothers(wire: WireStand) -> None:
    exchange = await wire.stream(body(TOKEN, SHORT + PAUSE, DONE))
    assert exchange.body == TOKEN + DONE
    assert exchange.line["result"] == "ok"
