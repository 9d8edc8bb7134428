"""`POST /v1/responses`, as far as the store is concerned: conversations, background work, what is kept."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sluicegate._core import Outcome, Request, ResponsesRequest
from sluicegate.errors import ParseError
from sluicegate.gateway import errors, stored_errors
from sluicegate.gateway.asgi import Receive, Send, respond
from sluicegate.gateway.errors import ErrorReply
from sluicegate.gateway.relayed import Call
from sluicegate.gateway.reply import Reply
from sluicegate.gateway.responses import ResponsesEndpoint
from sluicegate.gateway.stored_responses import Refused, send_events
from sluicegate.responses import (
    Item,
    NotFinished,
    NotFound,
    QueueFull,
    StoreUnavailable,
    Work,
    dump,
    given,
    is_reference,
    replace_members,
)
from sluicegate.routing import Model

# A reference to an item has one.
_MAY_REFER = b'"id"'

_EVENTS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_FOLLOW_KEEPALIVE_SECONDS = 15.0


class StoringEndpoint(ResponsesEndpoint):
    """Its responses are kept, continued, and run in the background."""

    __slots__ = ()

    async def _forward(self, call: Call, request: Request | ResponsesRequest, model: Model) -> None:
        if isinstance(request, ResponsesRequest):
            try:
                if request.background:
                    await self._begin(call, model, request)
                    return
                if request.store and self._state.responses.enabled:
                    call.keep = self._state.config.responses.max_response_bytes
                # Most requests need not be read again.
                if request.previous_response_id is not None or _MAY_REFER in call.body:
                    request = await self._continued(call, request, model)
            except Refused as refused:
                call.model = model.name
                await call.refuse(refused.reply)
                return
        await super()._forward(call, request, model)

    # === live replies ===

    def _record(self, call: Call, reply: Reply, streams: bool, outcome: Outcome) -> None:
        super()._record(call, reply, streams, outcome)
        if call.keep is None or call.exchange is None or outcome.status != 200 or outcome.client_left:
            return
        kept = call.exchange.kept()
        if kept is not None:
            self._state.responses.keep(
                owner=call.key or "",
                model=reply.model,
                request_id=call.request_id,
                request=call.body,
                reply=kept,
                streamed=outcome.streamed,
            )

    # === conversations ===

    async def _continued(self, call: Call, request: ResponsesRequest, model: Model) -> ResponsesRequest:
        """The request with the conversation that it continues, and with the items that it refers to.

        What is not ours is left to an upstream that serves Responses itself.
        """
        owner = call.key or ""
        earlier = await self._conversation(owner, model, request.previous_response_id)
        input = await self._resolved(owner, model, _parsed(call.body))
        if input is not None:
            # Also what is kept: later turns need the items, whatever has become of where they were from.
            call.body = _with_input(call.body, input)
            request = ResponsesRequest(call.body)
        if earlier is None:
            return request
        try:
            return request.with_input_prefix([dump(item).encode() for item in earlier])
        except ParseError as error:
            raise Refused(errors.invalid_body(error)) from None

    async def _conversation(self, owner: str, model: Model, previous: str | None) -> list[Item] | None:
        """The items up to the response `previous`; None where there is none, or it is not one of ours."""
        if previous is None:
            return None
        store = self._state.responses
        try:
            if store.enabled:
                return await store.context(previous, owner)
            missing, known = previous, False
        except NotFound as error:
            missing, known = error.id, error.known
        except NotFinished as error:
            raise Refused(stored_errors.previous_response_not_finished(error.id, error.status)) from None
        except StoreUnavailable:
            raise Refused(stored_errors.store_unavailable()) from None
        if missing == previous and not known and self._speaks_responses(model):
            return None
        raise Refused(stored_errors.previous_response_not_found(missing))

    async def _resolved(self, owner: str, model: Model, body: Mapping[str, Any]) -> list[Any] | None:
        """The request's input with items in place of references to them; None where there are none."""
        items = given(body)
        if not any(map(is_reference, items)):
            return None
        resolved = []
        for item in items:
            resolved.append(await self._item(owner, model, item) if is_reference(item) else item)
        return resolved

    async def _item(self, owner: str, model: Model, reference: Item) -> Item:
        id = str(reference.get("id"))
        try:
            if self._state.responses.enabled:
                return await self._state.responses.item(id, owner)
        except NotFound:
            pass
        except StoreUnavailable:
            raise Refused(stored_errors.store_unavailable()) from None
        if self._speaks_responses(model):
            return reference
        raise Refused(stored_errors.item_not_found(id))

    def _speaks_responses(self, model: Model) -> bool:
        upstreams = self._state.config.upstreams
        return any(upstreams[route.upstream.name].api != "chat" for route in self._state.policy.order(model))

    # === background ===

    async def _begin(self, call: Call, model: Model, request: ResponsesRequest) -> None:
        """Take the response on, and answer: with its object, or with its events as they come."""
        state = self._state
        owner = call.key or ""
        if not request.store:
            raise Refused(stored_errors.background_needs_store())
        if not state.responses.enabled:
            raise Refused(stored_errors.background_not_here())
        routes = state.policy.order(model)
        if all(state.forwards_authorization[route.upstream.name] for route in routes):
            raise Refused(stored_errors.background_needs_own_credentials(model.name))
        # Looked at now, so that the client is told at once, and again when it runs.
        await self._conversation(owner, model, request.previous_response_id)
        body = _parsed(call.body)
        input = await self._resolved(owner, model, body)
        public = state.config.models[model.name].reply_model == "public"
        text = call.body if input is None else _with_input(call.body, input)
        try:
            id, response = await state.responses.create(
                owner=owner,
                model=model.name,
                request_id=call.request_id,
                request=text,
                body=body if input is None else {**body, "input": input},
                shown_model=model.name if public else routes[0].model,
            )
        except QueueFull:
            raise Refused(stored_errors.queue_full()) from None
        except StoreUnavailable:
            raise Refused(stored_errors.store_unavailable()) from None
        call.model = model.name
        about = (b"x-request-id", call.request_id.encode())
        left = False
        try:
            if request.stream:
                await call.send({"type": "http.response.start", "status": 200, "headers": [*_EVENTS, about]})
                events = await state.responses.follow(id, owner, -1)
                seconds = state.config.server.keepalive_seconds or _FOLLOW_KEEPALIVE_SECONDS
                left = await send_events(events, call.receive, call.send, seconds)
            else:
                headers = [(b"content-type", b"application/json"), about]
                await respond(call.send, 200, headers, response)
        finally:
            call.served(left)

    async def execute(self, work: Work, receive: Receive, send: Send) -> None:
        """Run a background response: an ordinary exchange, always streamed, whose client is the store."""
        entry = work.entry
        scope = {
            "type": "http",
            "path": "/v1/responses",
            "headers": [
                (b"content-type", b"application/json"),
                (b"x-request-id", entry.request_id.encode("latin-1", "replace")),
            ],
        }
        serving = self._state.serving
        call = Call(self, serving, scope, receive, send)
        call.key = entry.owner or None
        model = serving.models.get(entry.model)
        if model is None:
            await call.refuse(errors.unknown_model(entry.model))
            return
        # Its own input was resolved when it was taken on.
        text = _replaced(work.request, {"stream": "true", "background": "false"})
        call.body, call.response_id = text, entry.id
        try:
            request = ResponsesRequest(text)
            earlier = await self._conversation(entry.owner, model, request.previous_response_id)
            if earlier is not None:
                request = request.with_input_prefix([dump(item).encode() for item in earlier])
        except ParseError as error:
            await call.refuse(errors.invalid_body(error))
        except Refused as refused:
            await call.refuse(refused.reply)
        else:
            await super()._forward(call, request, model)


def _parsed(body: bytes) -> Mapping[str, Any]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(_unreadable()) from None
    if not isinstance(parsed, dict):
        raise Refused(_unreadable())
    return parsed


def _unreadable() -> ErrorReply:
    return errors.error_reply(400, "The request's body cannot be read.", code="invalid_body")


def _with_input(text: bytes, input: Sequence[Any]) -> bytes:
    return _replaced(text, {"input": dump(input)})


def _replaced(text: bytes, values: Mapping[str, str]) -> bytes:
    return replace_members(text.decode("utf-8", "replace"), values).encode()
