"""What is checked of each server, through the gateway. A check that fails raises an `AssertionError`."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import httpx

from clients.claude_code import PROGRAM
from harness.tiny_model import ANSWER, CALL_WORD, ENDLESS, ENDLESS_WORD
from real.chats import ASKING, CALLING
from real.coding import claude_code_runs_a_command
from real.replies import counts, payloads, question, usage_of
from real.server import Api, Server
from real.stand import PATHS, RealStand

APIS: tuple[Api, ...] = ("chat", "responses", "messages")
QUESTION = "Where does it go?"
TOLD = "sunny"
TOGETHER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Check:
    """One check by its name. It gets a stand, and gives no result."""

    name: str
    run: Callable[[RealStand], Awaitable[None]]


def checks_of(server: Server) -> Iterator[Check]:
    """All that fit the server, in their order: the last one kills it."""
    for way in server.apis:
        for client in APIS:
            for streams in (False, True):
                how = "a stream" if streams else "a whole reply"
                yield Check(f"{how} for a client of {client} over {way}", _says(client, way, streams))
            if server.tools:
                yield Check(f"a tool loop for a client of {client} over {way}", _calls(client, way))
        for streams in (False, True):
            how = "a stream" if streams else "a whole reply"
            yield Check(f"usage and cost of {how} over {way}", _bills(way, streams))
        yield Check(f"a refused request over {way}", _refuses(way))
        if server.long:
            yield Check(f"a client that leaves, over {way}", _leaves(way))
    if server.codes and PROGRAM.exists():
        yield Check("Claude Code runs a command over each API", claude_code_runs_a_command)
    yield Check("the server is killed", _killed)


def _says(client: Api, way: Api, streams: bool) -> Callable[[RealStand], Awaitable[None]]:
    async def check(stand: RealStand) -> None:
        text, _ = await ASKING[client](stand, way, QUESTION, streams)
        assert text == stand.server.answer, text

    return check


def _calls(client: Api, way: Api) -> Callable[[RealStand], Awaitable[None]]:
    async def check(stand: RealStand) -> None:
        cities, text = await CALLING[client](stand, way, f"The {CALL_WORD} in Rome?", TOLD)
        assert cities == ["Rome"], cities
        assert text == ANSWER, text

    return check


def _bills(way: Api, streams: bool) -> Callable[[RealStand], Awaitable[None]]:
    """What the server counts is what the gateway logs and shows, and the cost is that of these tokens."""

    async def check(stand: RealStand) -> None:
        options: dict[str, Any] = {"stream": streams}
        if streams and way == "chat":
            options["stream_options"] = {"include_usage": True}
        direct, proxied = await stand.both(way, **question(way, QUESTION), **options)
        assert (direct.status_code, proxied.status_code) == (200, 200), (direct.text, proxied.text)
        line = await stand.line(proxied)
        theirs = usage_of(way, direct)
        if streams and not stand.server.stream_usage:
            assert theirs is None, theirs
            assert line["estimated"] is True
            return
        assert theirs is not None, direct.text
        expected = counts(way, theirs)
        logged = (line["input_tokens"], line.get("cached_input_tokens", 0), line["output_tokens"])
        assert logged == (expected.input, expected.cached, expected.output), (line, theirs)
        assert "estimated" not in line
        assert Decimal(line["cost"]) == expected.cost, (line, theirs)
        shown = usage_of(way, proxied)
        assert shown is not None, proxied.text
        assert counts(way, shown) == expected, (shown, theirs)
        assert Decimal(repr(shown["cost"])) == expected.cost, shown

    return check


def _refuses(way: Api) -> Callable[[RealStand], Awaitable[None]]:
    """The server's own status, and an error in the client's protocol."""

    async def check(stand: RealStand) -> None:
        direct, proxied = await stand.both(way, **{**question(way, QUESTION), **stand.server.refused})
        assert direct.status_code >= 400, direct.text
        assert proxied.status_code == direct.status_code, (direct.text, proxied.text)
        assert proxied.json()["error"]["message"], proxied.text

    return check


def _long(stand: RealStand, way: Api) -> dict[str, Any]:
    members = question(way, f"Does it go on {ENDLESS_WORD}?", max_tokens=stand.server.long)
    return {**members, "model": way, "stream": True}


def _leaves(way: Api) -> Callable[[RealStand], Awaitable[None]]:
    async def check(stand: RealStand) -> None:
        async with stand.proxied.stream("POST", PATHS[way], json=_long(stand, way)) as reply:
            await anext(reply.aiter_text())
        line = await stand.line(reply)
        assert (line["result"], line["client_left"]) == ("client_left", True), line
        await _says(way, way, True)(stand)

    return check


async def _killed(stand: RealStand) -> None:
    """Each client hears of it in its own protocol, and the next one is told at once."""
    ways = stand.server.apis if stand.server.long else ()
    begun = [asyncio.Event() for _ in ways]
    reading = [
        asyncio.ensure_future(_read_to_the_end(stand, way, event))
        for way, event in zip(ways, begun, strict=True)
    ]
    if reading:
        waiting = [asyncio.ensure_future(event.wait()) for event in begun]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        # Some servers let the others wait until the first one has been served.
        await asyncio.wait(waiting, timeout=TOGETHER_SECONDS)
        assert not any(task.done() for task in reading), "a stream was over before the server was killed"
        for task in waiting:
            task.cancel()
    stand.running.kill()
    for way, event, read in zip(ways, begun, await asyncio.gather(*reading), strict=True):
        await _hears_of_the_end(stand, way, *read, begun=event.is_set())
    for way in stand.server.apis:
        gone = await stand.proxied.post(PATHS[way], json={**question(way, QUESTION), "model": way})
        assert gone.status_code == 502, gone.text
        assert gone.json()["error"]["message"], gone.text
        assert (await stand.line(gone))["fault"] == "connect"


async def _hears_of_the_end(
    stand: RealStand, way: Api, reply: httpx.Response, text: str, *, begun: bool
) -> None:
    line = await stand.line(reply)
    assert line["result"] == "failed", line
    if reply.status_code != 200:
        assert not begun, text
        assert reply.status_code == 502, text
        assert json.loads(text)["error"]["message"], text
        return
    *_, last = payloads(text)
    error = last.get("error") or last["response"]["error"]
    assert error["message"], last
    # Anthropic's errors have types and no codes.
    assert way == "messages" or error["code"] in ("truncated", "server_error"), last
    assert line["fault"] == "truncated", line
    if begun:
        assert line.get("estimated") is True, line
        assert line["output_tokens"] > 0, line


async def _read_to_the_end(stand: RealStand, way: Api, begun: asyncio.Event) -> tuple[httpx.Response, str]:
    text = ""
    async with stand.proxied.stream("POST", PATHS[way], json=_long(stand, way)) as reply:
        async for piece in reply.aiter_text():
            text += piece
            if ENDLESS in text:
                begun.set()
    return reply, text
