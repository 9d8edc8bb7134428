"""Large texts are read on threads of their own: the event loop, which serves everybody, goes on meanwhile."""

import asyncio
import json
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from harness.stored_stand import (
    MODEL,
    OWNER,
    Event,
    Upstream,
    context_of,
    create,
    items_of,
    shown,
    sse,
    until,
    upstream_events,
)
from sluicegate._core import ResponsesRequest
from sluicegate.gateway.conversations import Conversations, parsed
from sluicegate.offload import LARGE_BYTES, offload
from sluicegate.responses import Chain, Hold, NotFound, Page, ResponseStore, entry, job, leases, settling
from sluicegate.responses import store as store_module
from sluicegate.responses.loading import Loading

WAIT_SECONDS = 30.0

# In few pieces: each costs an event.
TEXT = ("word" * 2000 + " ") * (LARGE_BYTES // 6000)
PART = len(TEXT) // 3


def size_of(value: object) -> int:
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, tuple | list):
        return sum(map(size_of, value))
    return value.size if isinstance(value, ResponsesRequest) else 0


class Watched:
    """What the core does, and on which thread where it is on large texts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on_loop: list[str] = []
        self.elsewhere: set[str] = set()
        self._loop_thread = threading.get_ident()
        for module in (entry, job, leases, settling, store_module):
            for name in dir(module):
                found = getattr(module, name)
                if getattr(found, "__module__", "") == "sluicegate._core" and callable(found):
                    monkeypatch.setattr(module, name, self.around(name, found))

    def around(self, name: str, found: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: object, **options: object) -> Any:
            size = sum(map(size_of, arguments))
            self.note(name, size)
            made = found(*arguments, **options)
            return Machine(self, made, size) if name in ("ResponseFold", "ResponseNumbering") else made

        return called

    def note(self, name: str, size: int) -> None:
        if size <= LARGE_BYTES:
            return
        if threading.get_ident() == self._loop_thread:
            self.on_loop.append(name)
        else:
            self.elsewhere.add(name)


class Machine:
    """One of the core's, all of whose work is on as much as it has been given."""

    def __init__(self, watched: Watched, inner: Any, size: int) -> None:
        self._watched = watched
        self._inner = inner
        self._size = size
        self._unread = 0

    def _call(self, name: str, *arguments: object) -> Any:
        self._size += sum(map(size_of, arguments))
        self._watched.note(name, self._size)
        return getattr(self._inner, name)(*arguments)

    def take(self, events: bytes) -> None:
        self._call("take", events)

    def response(self, status: str) -> Any:
        return self._call("response", status)

    def end(self, error: tuple[str, str] | None) -> Any:
        return self._call("end", error)

    def feed(self, data: bytes) -> Any:
        self._size += len(data)
        self._unread += len(data)
        self._watched.note("feed", self._unread)
        events = self._inner.feed(data)
        if events:
            self._unread = 0
        return events

    def finish(self) -> Any:
        return self._call("finish")

    @property
    def ending(self) -> Any:
        self._watched.note("ending", self._size)
        return self._inner.ending

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def store_reply(store: ResponseStore, id: str, *, streamed: bool = True, **body: Any) -> None:
    events = upstream_events(text=TEXT, reply_id=id)
    store.store_live_reply(
        owner=OWNER,
        model=MODEL,
        request_id="test",
        request=json.dumps({"model": MODEL, "input": "Say something.", **body}).encode(),
        reply=sse(*events) if streamed else json.dumps(events[-1]["response"]).encode(),
        streamed=streamed,
    )


def kept_events() -> list[Event]:
    """A large text in three deltas, of an item that stays open."""
    events = upstream_events(text="x")
    place = next(n for n, event in enumerate(events) if event["type"] == "response.output_text.delta")
    delta = events[place]
    return [*events[:place], *({**delta, "delta": TEXT[n * PART : (n + 1) * PART]} for n in range(3))]


async def test_a_response_that_runs_is_read_and_ended_beside_the_loop(
    store: ResponseStore, upstream: Upstream, watched: Watched
) -> None:
    id = await create(store)
    play = await upstream.play()
    await play.start()
    await play.events(*upstream_events(text=TEXT))
    await play.end()
    found = await until(store, id, "completed")
    assert found["output"][0]["content"][0]["text"] == TEXT
    assert watched.on_loop == []
    assert {"feed", "ending", "item_ids"} <= watched.elsewhere


