"""Another upstream is tried only before the first output; a dead connection is replaced once."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

import sse_reference
from harness.starvation import Starvation
from harness.wire_stand import (
    DONE,
    MODEL,
    REPORTED,
    Exchange,
    WireStand,
    chunk,
    completion,
    dumps,
    event,
    usage_chunk,
    wire_stand,
)
from sluicegate.testing import Fault, Script, ScriptedUpstream, Step, body

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHORT = 0.3
FIRM = 2.0
"""Seconds of a deadline that must not pass before a reply's first token has come."""
HOLD_SECONDS = 10.0
HOLD_EVENTS = 64
HOLD_BYTES = 256 * 1024

TOKEN = event(chunk("from the first"))
ROLE = event(
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
)
FILTER = event({"id": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]})
ERROR = event({"error": {"message": "No quota.", "type": "insufficient_quota", "code": None}})
SPARE = event(chunk("from the second", finish="stop")) + DONE


@dataclass(frozen=True)
class Pair:
    """`pair` is served by `local` and then by `spare`."""

    wire: WireStand
    spare: ScriptedUpstream

    async def ask(self, script: Script, *, model: str = "pair", **members: Any) -> Exchange:
        self.spare.requests.clear()
        self.spare.script = body(SPARE)
        return await self.wire.ask(script, model=model, **members)

    async def stream(self, *steps: Step, model: str = "pair") -> Exchange:
        return await self.ask(body(*steps), stream=True, model=model)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    async with ScriptedUpstream() as spare:
        config = {
            "upstreams": {
                "spare": {"base_url": spare.base_url},
                "hasty": {"deadlines": {"first_token": SHORT, "first_byte": SHORT}},
                "firm": {"deadlines": {"first_token": FIRM, "first_byte": FIRM}},
                "brief": {"pool_idle_seconds": SHORT},
            },
            "models": {
                "pair": [f"local/{MODEL}", f"spare/{MODEL}"],
                "hasty-pair": [f"hasty/{MODEL}", f"spare/{MODEL}"],
                "firm-pair": [f"firm/{MODEL}", f"spare/{MODEL}"],
                "brief": f"brief/{MODEL}",
            },
        }
        async with wire_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
            yield Pair(stand, spare)


