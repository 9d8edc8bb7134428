"""Playing cells through a real gateway, and judging what came of each."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.wire_stand import Exchange, WireStand, wire_stand
from matrix import chat, messages, responses
from matrix.cell import Cell, config
from matrix.expected import COST, ESTIMATED, REASONING_COST, Expected, expected
from matrix.heard import Heard, read_json, same, spelled
from matrix.replies import CACHED, INPUT, LIMITED, OUTPUT, RETRY_AFTER, WRITTEN
from matrix.returned import Returned, returned

CLIENTS: Mapping[str, ModuleType] = {"chat": chat, "responses": responses, "messages": messages}
TOGETHER = 16
"""Cells at once."""
ASKED = "What is beyond the gate?"
ENDPOINTS = {"chat": "chat_completions", "responses": "responses", "messages": "messages"}


@dataclass(frozen=True, slots=True)
class Outcome:
    cell: Cell
    problems: list[str] = field(default_factory=list)
    """Empty: all is as it must be."""


@contextlib.asynccontextmanager
async def matrix_stand(directory: Path) -> AsyncIterator[WireStand]:
    async with wire_stand(directory, config()) as stand:
        yield stand


async def play_all(stand: WireStand, cells: Iterable[Cell]) -> list[Outcome]:
    """Each cell, many at once; in their order."""
    limit = asyncio.Semaphore(TOGETHER)

    async def one(cell: Cell) -> Outcome:
        async with limit:
            return await play(stand, cell)

    return await asyncio.gather(*map(one, cells))


async def play(stand: WireStand, cell: Cell) -> Outcome:
    outcome = Outcome(cell)
    try:
        await _judge(stand, cell)
    except (AssertionError, LookupError, TypeError, ValueError) as problem:
        outcome.problems.append(f"{type(problem).__name__}: {problem}")
    return outcome


async def _judge(stand: WireStand, cell: Cell) -> None:
    client, right = CLIENTS[cell.client], expected(cell)
    exchange = await _ask(stand, cell, [ASKED])
    same("status", exchange.reply.status, right.status)
    heard = _heard(client, cell, exchange)
    if cell.reply.fault is not None:
        _judge_fault(cell, right, heard, exchange)
        return
    assert heard.error is None, f"an error: {heard.error}"
    same("text", heard.text, right.text)
    same("reasoning", heard.reasoning, cell.reply.reasoning)
    same("refusal", heard.refusal, right.refusal)
    calls = [(call.id, call.name, spelled(call.arguments)) for call in cell.reply.calls]
    same("calls", heard.calls, calls)
    same("stop", heard.stop, right.stop)
    _judge_bill(client, cell, heard, exchange)
    if cell.reply.signature is not None:
        await _judge_next_turn(stand, cell, heard)


async def _ask(stand: WireStand, cell: Cell, turns: list[Any]) -> Exchange:
    client = CLIENTS[cell.client]
    body = client.request(cell.model, turns, streams=cell.client_streams)
    headers = ("anthropic-version: 2023-06-01",) if cell.client == "messages" else ()
    return await stand.post(client.PATH, json.dumps(body).encode(), headers)


def _heard(client: ModuleType, cell: Cell, exchange: Exchange) -> Heard:
    reply = exchange.reply
    same("the body's end", reply.ended, "complete")
    kind = reply.headers["content-type"].partition(";")[0]
    if reply.status >= 400:
        same("content-type", kind, "application/json")
        failed: Heard = client.error(read_json(reply.body))
        return failed
    if cell.client_streams:
        same("content-type", kind, "text/event-stream")
        streamed: Heard = client.stream(reply.body)
        return streamed
    same("content-type", kind, "application/json")
    found: Heard = client.whole(read_json(reply.body))
    return found


def _judge_bill(client: ModuleType, cell: Cell, heard: Heard, exchange: Exchange) -> None:
    thought = cell.reply.reasoning_tokens
    counts = {"input": INPUT, "cached": CACHED, "written": WRITTEN, "output": OUTPUT, "reasoning": thought}
    same("usage", client.counts(heard.usage), counts)
    cost = COST[thought]
    same("cost", Decimal(str(heard.usage["cost"])), cost)
    parts = {name: Decimal(str(part)) for name, part in heard.usage["cost_details"].items()}
    same("the cost of reasoning", parts.pop("reasoning_cost"), REASONING_COST[thought])
    same("the sum of the cost's parts", sum(parts.values()), cost)
    if heard.first_usage:
        first = {**client.counts(heard.first_usage), "output": OUTPUT, "reasoning": thought}
        early = cell.upstream == "messages" or not cell.upstream_streams
        same("usage at the beginning", first, counts if early else {**first, **ESTIMATED})
    line = exchange.line
    same("the log's result", line["result"], "ok")
    same("the log's endpoint", line["endpoint"], ENDPOINTS[cell.client])
    same("the log's cost", Decimal(line["cost"]), cost)
    logged = {
        "input": line["input_tokens"],
        "cached": line["cached_input_tokens"],
        "output": line["output_tokens"],
        "reasoning": line.get("reasoning_tokens", 0),
    }
    same("the log's usage", logged, {name: counts[name] for name in logged})


def _judge_fault(cell: Cell, right: Expected, heard: Heard, exchange: Exchange) -> None:
    assert heard.error is not None, "no error"
    line = exchange.line
    if cell.reply.fault == "status":
        same("message", heard.error["message"], LIMITED)
        same("type", heard.error["type"], right.error_type)
        same("retry-after", exchange.reply.headers["retry-after"], RETRY_AFTER)
        return
    assert heard.error["message"], "an error without a message"
    assert not cell.reply.text.startswith(heard.text) or heard.text != cell.reply.text, "the whole text"
    assert cell.reply.text.startswith(heard.text), f"text: {heard.text!r}"
    same("whether there is text", bool(heard.text), right.has_text)
    same("the log's result", line["result"], "failed")
    same("the log's fault", line["fault"], right.fault)


async def _judge_next_turn(stand: WireStand, cell: Cell, heard: Heard) -> None:
    """What the upstream gets of its reasoning when the client goes on."""
    exchange = await _ask(stand, cell, [ASKED, heard.turn, "And then?"])
    same("status of the next turn", exchange.reply.status, 200)
    request_id = exchange.line["request_id"]
    [record] = [one for one in stand.upstream.requests if one.header("x-request-id") == request_id]
    found: Returned = returned(cell.upstream, record.json())
    same("what comes back", found, expected(cell).returned)