async def test_an_event_that_comes_in_parts_is_read_beside_the_loop(
    store: ResponseStore, upstream: Upstream, watched: Watched
) -> None:
    id = await create(store)
    play = await upstream.play()
    await play.start()
    # The last event has all of the text in it.
    text = sse(*upstream_events(text=TEXT))
    for start in range(0, len(text), LARGE_BYTES // 3):
        part = text[start : start + LARGE_BYTES // 3]
        await play.send({"type": "http.response.body", "body": part, "more_body": True})
    await play.end()
    assert (await until(store, id, "completed"))["output"][0]["content"][0]["text"] == TEXT
    assert watched.on_loop == []
    assert {"feed", "ending"} <= watched.elsewhere


async def test_what_there_is_of_a_response_is_folded_beside_the_loop(
    store: ResponseStore, upstream: Upstream, watched: Watched
) -> None:
    id = await create(store)
    play = await upstream.play()
    await play.start()
    await play.events(*kept_events())
    # A small message is told of when all before it is committed, too.
    await play.events()
    looks = await asyncio.gather(*(shown(store, id) for _ in range(5)))
    assert [look["output"][0]["content"][0]["text"] for look in looks] == [TEXT[: 3 * PART]] * 5
    assert watched.on_loop == []
    assert {"take", "response"} <= watched.elsewhere
    play.break_off()


@pytest.mark.parametrize("how", ["cancelled", "failed"])
async def test_a_response_is_settled_beside_the_loop(
    store: ResponseStore, upstream: Upstream, watched: Watched, how: str
) -> None:
    id = await create(store)
    play = await upstream.play()
    await play.start()
    await play.events(*kept_events())
    # A small message is told of when all before it is committed, too.
    await play.events()
    if how == "cancelled":
        await store.cancel(id, OWNER, store.hold(OWNER))
    play.break_off()
    found = await until(store, id, how)
    assert found["output"][0]["content"][0]["text"] == TEXT[: 3 * PART]
    assert watched.on_loop == []
    assert {"take", "end", "item_ids"} <= watched.elsewhere


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_live_reply_is_read_and_followed_beside_the_loop(
    store: ResponseStore, watched: Watched, streamed: bool
) -> None:
    store_reply(store, "resp_live", streamed=streamed)
    assert (await shown(store, "resp_live"))["output"][0]["content"][0]["text"] == TEXT
    followed = b"".join([data async for data in await store.follow("resp_live", OWNER, 2)])
    assert json.dumps(TEXT)[1:-1].encode() in followed
    assert b'"sequence_number":2,' not in followed
    assert watched.on_loop == []
    assert {"read_response", "item_ids", "skip_events"} <= watched.elsewhere


async def test_a_conversation_is_listed_and_repeated_beside_the_loop(
    store: ResponseStore, watched: Watched
) -> None:
    store_reply(store, "resp_1", input=TEXT)
    item = (await shown(store, "resp_1"))["output"][0]
    [found] = (await items_of(store, [item["id"]])).values()
    assert json.loads(found)["id"] == item["id"]
    assert TEXT.encode() in await context_of(store, "resp_1", OWNER)
    listed = await store.input_items("resp_1", OWNER, Page(), store.hold(OWNER))
    assert listed is not None
    assert TEXT.encode() in listed
    assert watched.on_loop == []
    assert {"find_items", "repeated_items", "list_items"} <= watched.elsewhere


async def test_a_large_request_is_taken_on_beside_the_loop(
    store: ResponseStore, upstream: Upstream, watched: Watched
) -> None:
    id = await create(store, instructions=TEXT)
    play = await upstream.play()
    assert (await shown(store, id))["instructions"] == TEXT
    assert watched.on_loop == []
    assert {"queued_response", "first_events", "item_ids", "in_progress_event"} <= watched.elsewhere
    play.break_off()


async def test_requests_are_changed_beside_the_loop() -> None:
    loop_thread = threading.get_ident()
    threads: list[int] = []

    class Request:
        size = 10

        def with_input_prefix(self, earlier: bytes, share: object) -> str:
            threads.append(threading.get_ident())
            return "changed"

    class Store:
        def hold(self, owner: str) -> Hold:
            return Loading(1 << 30).hold(owner)

        async def context(self, chain: Chain, owner: str, hold: Hold) -> bytes:
            return b"x" * chain.size

    asked: Any = Request()
    state: Any = SimpleNamespace(responses=Store())
    conversations: Any = Conversations(state)
    changed: Any = await conversations.with_earlier(OWNER, asked, Chain(["resp_1"], LARGE_BYTES + 1))
    assert changed == "changed"
    await conversations.with_earlier(OWNER, asked, Chain(["resp_2"], 1))
    assert [thread == loop_thread for thread in threads] == [False, True]
    body = json.dumps({"model": MODEL, "input": TEXT}).encode()
    assert (await parsed(body)).size == len(body)


async def test_live_replies_that_are_being_read_have_a_bound(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await start(None, max_waiting_bytes=6 * len(TEXT))
    failed: list[str] = []
    monkeypatch.setattr(store._metrics, "failed", failed.append)
    for n in range(10):
        store_reply(store, f"resp_{n}")
    # Nothing has been read so far: the loop has had no turn.
    assert failed == ["keep"] * 9
    assert (await shown(store, "resp_0"))["status"] == "completed"
    with pytest.raises(NotFound):
        await shown(store, "resp_9")
    assert store._writer._bytes == 0
    store_reply(store, "resp_later")
    assert (await shown(store, "resp_later"))["status"] == "completed"


async def test_the_loop_goes_on_while_a_large_text_is_read() -> None:
    go_on = threading.Event()
    reading = asyncio.ensure_future(offload(LARGE_BYTES + 1, go_on.wait, WAIT_SECONDS))
    # Were it done here, nobody could set it.
    await asyncio.sleep(0)
    go_on.set()
    assert await reading
    assert await offload(LARGE_BYTES, threading.get_ident) == threading.get_ident()
