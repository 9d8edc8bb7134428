"""`/v1/responses/{id}` and what is below it: look, follow, cancel, delete, list what it was made from."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any
from urllib.parse import parse_qsl

from sluicegate.gateway import errors, stored_errors
from sluicegate.gateway.asgi import Receive, Scope, Send, request_id_of, respond
from sluicegate.gateway.errors import ErrorReply
from sluicegate.gateway.refusal import refuse
from sluicegate.gateway.state import State
from sluicegate.responses import NotFinished, NotFound, Page, StoreUnavailable
from sluicegate.telemetry import RequestRecord

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


class Refused(Exception):
    """The request is answered with `reply`."""

    def __init__(self, reply: ErrorReply) -> None:
        self.reply = reply


class StoredResponses:
    """One endpoint a method and path. `methods` says which there are at a path."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._keepalive = state.config.server.keepalive_seconds or _KEEPALIVE_SECONDS

    def methods(self, path: str) -> Mapping[str, Callable[[Scope, Receive, Send], Awaitable[None]]] | None:
        """None for a path that is none of ours."""
        id, slash, rest = path.removeprefix(PREFIX).partition("/")
        if not path.startswith(PREFIX) or not id:
            return None
        if not slash:
            return {
                "GET": _Call(self, id, "get_response", self._get),
                "HEAD": _Call(self, id, "get_response", self._get),
                "DELETE": _Call(self, id, "delete_response", self._delete),
            }
        if rest == "cancel":
            return {"POST": _Call(self, id, "cancel_response", self._cancel)}
        if rest == "input_items":
            items = _Call(self, id, "list_input_items", self._input_items)
            return {"GET": items, "HEAD": items}
        return None

    # === what each does ===

    async def _get(self, id: str, owner: str, query: Mapping[str, str]) -> Reply:
        store = self._state.responses
        if query.get("stream", "false").lower() not in ("true", "1"):
            return await store.response(id, owner)
        return await store.follow(id, owner, _whole_number(query, "starting_after", -1, least=0))

    async def _delete(self, id: str, owner: str, query: Mapping[str, str]) -> Reply:
        await self._state.responses.delete(id, owner)
        return {"id": id, "object": "response", "deleted": True}

    async def _cancel(self, id: str, owner: str, query: Mapping[str, str]) -> Reply:
        entry, body = await self._state.responses.cancel(id, owner)
        if not entry.background:
            raise Refused(stored_errors.not_cancellable())
        return body

    async def _input_items(self, id: str, owner: str, query: Mapping[str, str]) -> Reply:
        order = query.get("order", "desc")
        if order not in ("asc", "desc"):
            raise Refused(stored_errors.bad_parameter("order", "asc or desc"))
        limit = _whole_number(query, "limit", 20, least=1, most=100)
        after = query.get("after")
        page = Page("asc" if order == "asc" else "desc", after, limit)
        listed = await self._state.responses.input_items(id, owner, page)
        if listed is None:
            raise Refused(stored_errors.bad_parameter("after", "the id of one of the items"))
        return listed


class _Call:
    """One of them at one id, as an ASGI application."""

    __slots__ = ("_act", "_id", "_name", "_stored")

    def __init__(
        self,
        stored: StoredResponses,
        id: str,
        name: str,
        act: Callable[[str, str, Mapping[str, str]], Awaitable[Reply]],
    ) -> None:
        self._stored = stored
        self._id = id
        self._name = name
        self._act = act

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = self._stored._state
        started = perf_counter()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = request_id_of(headers)
        client = state.keys.client(headers.get(b"authorization"))
        key = None if client is None else client.name
        status, code, left = 200, None, False
        try:
            if client is None:
                raise Refused(errors.invalid_key(b"authorization" in headers))
            reply = await self._reply(client.name or "", scope)
            about = (b"x-request-id", request_id.encode())
            if isinstance(reply, bytes | Mapping):
                body = reply if isinstance(reply, bytes) else _dump(reply)
                await respond(send, 200, [_JSON, about], body)
            else:
                await send({"type": "http.response.start", "status": 200, "headers": [*_EVENTS, about]})
                left = await send_events(reply, receive, send, self._stored._keepalive)
        except Refused as refused:
            status, code = refused.reply.status, refused.reply.code
            await refuse(receive, send, refused.reply, headers, request_id)
        finally:
            seconds = perf_counter() - started
            result: Any = "client_left" if left else "ok" if status == 200 else "refused"
            if status >= 500:
                result = "failed"
            record = RequestRecord(
                request_id, self._name, status, result, seconds, key, code=code, client_left=left
            )
            state.metrics.record(record)
            state.log.request(record)

    async def _reply(self, owner: str, scope: Scope) -> Reply:
        state = self._stored._state
        if not state.responses.enabled:
            raise Refused(stored_errors.response_not_found(self._id))
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        try:
            return await self._act(self._id, owner, query)
        except (NotFound, NotFinished):
            raise Refused(stored_errors.response_not_found(self._id)) from None
        except StoreUnavailable:
            raise Refused(stored_errors.store_unavailable()) from None


async def send_events(
    events: AsyncIterator[bytes], receive: Receive, send: Send, keepalive_seconds: float
) -> bool:
    """Send runs of events, comments in between where they are slow, and `[DONE]`; True where the client left.

    Whatever becomes of the client, what makes the events goes on without it. Where the store fails on the
    way, the stream just ends, without `[DONE]`: the client resumes it where it was.
    """
    leaving = asyncio.ensure_future(_disconnected(receive))
    following = asyncio.ensure_future(anext(events, None))
    try:
        while True:
            waiting = {leaving, following}
            await asyncio.wait(waiting, timeout=keepalive_seconds, return_when=asyncio.FIRST_COMPLETED)
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


def _dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