@dataclass(frozen=True)
class Slow:
    """What takes long is begun with the module's first test, and goes on beside the others."""

    idle: asyncio.Task[tuple[float, float]]
    """Seconds until an idle connection was closed, and how many of them the machine owes."""
    held: asyncio.Task[tuple[float, bytes]]
    """Seconds until a preamble was let go, and what came after the head."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def slow(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Slow]:
    async with ScriptedUpstream(body(SPARE)) as spare:
        config = {
            "upstreams": {"spare": {"base_url": spare.base_url}, "other": {}},
            "models": {"pair": [f"other/{MODEL}", f"spare/{MODEL}"]},
        }
        async with wire_stand(tmp_path_factory.mktemp("slow"), config) as stand:
            await stand.ask(Script(tokens=1))
            watched = Slow(
                asyncio.ensure_future(until_idle(stand)), asyncio.ensure_future(until_let_go(stand))
            )
            yield watched
            await asyncio.gather(watched.idle, watched.held, return_exceptions=True)


async def until_idle(stand: WireStand) -> tuple[float, float]:
    await stand.upstream.requests.wait(2)
    async with Starvation(stand.gateway.pid) as starvation, asyncio.timeout(60):
        started = time.perf_counter()
        # The connection of the other task is open as well.
        while stand.upstream.connections_open > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        ended = time.perf_counter()
    return ended - started, starvation.owed((started, ended))


async def until_let_go(stand: WireStand) -> tuple[float, bytes]:
    steps = body(ROLE, HOLD_SECONDS + 5, "reset")
    async with (
        stand.connected(steps, model="pair", stream=True) as caller,
        asyncio.timeout(HOLD_SECONDS + 60),
    ):
        started = time.monotonic()
        await caller.connection.reader.readuntil(b"\r\n\r\n")
        held = time.monotonic() - started
        rest = b""
        while piece := await caller.connection.chunk():
            rest += piece
        return held, rest


def assert_second_served(exchange: Exchange, pair: Pair) -> None:
    assert exchange.reply.status == 200
    assert exchange.body == SPARE, "nothing of the first upstream's"
    assert (exchange.line["upstream"], exchange.line["attempts"]) == ("spare", 2)
    assert exchange.line["result"] == "ok"
    assert len(pair.spare.requests) == 1


def assert_first_failed(exchange: Exchange, pair: Pair, sent: bytes, code: str) -> None:
    """The stream was neither switched nor tried again."""
    assert exchange.reply.status == 200
    assert exchange.body.startswith(sent)
    assert b"from the second" not in exchange.body
    assert b"[DONE]" not in exchange.body
    assert (exchange.line["upstream"], exchange.line["attempts"]) == ("local", 1)
    assert exchange.line["fault"] == code
    assert not len(pair.spare.requests)


# === before any output ===

FAULTS = {
    "a connection that is reset": Script(faults=(Fault(action="reset", at="before_head"),)),
    "a connection that is closed": Script(faults=(Fault(action="close", at="before_head"),)),
    "half a head": Script(faults=(Fault(action="close", at="in_head"),)),
    "a head and no body": Script(faults=(Fault(action="close", at="after_head"),)),
    "an empty reply": body(b""),
    "no HTTP": Script(raw=(b"SSH-2.0-OpenSSH_9.6\r\n",)),
    "a web page": body(b"<html>It works!</html>", content_type="text/html"),
    "a role and then the end": body(ROLE),
    "a role and then a reset": body(ROLE, "reset"),
    "a role and then an error": body(ROLE + ERROR),
    "an error": body(ERROR + DONE),
    "comments and then an error": body(b": OPENROUTER PROCESSING\n\n" * 3 + ERROR),
    "a filter chunk and then an error": body(FILTER, ERROR),
    "a preview of usage and then an error": body(event(usage_chunk(REPORTED)), ERROR),
    "half an event of output": body(ROLE, TOKEN[:-10], "reset"),
}


@pytest.mark.parametrize("script", FAULTS.values(), ids=FAULTS.keys())
async def test_another_upstream_is_tried_before_any_output(pair: Pair, script: Script) -> None:
    exchange = await pair.ask(script, stream=True)
    assert_second_served(exchange, pair)
    assert exchange.line["failed_attempts"][0].startswith("local: ")


@pytest.mark.parametrize("status", [401, 403, 404, 408, 429, 500, 502, 503, 529])
async def test_it_is_after_a_status_that_another_may_not_have(pair: Pair, status: int) -> None:
    assert_second_served(await pair.ask(Script(status=status), stream=True), pair)


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_it_is_not_after_one_that_is_about_the_request(pair: Pair, status: int) -> None:
    exchange = await pair.ask(Script(status=status), stream=True)
    assert exchange.reply.status == status
    assert not len(pair.spare.requests)


@pytest.mark.parametrize(
    "script",
    [Script(head_delay=30), body(b"", "stall"), body(ROLE, "stall"), body(b": ping\n\n", "stall")],
    ids=["no head", "no body", "a role", "a comment"],
)
async def test_it_is_when_the_first_token_is_late(pair: Pair, script: Script) -> None:
    exchange = await pair.ask(script, model="hasty-pair", stream=True)
    assert_second_served(exchange, pair)
    assert (await pair.wire.request.ended()).client_left


async def test_it_is_for_a_document(pair: Pair) -> None:
    document = dumps(completion())
    for script in (body(document[:20], "reset"), body(document[:20]), Script(status=500)):
        pair.spare.requests.clear()
        pair.spare.script = body(document, content_type="application/json")
        exchange = await pair.wire.ask(script, model="pair")
        assert exchange.body == document
        assert exchange.line["upstream"] == "spare"


async def test_it_is_for_a_stream_that_is_folded_at_any_place(pair: Pair) -> None:
    """The client has nothing before the end."""
    exchange = await pair.ask(body(TOKEN, TOKEN, "reset"))
    assert exchange.reply.json()["choices"][0]["message"]["content"] == "from the second"
    assert exchange.line["upstream"] == "spare"


async def test_the_last_upstreams_fault_is_told(pair: Pair) -> None:
    pair.spare.script = Script(status=503)
    exchange = await pair.wire.ask(FAULTS["a connection that is reset"], model="pair", stream=True)
    assert exchange.reply.status == 503
    assert exchange.reply.json()["error"]["code"] == "overloaded"
    assert exchange.line["failed_attempts"] == ["local: reset"]
    assert (exchange.line["upstream"], exchange.line["fault"]) == ("spare", "status")


async def test_the_second_is_asked_the_same(pair: Pair) -> None:
    await pair.ask(Script(status=500), stream=True, temperature=0.5, x={"y": [1.0]})
    first, second = pair.wire.request, pair.spare.requests[0]
    assert first.body == second.body
    assert first.path == second.path


# === after the first output ===

OUTPUTS = {
    "text": TOKEN,
    "reasoning": event({"choices": [{"delta": {"reasoning_content": "Hm"}}]}),
    "a refusal": event({"choices": [{"delta": {"refusal": "No"}}]}),
    "a tool call": event({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"name": "f"}}]}}]}),
}
ENDS = {
    "the end": ((), "truncated"),
    "a reset": (("reset",), "truncated"),
    "an error": ((ERROR,), "in_band_error"),
}


@pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS.keys())
@pytest.mark.parametrize(("steps", "code"), ENDS.values(), ids=ENDS.keys())
async def test_a_stream_with_output_is_never_switched(
    pair: Pair, output: bytes, steps: tuple[Step, ...], code: str
) -> None:
    exchange = await pair.stream(ROLE, output, *steps)
    assert_first_failed(exchange, pair, ROLE + output, code)


async def test_a_deadline_after_output_does_not_switch(pair: Pair) -> None:
    pings: list[Step] = [b": ping\n\n", FIRM / 3]
    steps = (TOKEN, *pings * 4, event(chunk(finish="stop")) + DONE)
    exchange = await pair.stream(*steps, model="firm-pair")
    assert exchange.body.startswith(TOKEN)
    assert exchange.line["attempts"] == 1
    assert exchange.line["result"] == "ok"


# === holding back ===


async def held_for(pair: Pair, *steps: Step, model: str, seconds: float) -> bool:
    """Whether nothing of a stream that then stalls comes within `seconds`."""
    requests = pair.wire.upstream.requests
    count = len(requests)
    async with pair.wire.connected(body(*steps, "stall"), model=model, stream=True) as caller:
        record = await requests.wait(count + 1)
        try:
            async with asyncio.timeout(seconds):
                await caller.connection.head()
                assert await caller.connection.chunk() in b"".join(s for s in steps if isinstance(s, bytes))
                return False
        except TimeoutError:
            return True
        finally:
            assert record.events_sent


PREAMBLES = {"a role": ROLE, "a filter chunk": FILTER, "a comment": b": ping\n\n"}


@pytest.mark.parametrize("preamble", PREAMBLES.values(), ids=PREAMBLES.keys())
async def test_nothing_is_held_back_where_there_is_no_other_upstream(pair: Pair, preamble: bytes) -> None:
    assert not await held_for(pair, preamble, model=MODEL, seconds=5)


@pytest.mark.parametrize("preamble", [ROLE, FILTER], ids=["a role", "a filter chunk"])
async def test_a_preamble_is_held_back_where_there_is(pair: Pair, preamble: bytes) -> None:
    assert await held_for(pair, preamble, model="pair", seconds=SHORT)


async def test_the_first_output_takes_it_along(pair: Pair) -> None:
    assert not await held_for(pair, ROLE, FILTER, TOKEN, model="pair", seconds=5)


async def test_a_preamble_comes_whole_and_in_order(pair: Pair) -> None:
    sent = b": ping\n\n" + FILTER + ROLE + TOKEN + event(chunk(finish="stop")) + DONE
    exchange = await pair.stream(*(sent[i : i + 50] for i in range(0, len(sent), 50)))
    assert exchange.body == sent


async def test_not_more_than_some_events_are_held_back(pair: Pair) -> None:
    assert await held_for(pair, ROLE * HOLD_EVENTS, model="pair", seconds=SHORT)
    assert not await held_for(pair, ROLE * (HOLD_EVENTS + 1), model="pair", seconds=5)


async def test_not_more_than_some_bytes_are_held_back(pair: Pair) -> None:
    comment = b":" + b" " * 1021 + b"\n\n"
    assert await held_for(pair, comment * (HOLD_BYTES // 1024), model="pair", seconds=SHORT)
    assert not await held_for(pair, comment * (HOLD_BYTES // 1024 + 1), model="pair", seconds=5)


# === connections that died while idle ===


async def warm(pair: Pair, model: str = MODEL) -> int:
    """A connection in the pool; the number of requests so far."""
    exchange = await pair.wire.ask(Script(tokens=1), model=model)
    assert exchange.reply.status == 200
    return len(pair.wire.upstream.requests)


@pytest.mark.parametrize("action", ["close", "reset"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "no stream"])
async def test_a_reused_connection_that_dies_is_replaced_by_a_fresh_one(
    pair: Pair, action: Any, stream: bool
) -> None:
    before = await warm(pair)
    fault = Fault(action=action, at="before_head", on_reused=True)
    exchange = await pair.wire.ask(Script(tokens=2, faults=(fault,)), stream=stream)
    assert exchange.reply.status == 200
    assert (exchange.line["result"], exchange.line["attempts"]) == ("ok", 1)
    first, second = list(pair.wire.upstream.requests)[before:]
    assert (first.reused, second.reused) == (True, False)
    assert first.body == second.body


async def test_it_is_replaced_once_only(pair: Pair) -> None:
    before = await warm(pair)
    exchange = await pair.wire.stream(Script(faults=(Fault(action="close", at="before_head"),)))
    assert exchange.reply.status == 502
    assert exchange.reply.json()["error"]["code"] == "reset"
    assert [record.reused for record in pair.wire.upstream.requests][before:] == [True, False]


async def test_a_fresh_connection_that_dies_is_not_replaced(pair: Pair) -> None:
    """What it died of may be the request itself."""
    before = len(pair.wire.upstream.requests)
    close_all = Script(keep_alive=False)
    for _ in range(3):
        await pair.wire.ask(close_all)
    before = len(pair.wire.upstream.requests)
    exchange = await pair.wire.stream(Script(faults=(Fault(action="close", at="before_head"),)))
    assert exchange.reply.json()["error"]["code"] == "reset"
    records = list(pair.wire.upstream.requests)[before:]
    assert [record.reused for record in records][-1] is False
    assert sum(not record.reused for record in records) == 1


@pytest.mark.parametrize("at", ["in_head", "after_head"])
@pytest.mark.parametrize("action", ["close", "reset"])
async def test_one_that_dies_within_the_reply_is_not_replaced(pair: Pair, at: Any, action: Any) -> None:
    before = await warm(pair)
    exchange = await pair.wire.stream(Script(faults=(Fault(action=action, at=at, on_reused=True),)))
    assert exchange.reply.status == 502
    assert len(pair.wire.upstream.requests) == before + 1


async def test_connections_are_kept_and_reused(pair: Pair) -> None:
    await warm(pair)
    made = pair.wire.upstream.connections_made
    for _ in range(5):
        await warm(pair)
    assert pair.wire.upstream.connections_made == made


async def test_an_idle_connection_is_not_used_after_the_configured_time(pair: Pair) -> None:
    await warm(pair, "brief")
    made = pair.wire.upstream.connections_made
    await asyncio.sleep(SHORT + 0.2)
    await warm(pair, "brief")
    assert pair.wire.upstream.connections_made == made + 1


async def test_idle_connections_are_closed_before_most_servers_do_so_themselves(slow: Slow) -> None:
    """uvicorn closes after 5 s, and a request that meets that moment is lost."""
    seconds, owed = await slow.idle
    assert 1 < seconds < 5 + owed


async def test_not_longer_than_some_seconds_is_it_held_back(slow: Slow) -> None:
    """Once it was let go, the stream is never switched."""
    held, rest = await slow.held
    assert held > HOLD_SECONDS
    assert rest.startswith(ROLE)
    [*_, last] = sse_reference.parse(rest)
    assert json.loads(last.data)["error"]["code"] == "truncated"
    assert b"from the second" not in rest
