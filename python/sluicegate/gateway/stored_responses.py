"""`/v1/responses/{id}` and what is below it: look, follow, cancel, delete, list what it was made from."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from sluicegate.gateway import stored_errors
from sluicegate.gateway.app_request import AppRequest, Methods
from sluicegate.gateway.asgi import Receive, Send
from sluicegate.gateway.errors import Refused
from sluicegate.gateway.state import State
from sluicegate.responses import Hold, LoadingBusy, NotFinished, NotFound, Page
from sluicegate.storage import StoreUnavailable

PREFIX = "/v1/responses/"

_JSON = (b"content-type", b"application/json")
_EVENTS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
_DONE = b"data: [DONE]\n\n"

# A client that follows something long in silence must not be taken for gone by what is in between.
_KEEPALIVE_SECONDS = 15.0

Reply = Mapping[str, Any] | bytes | AsyncIterator[bytes]


class StoredResponses:
    """One endpoint a method and path. `methods` says which there are at a path."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.keepalive = follow_keepalive(state)

    def methods(self, path: str) -> Methods | None:
        """The methods of a path; None if there is no such path here."""
        id, slash, rest = path.removeprefix(PREFIX).partition("/")
        if not path.startswith(PREFIX) or not id:
            return None
        if not slash:
            get = "get_response", _Call(self, id, self._get)
            return {
                "GET": get,
                "HEAD": get,
                "DELETE": ("delete_response", _Call(self, id, self._delete)),
            }
        if rest == "cancel":
            return {"POST": ("cancel_response", _Call(self, id, self._cancel))}
        if rest == "input_items":
            items = "list_input_items", _Call(self, id, self._input_items)
            return {"GET": items, "HEAD": items}
        return None

    # === what each does ===

    async def _get(self, id: str, owner: str, query: Mapping[str, str], hold: Hold) -> Reply:
        store = self.state.responses
        if query.get("stream", "false").lower() not in ("true", "1"):
            return await store.response(id, owner, hold)
        return await store.follow(id, owner, _whole_number(query, "starting_after", -1, least=0))

    async def _delete(self, id: str, owner: str, query: Mapping[str, str], hold: Hold) -> Reply:
        await self.state.responses.delete(id, owner)
        return {"id": id, "object": "response", "deleted": True}

    async def _cancel(self, id: str, owner: str, query: Mapping[str, str], hold: Hold) -> Reply:
        entry, body = await self.state.responses.cancel(id, owner, hold)
        if not entry.background:
            raise Refused(stored_errors.not_cancellable())
        return body

    async def _input_items(self, id: str, owner: str, query: Mapping[str, str], hold: Hold) -> Reply:
        order = query.get("order", "desc")
        if order not in ("asc", "desc"):
            raise Refused(stored_errors.bad_parameter("order", "asc or desc"))
        limit = _whole_number(query, "limit", 20, least=1, most=100)
        after = query.get("after")
        page = Page("asc" if order == "asc" else "desc", after, limit)
        listed = await self.state.responses.input_items(id, owner, page, hold)
        if listed is None:
            raise Refused(stored_errors.bad_parameter("after", "the id of one of the items"))
        return listed


class _Call:
    """One of them at one id, as an endpoint."""

    __slots__ = ("_act", "_id", "_stored")

    def __init__(
        self,
        stored: StoredResponses,
        id: str,
        act: Callable[[str, str, Mapping[str, str], Hold], Awaitable[Reply]],
    ) -> None:
        self._stored = stored
        self._id = id
        self._act = act

    async def __call__(self, asked: AppRequest) -> None:
        asked.authorize()
        with self._stored.state.responses.hold(asked.owner) as hold:
            reply = await self._reply(asked.owner, asked.scope["query_string"], hold)
            if isinstance(reply, bytes | Mapping):
                await asked.respond(
                    [_JSON],
                    reply if isinstance(reply, bytes) else json.dumps(reply, separators=(",", ":")).encode(),
                )
                return
        await send_events(asked, reply, self._stored.keepalive)

    async def _reply(self, owner: str, query_string: bytes, hold: Hold) -> Reply:
        if not self._stored.state.responses.enabled:
            raise Refused(stored_errors.response_not_found(self._id))
        query = dict(parse_qsl(query_string.decode("latin-1")))
        try:
            return await self._act(self._id, owner, query, hold)
        except (NotFound, NotFinished):
            raise Refused(stored_errors.response_not_found(self._id)) from None
        except LoadingBusy:
            raise Refused(stored_errors.loading_busy()) from None
        except StoreUnavailable:
            raise Refused(stored_errors.store_unavailable()) from None


def follow_keepalive(state: State) -> float:
    """Seconds of silence after which a client that follows gets a comment."""
    return state.config.server.keepalive_seconds or _KEEPALIVE_SECONDS


async def send_events(asked: AppRequest, events: AsyncIterator[bytes], keepalive: float) -> None:
    """Answer with runs of events, comments in between where they are slow, and `[DONE]`.

    Whatever becomes of the client, what makes the events goes on without it. Where the store fails on the
    way, the stream just ends, without `[DONE]`: the client resumes it where it was.
    """
    left = False
    try:
        await asked.send({"type": "http.response.start", "status": 200, "headers": [*_EVENTS, asked.about]})
        left = await _send_runs(events, asked.receive, asked.send, keepalive)
    finally:
        asked.record(200, left=left)


async def _send_runs(events: AsyncIterator[bytes], receive: Receive, send: Send, keepalive: float) -> bool:
    """True where the client left."""
    leaving = asyncio.ensure_future(_disconnected(receive))
    following = asyncio.ensure_future(anext(events, None))
    try:
        while True:
            waiting = {leaving, following}
            await asyncio.wait(waiting, timeout=keepalive, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                return True
            if not following.done():
                await send({"type": "http.response.body", "body": b": keep-alive\n\n", "more_body": True})
                continue
            try:
                data = following.result()
            except StoreUnavailable:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return False
            if data is None:
                await send({"type": "http.response.body", "body": _DONE, "more_body": False})
                return False
            if data:
                await send({"type": "http.response.body", "body": data, "more_body": True})
            following = asyncio.ensure_future(anext(events, None))
    finally:
        for task in (leaving, following):
            task.cancel()
        await asyncio.gather(leaving, following, return_exceptions=True)
        if hasattr(events, "aclose"):
            with contextlib.suppress(StoreUnavailable):
                await events.aclose()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _whole_number(
    query: Mapping[str, str], name: str, otherwise: int, *, least: int, most: int = 2**62
) -> int:
    text = query.get(name)
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        bounds = f"from {least} to {most}" if most < 2**62 else f"of at least {least}"
        raise Refused(stored_errors.bad_parameter(name, f"a whole number {bounds}"))
    return int(text)
