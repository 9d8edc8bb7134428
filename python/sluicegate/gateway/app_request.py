"""One request that comes to the application, and not by way of the front's own listeners."""

from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter

from sluicegate.admission import ANYONE, Caller, key_digest
from sluicegate.gateway import errors
from sluicegate.gateway.asgi import (
    BodyTooLarge,
    ClientDisconnected,
    Headers,
    Receive,
    Scope,
    Send,
    content_length,
    read_body,
    request_id_of,
    respond,
)
from sluicegate.gateway.endpoints import RELAYED
from sluicegate.gateway.errors import ErrorReply, Form, Refused
from sluicegate.gateway.forms import form_of, form_of_client, in_form
from sluicegate.gateway.recording import LONGEST_NAME, names_of, result_of
from sluicegate.gateway.refusal import refuse
from sluicegate.gateway.rights import Refusal
from sluicegate.gateway.state import State
from sluicegate.routing import Model
from sluicegate.telemetry import RequestRecord

# Not a status of HTTP: nginx's number for "the client closed the connection", which operators know.
CLIENT_CLOSED_REQUEST = 499

LONGEST_PATH = 256
"""Characters of a path where nothing is, in a record."""


class AppRequest:
    """What is asked, how it is answered, and its one record. For the event loop.

    `endpoint` is what logs and metrics show; empty for what is not recorded (health, metrics).
    """

    __slots__ = (
        "_body_read", "_endpoint", "_started", "_state", "caller", "headers", "model", "receive", "recorded",
        "request_id", "requested_model", "scope", "send", "serving", "wrong_path",
    )  # fmt: skip

    def __init__(self, state: State, endpoint: str, scope: Scope, receive: Receive, send: Send) -> None:
        self._state = state
        self._endpoint = endpoint
        self._started = perf_counter()
        self._body_read = False
        self.serving = state.serving
        self.scope = scope
        self.receive = receive
        self.send = send
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.request_id = request_id_of(self.headers)
        self.caller: Caller | None = None
        self.model = ""
        """The public name, once it is a configured one."""
        self.requested_model: str | None = None
        """What was asked for, where that is not configured."""
        self.wrong_path: str | None = None
        """The path, where nothing is there, or not by this method."""
        self.recorded = not endpoint
        """Its record is made, or is not to be made here."""

    @property
    def about(self) -> tuple[bytes, bytes]:
        """The header that every answer has."""
        return b"x-request-id", self.request_id.encode()

    @property
    def form(self) -> Form:
        """How its errors are written."""
        name = RELAYED.get(self.scope["path"])
        return form_of_client(self.headers) if name is None else form_of(name)

    def authorize(self) -> Caller:
        """Who asks, where it may do what this endpoint does. Raises `Refused`."""
        rights = self.serving.admission.rights
        caller = rights.authorize(rights.by_key(*key_digest(self.headers)), self._endpoint)
        if isinstance(caller, Refusal):
            raise Refused(errors.refused(caller))
        self.caller = caller
        return caller

    @property
    def owner(self) -> str:
        """To whom the stored responses belong that it makes or reads, once it is authorized."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in self.headers.items()}
        return self.serving.admission.rights.owner(self.caller or ANYONE, headers)

    def asked_model(self, caller: Caller, name: str | None, *, runs_later: bool = False) -> Model:
        """The model of that name, which somebody must have listed. `runs_later`: without this client. Raises
        `Refused`.
        """
        rights = self.serving.admission.rights
        model = rights.model_without_client(caller, name) if runs_later else rights.model(caller, name)
        if not isinstance(model, Refusal) and not model.listed:
            model = Refusal("unknown_model", model.name)
        if isinstance(model, Refusal):
            self.requested_model = name and name[:LONGEST_NAME]
            raise Refused(errors.refused(model))
        self.model = model.label
        if model.asked != model.label:
            self.requested_model = model.asked[:LONGEST_NAME]
        return model

    async def read(self) -> bytes:
        """The body, within bounds. Raises `Refused` and `ClientDisconnected`."""
        limit = self.serving.config.server.max_body_bytes
        try:
            body = await read_body(self.receive, content_length(self.headers), limit)
        except BodyTooLarge:
            raise Refused(errors.body_too_large(limit)) from None
        except ClientDisconnected:
            self.record(CLIENT_CLOSED_REQUEST, left=True)
            raise
        self._body_read = True
        return body

    async def respond(self, headers: Headers, body: bytes, status: int = 200) -> None:
        """Answer with `body`."""
        try:
            await respond(self.send, status, [*headers, self.about], body)
        finally:
            self.record(status)

    async def refuse(self, reply: ErrorReply) -> None:
        """Answer with an error; what the client is still sending is read on, within bounds."""
        reply = in_form(reply, self.form, self.request_id)
        self.record(reply.status, reply.code, reply.limit)
        if self._body_read:
            await respond(self.send, reply.status, [*reply.headers, self.about], reply.body)
        else:
            await refuse(self.receive, self.send, reply, self.headers, self.request_id)

    def record(
        self, status: int, code: str | None = None, limit: str | None = None, *, left: bool = False
    ) -> None:
        """It is over; only the first call counts. `limit`: the one that refused it; `left`: the client did
        not wait for all of its answer.
        """
        if self.recorded:
            return
        self.recorded = True
        record = RequestRecord(
            self.request_id,
            self._endpoint,
            status,
            "client_left" if left else result_of(status),
            perf_counter() - self._started,
            **names_of(self.caller),
            model=self.model,
            requested_model=self.requested_model,
            code=code,
            limit=limit,
            path=None if self.wrong_path is None else self.wrong_path[:LONGEST_PATH],
            client_left=left,
        )
        self._state.recorder.record(record)


Endpoint = Callable[[AppRequest], Awaitable[None]]
"""Answers a request. It may raise `Refused`."""

Methods = Mapping[str, tuple[str, Endpoint]]
"""What there is at a path: by method, what the record calls it and who answers."""
