"""An endpoint that is forwarded to an upstream: the life of a request."""

import asyncio
import contextlib
from time import perf_counter

from sluicegate._core import Exchange, Outcome, Relay, Request, ResponsesRequest, Route
from sluicegate.errors import ParseError
from sluicegate.gateway import errors
from sluicegate.gateway.asgi import (
    BodyTooLarge,
    ClientDisconnected,
    Receive,
    Scope,
    Send,
    content_length,
    read_body,
    request_id_of,
    respond,
)
from sluicegate.gateway.errors import ErrorReply
from sluicegate.gateway.patience import Patience
from sluicegate.gateway.recording import outcome_record
from sluicegate.gateway.refusal import refuse
from sluicegate.gateway.reply import Reply
from sluicegate.gateway.state import Serving, State
from sluicegate.routing import Model
from sluicegate.telemetry import RequestRecord, Result, where

# Not a status of HTTP: nginx's number for "the client closed the connection", which operators know.
CLIENT_CLOSED_REQUEST = 499


class RelayedEndpoint:
    """`name` is what logs and metrics show, `path` where the upstream has it, below its base URL."""

    __slots__ = ("_name", "_path", "_patience", "_state")

    any_thread = True
    """Whether it may be called on any thread, as `gateway.threads` has it."""

    def __init__(self, state: State, name: str, path: str) -> None:
        self._state = state
        self._name = name
        self._path = path
        self._patience = Patience()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        serving = self._state.serving
        call = Call(self, serving, scope, receive, send)
        headers = call.headers
        client = serving.keys.client(headers.get(b"authorization"))
        if client is None:
            await call.refuse(errors.invalid_key(b"authorization" in headers), unread=True)
            return
        call.key = client.name
        limit = serving.config.server.max_body_bytes
        try:
            body = await read_body(receive, content_length(headers), limit)
        except BodyTooLarge:
            await call.refuse(errors.body_too_large(limit), unread=True)
            return
        except ClientDisconnected:
            call.left()
            return
        call.body = body
        try:
            request = self._read(body)
        except ParseError as error:
            await call.refuse(errors.invalid_body(error))
            return
        name = request.model
        if not name:
            await call.refuse(errors.missing_model())
            return
        model = serving.models.get(name)
        if model is None:
            call.requested_model = name
            await call.refuse(errors.unknown_model(name))
            return
        await self._forward(call, request, model)

    def _read(self, body: bytes) -> Request | ResponsesRequest:
        return Request(body)

    def _submit(
        self, relay: Relay, request: Request | ResponsesRequest, route: Route, call: "Call", reply: Reply
    ) -> Exchange:
        return relay.forward(request, self._path, route, call.scope["headers"], call.request_id, reply)

    async def _forward(self, call: "Call", request: Request | ResponsesRequest, model: Model) -> None:
        state = self._state
        call.model = model.name
        routes = state.policy.order(model)
        loop = state.loop()
        reply = Reply(state, call.serving, loop, call.receive, call.send, call.request_id, model.name, routes)
        try:
            exchange = self._submit(state.running_relay(), request, routes[0], call, reply)
        except Exception as error:
            if state.draining:
                await call.refuse(errors.shutting_down())
                return
            state.log.error("forward_failed", request_id=call.request_id, error=where(error))
            await call.refuse(errors.internal())
            return
        call.exchange = exchange
        streams = request.stream
        state.opened()
        if streams:
            state.metrics.stream_started(model.name)
        self._patience.wait_for(reply, loop)
        try:
            await reply.over
        finally:
            reply.stop_looking()
            outcome = exchange.outcome
            if outcome is None:
                self._client_left(call, reply, streams, exchange, loop)
            else:
                self._record(call, reply, streams, outcome)

    def _client_left(
        self, call: "Call", reply: Reply, streams: bool, exchange: Exchange, loop: asyncio.AbstractEventLoop
    ) -> None:
        def finished(outcome: Outcome) -> None:
            # RuntimeError: the loop is closed, and with it the log and the metrics.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._record, call, reply, streams, outcome)

        exchange.client_left()
        exchange.on_finish(finished)

    def _record(self, call: "Call", reply: Reply, streams: bool, outcome: Outcome) -> None:
        state = self._state
        state.closed()
        if streams:
            state.metrics.stream_ended(reply.model)
        record = outcome_record(self._name, call.key, reply, outcome)
        state.metrics.record(record)
        state.log.request(record)


class Call:
    """One request, as far as it is known."""

    __slots__ = (
        "_endpoint", "_started", "body", "exchange", "headers", "keep", "key", "model", "receive",
        "request_id", "requested_model", "response_id", "scope", "send", "serving",
    )  # fmt: skip

    def __init__(
        self, endpoint: RelayedEndpoint, serving: Serving, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._endpoint = endpoint
        self.serving = serving
        self._started = perf_counter()
        self.scope = scope
        self.receive = receive
        self.send = send
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.request_id = request_id_of(self.headers)
        self.key: str | None = None
        self.model = ""
        self.requested_model: str | None = None
        self.body = b""
        self.exchange: Exchange | None = None
        self.response_id: str | None = None
        """Of a response that is made here; None: a new one."""
        self.keep: int | None = None
        """The bytes of the reply that shall be there at its end."""

    async def refuse(self, error: ErrorReply, *, unread: bool = False) -> None:
        """Answer with `error`. `unread`: the client may still be sending."""
        self._record(error.status, error.code)
        if unread:
            await self._endpoint._state.onto_loop()
            await refuse(self.receive, self.send, error, self.headers, self.request_id)
        else:
            headers = [*error.headers, (b"x-request-id", self.request_id.encode())]
            await respond(self.send, error.status, headers, error.body)

    def left(self) -> None:
        """The client left before its request was whole."""
        self._record(CLIENT_CLOSED_REQUEST, None)

    def served(self, left: bool) -> None:
        """The gateway has answered by itself. `left`: the client did not wait for all of it."""
        self._record(200, None, left=left)

    def _record(self, status: int, code: str | None, *, left: bool = False) -> None:
        endpoint = self._endpoint
        result: Result = "failed" if status >= 500 else "refused" if status >= 400 else "ok"
        left = left or status == CLIENT_CLOSED_REQUEST
        record = RequestRecord(
            self.request_id,
            endpoint._name,
            status,
            "client_left" if left else result,
            perf_counter() - self._started,
            self.key,
            self.model,
            None if self.requested_model is None else self.requested_model[:128],
            code=code,
            client_left=left,
        )
        endpoint._state.metrics.record(record)
        endpoint._state.log.request(record)
