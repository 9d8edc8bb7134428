"""`aiter_events` over the responses that users have in hand, from the scripted upstream."""

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import httpx
import pytest

from sluicegate import Error, EventTooLarge, aiter_events
from sluicegate.testing import Fault, Framing, Script, ScriptedUpstream

REQUEST: dict[str, Any] = {
    "model": "m",
    "stream": True,
    "stream_options": {"include_usage": True},
    "messages": [{"role": "user", "content": "hi"}],
}
CUTS = [
    pytest.param(Framing(), id="events"),
    pytest.param(Framing(piece_bytes=1), id="bytes"),
    pytest.param(Framing(line_ending="crlf", piece_bytes=7, keepalive_every_events=1, bom=True), id="CRLF"),
    pytest.param(Framing(line_ending="cr", data_lines=3, final_blank_line=False), id="CR"),
]


def said(events: list[str]) -> tuple[str, int]:
    assert events.pop() == "[DONE]"
    chunks = [json.loads(data) for data in events]
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    return text, chunks[-1]["usage"]["completion_tokens"]


EXPECTED = ("A sluice lets water through and keeps the", 8)


@pytest.mark.parametrize("framing", CUTS)
async def test_an_httpx_response(framing: Framing) -> None:
    async with ScriptedUpstream(Script(framing=framing)) as upstream, httpx.AsyncClient() as client:
        url = f"{upstream.base_url}/chat/completions"
        async with client.stream("POST", url, json=REQUEST) as response:
            events = [event.data async for event in aiter_events(response)]
    assert said(events) == EXPECTED


@pytest.mark.parametrize("framing", CUTS)
async def test_an_aiohttp_response(framing: Framing) -> None:
    async with ScriptedUpstream(Script(framing=framing)) as upstream, aiohttp.ClientSession() as client:
        url = f"{upstream.base_url}/chat/completions"
        async with client.post(url, json=REQUEST) as response:
            events = [event.data async for event in aiter_events(response)]
    assert said(events) == EXPECTED


@pytest.mark.parametrize("framing", CUTS)
async def test_any_asynchronous_iterator_of_bytes(framing: Framing) -> None:
    async with ScriptedUpstream(Script(framing=framing)) as upstream, httpx.AsyncClient() as client:
        reply = await client.post(f"{upstream.base_url}/chat/completions", json=REQUEST)

    async def body() -> AsyncIterator[bytes]:
        for start in range(0, len(reply.content), 100):
            yield reply.content[start : start + 100]

    assert said([event.data async for event in aiter_events(body())]) == EXPECTED


async def test_names_and_ids_are_kept() -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"id: 1\nevent: message_start\ndata: {}\n\n: ping\n\ndata: {}\n\n"

    events = [event async for event in aiter_events(body())]
    assert [(event.event, event.id) for event in events] == [("message_start", "1"), ("message", "1")]


async def test_an_event_comes_before_the_next_read_is_asked_for() -> None:
    asked: list[int] = []

    async def body() -> AsyncIterator[bytes]:
        for number in range(3):
            asked.append(number)
            yield b"data: %d\n\n" % number

    seen = [(event.data, len(asked)) async for event in aiter_events(body())]
    assert seen == [("0", 1), ("1", 2), ("2", 3)]


async def until_error(upstream: ScriptedUpstream, bound: int | None = None) -> tuple[int, Exception]:
    """How many events came before the error, and the error."""
    count = 0
    url = f"{upstream.base_url}/chat/completions"
    try:
        async with httpx.AsyncClient() as client, client.stream("POST", url, json=REQUEST) as response:
            async for _ in aiter_events(response, max_event_bytes=bound):
                count += 1
    except (httpx.TransportError, Error) as error:
        return count, error
    pytest.fail("nothing was raised")


async def test_a_response_that_breaks_off_raises_what_the_client_raises() -> None:
    script = Script(tokens=5, faults=(Fault(action="close", events=3),))
    async with ScriptedUpstream(script) as upstream:
        count, error = await until_error(upstream)
    assert (count, type(error)) == (3, httpx.RemoteProtocolError)


async def test_events_are_bounded_and_those_before_are_given() -> None:
    script = Script(tokens=5, faults=(Fault(action="oversized", events=2, bytes=100_000),))
    async with ScriptedUpstream(script) as upstream:
        count, error = await until_error(upstream, bound=10_000)
    assert (count, type(error)) == (2, EventTooLarge)


class Response:
    """As those of requests: all of the content, or a plain iterator."""

    content = b"data: a\n\n"

    def __iter__(self) -> Any:
        return iter([self.content])


@pytest.mark.parametrize(
    "response",
    [Response(), [b"data: a\n\n"], b"data: a\n\n", None],
    ids=["response", "list", "bytes", "None"],
)
async def test_what_does_not_come_asynchronously_is_refused(response: Any) -> None:
    with pytest.raises(TypeError, match="async"):
        await anext(aiter_events(response))
