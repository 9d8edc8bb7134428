"""Stores of responses as workers have them, over one database, with upstreams that are played by a test."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from sluicegate._core import ResponsesRequest
from sluicegate.config import StoreConfig
from sluicegate.responses import ResponseStore, Work
from sluicegate.telemetry import Log, Metrics
from sluicegate.testing import Script
from sluicegate.testing.question import read_question
from sluicegate.testing.reply import Stream
from sluicegate.testing.responses import responses_reply

OWNER = "tester"
MODEL = "small"
WAIT_SECONDS = 30.0

HEAD = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}

Event = dict[str, Any]


class Play:
    """One background exchange, driven by a test as an upstream would."""

    def __init__(self, work: Work, receive: Any, send: Any) -> None:
        self.work = work
        self.receive = receive
        self.send = send
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        await self.send(dict(HEAD))

    async def events(self, *events: Event) -> None:
        await self.send({"type": "http.response.body", "body": sse(*events), "more_body": True})

    async def end(self, body: bytes = b"data: [DONE]\n\n") -> None:
        """The upstream's stream ends, as streams do."""
        await self.send({"type": "http.response.body", "body": body, "more_body": False})
        self.over.set_result(None)

    def break_off(self) -> None:
        """The exchange ends without anything."""
        self.over.set_result(None)

    async def left(self) -> None:
        """The store has left, as a client would."""
        async with asyncio.timeout(WAIT_SECONDS):
            assert (await self.receive())["type"] == "http.disconnect"


class Upstream:
    """What workers execute: a test takes each exchange and plays it, or a script plays all of them."""

    def __init__(self, script: Callable[[Play], Awaitable[None]] | None = None) -> None:
        self._script = script
        self._plays: asyncio.Queue[Play] = asyncio.Queue()
        self.begun = 0

    async def execute(self, work: Work, receive: Any, send: Any) -> None:
        play = Play(work, receive, send)
        self.begun += 1
        if self._script is not None:
            await self._script(play)
            return
        self._plays.put_nowait(play)
        left = asyncio.ensure_future(receive())
        await asyncio.wait([play.over, left], return_when=asyncio.FIRST_COMPLETED)
        left.cancel()

    async def play(self) -> Play:
        """The next exchange."""
        async with asyncio.timeout(WAIT_SECONDS):
            return await self._plays.get()


@asynccontextmanager
async def worker(upstream: Upstream | None, config: StoreConfig) -> AsyncIterator[ResponseStore]:
    """A worker's store; it runs background responses where there is an `upstream`."""
    log = Log(2, level="error")
    store = ResponseStore(config, [MODEL], Metrics().stored, log)
    if upstream is not None:
        store.start(upstream.execute)
    try:
        yield store
    finally:
        await store.close()
        log.close()


async def create(store: ResponseStore, *, owner: str = OWNER, model: str = MODEL, **members: Any) -> str:
    """Take a background response on; its id."""
    body = {"model": model, "input": "Say something.", "background": True, **members}
    id, _ = await store.create(
        owner=owner,
        model=model,
        request_id="test",
        request=ResponsesRequest(json.dumps(body).encode()),
        shown_model=model,
    )
    return id


async def shown(store: ResponseStore, id: str, owner: str = OWNER) -> dict[str, Any]:
    with store.hold(owner) as hold:
        found = json.loads(await store.response(id, owner, hold))
    assert isinstance(found, dict)
    return found


async def context_of(store: ResponseStore, previous: str, owner: str) -> bytes:
    """The items of the conversation up to and with that response."""
    chain = await store.conversation(previous, owner)
    with store.hold(owner) as hold:
        await hold.take(chain.size)
        return await store.context(chain, owner, hold)


async def items_of(store: ResponseStore, ids: Iterable[str], owner: str = OWNER) -> dict[str, bytes]:
    """The items with these ids that the store has."""
    return await store.items(await store.holders(ids, owner), owner)


async def until(store: ResponseStore, id: str, *statuses: str, owner: str = OWNER) -> dict[str, Any]:
    """The response, once it has one of these."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            found = await shown(store, id, owner)
            if found["status"] in statuses:
                return found
            await asyncio.sleep(0.01)


async def followed(store: ResponseStore, id: str, after: int = -1, owner: str = OWNER) -> list[Event]:
    """All events after number `after`, to the end."""
    async with asyncio.timeout(WAIT_SECONDS):
        return [event async for data in await store.follow(id, owner, after) for event in payloads(data)]


def payloads(data: bytes) -> list[Event]:
    """The objects of the events in a run, which is whole."""
    events = data.decode().split("\n\n")[:-1]
    return [json.loads(event.partition("\ndata: ")[2]) for event in events]


def sse(*events: Event) -> bytes:
    return b"".join(
        b"event: %s\ndata: %s\n\n"
        % (event["type"].encode(), json.dumps(event, separators=(",", ":")).encode())
        for event in events
    )


def upstream_events(**script: Any) -> list[Event]:
    """What the scripted upstream says to a request."""
    question = read_question("responses", {"model": MODEL, "input": "Say something.", "stream": True})
    reply = responses_reply(Script(**script), question, stream=True)
    assert isinstance(reply, Stream)
    return [dict(event.data) for event in reply.events if not isinstance(event.data, str)]


def numbers(events: list[Event]) -> list[int]:
    return [event["sequence_number"] for event in events]
