"""`POST /v1/responses` with `background`: a response is taken on, and run when its turn comes."""

import re
import time
from collections.abc import Callable
from time import perf_counter

from sluicegate._core import Lease, ResponsesRequest
from sluicegate.admission import Caller, Later
from sluicegate.errors import ParseError
from sluicegate.gateway import errors, stored_errors
from sluicegate.gateway.admission import told
from sluicegate.gateway.app_request import AppRequest
from sluicegate.gateway.asgi import Message, Receive, Send, respond
from sluicegate.gateway.call import Run, TakenOn
from sluicegate.gateway.conversations import Conversations, parsed
from sluicegate.gateway.decisions import Decider
from sluicegate.gateway.door import Door
from sluicegate.gateway.endpoints import RESPONSES_PATH, TIMEOUT_HEADER
from sluicegate.gateway.errors import ErrorReply, Refused
from sluicegate.gateway.recording import names_of, result_of
from sluicegate.gateway.rights import RUN, Refusal
from sluicegate.gateway.state import State
from sluicegate.gateway.stored_responses import follow_keepalive, send_events
from sluicegate.offload import offload
from sluicegate.responses import QueueFull, StoreBusy, Work
from sluicegate.routing import Model
from sluicegate.storage import StoreUnavailable, Unstorable
from sluicegate.telemetry import RequestRecord

_JSON = (b"content-type", b"application/json")

_TIMEOUT = TIMEOUT_HEADER.encode()
# As the front reads it, which sees live requests only.
_SECONDS = re.compile(rb"\s*\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
_LONGEST_NUMBER = 64
"""Bytes. To match a longer one could take long."""
_LONGEST_SECONDS = 30 * 24 * 3600.0


class Background:
    """For the event loop."""

    def __init__(self, state: State, door: Door, decider: Decider, conversations: Conversations) -> None:
        self._state = state
        self._door = door
        self._decider = decider
        self._conversations = conversations

    # === taking on ===

    async def endpoint(self, asked: AppRequest) -> None:
        """Requests for a response: those without `background` go the way of all."""
        caller = asked.authorize()
        body = await asked.read()
        try:
            request = await offload(len(body), ResponsesRequest, body)
        except ParseError:
            request = None
        if request is not None and request.background:
            await self._begin(asked, caller, request)
        else:
            await self._door.relay(RESPONSES_PATH, asked, body)

    async def _begin(self, asked: AppRequest, caller: Caller, request: ResponsesRequest) -> None:
        """Take the response on, and answer: with its object, or with its events as they come."""
        state, serving, owner = self._state, asked.serving, asked.owner
        model = asked.asked_model(caller, request.model, runs_later=True)
        seconds = _client_timeout(asked)
        if not request.store:
            raise Refused(stored_errors.background_needs_store())
        if not state.responses.enabled:
            raise Refused(stored_errors.background_not_here())
        if request.unstorable is not None:
            raise Refused(stored_errors.unstorable(request.unstorable))
        taken_on = TakenOn(asked.headers)

        def take_on(tell: Callable[[Lease | Refusal | None], None]) -> None:
            answer = serving.admission.admit(caller, model, taken_on, work="none")
            if isinstance(answer, Later):
                answer.then(lambda answer: tell(told(answer)))
            else:
                tell(answer)

        lease = await self._decider.hear(take_on)
        if isinstance(lease, Refusal):
            raise Refused(errors.refused(lease))
        try:
            id, response = await self._keep(asked, caller, request, model, taken_on, seconds)
        except BaseException:
            # What is not taken on counts nowhere.
            if lease is not None:
                self._decider.post(lease.unused)
            raise
        if lease is not None:
            # What it uses beside the request counts when it runs.
            self._decider.post(lease.release)
        # Its record is that of its run.
        asked.recorded = True
        state.log.info(
            "accepted",
            request_id=asked.request_id,
            response_id=id,
            **names_of(caller),
            model=model.name,
        )
        if request.stream:
            events = await state.responses.follow(id, owner, -1)
            await send_events(asked, events, follow_keepalive(state))
        else:
            await asked.respond([_JSON], response)

    async def _keep(
        self,
        asked: AppRequest,
        caller: Caller,
        request: ResponsesRequest,
        model: Model,
        taken_on: TakenOn,
        seconds: float | None,
    ) -> tuple[str, bytes]:
        """Put it into the queue; its id, and its object. Raises `Refused`."""
        state, serving, owner = self._state, asked.serving, asked.owner
        # Looked at now, so that the client is told at once, and again when it runs.
        await self._conversations.earlier(serving, owner, model, request.previous_response_id)
        resolved = await self._conversations.resolved(serving, owner, model, request)
        try:
            return await state.responses.create(
                owner=owner,
                model=model.name,
                request_id=asked.request_id,
                request=resolved or request,
                shown_model=model.shown,
                key_id=caller.key_id or None,
                user_id=serving.admission.user(taken_on),
                seconds=seconds,
            )
        except QueueFull:
            raise Refused(stored_errors.queue_full()) from None
        except Unstorable:
            raise Refused(stored_errors.not_stored()) from None
        except StoreBusy:
            raise Refused(stored_errors.store_busy()) from None
        except StoreUnavailable:
            raise Refused(stored_errors.store_unavailable()) from None

    # === running ===

    async def execute(self, work: Work, receive: Receive, send: Send) -> None:
        """Run a background response: an ordinary exchange, always streamed, whose client is the store."""
        entry, serving, started = work.entry, self._state.serving, perf_counter()
        rights = serving.admission.rights
        holder = rights.by_work(entry.owner, entry.key_id)
        run = Run(serving, holder.caller, entry.id, max(entry.attempts, 1))
        tag = self._decider.expect(run)
        try:
            # Much may have changed since it was taken on.
            caller = rights.authorize(holder, RUN)
            if isinstance(caller, Refusal):
                raise Refused(errors.refused(caller))
            # Its own input was resolved when it was taken on.
            request = await parsed(work.request)
            text = await offload(request.size, request.as_run)
            run.request = await self._with_conversation(run, entry.owner, entry.model, text)
            headers = [_JSON, (b"x-request-id", entry.request_id.encode("latin-1", "replace"))]
            if entry.deadline is not None:
                seconds = entry.deadline - time.time()
                if seconds <= 0:
                    raise Refused(errors.client_timeout())
                headers.append((_TIMEOUT, b"%.6f" % max(seconds, 0.001)))
            user_header = serving.admission.user_header
            if user_header is not None and entry.user_id is not None:
                headers.append((user_header.encode(), entry.user_id.encode("latin-1", "replace")))
            exchange = self._door.submit(RESPONSES_PATH, headers, text, entry.request_id, tag=tag)
        except Refused as refused:
            self._decider.forget(tag)
            self._refused(work, run.caller, refused.reply, perf_counter() - started)
            await respond(send, refused.reply.status, refused.reply.headers, refused.reply.body)
            return

        def left(message: Message) -> None:
            run.stopped = message.get("reason")

        await self._door.deliver(exchange, receive, send, left)

    async def _with_conversation(
        self, run: Run, owner: str, name: str, text: bytes
    ) -> ResponsesRequest | None:
        """The request that takes the place of `text`, if any. Raises `Refused`."""
        model = run.serving.admission.rights.model_without_client(run.caller, name)
        if isinstance(model, Refusal):
            raise Refused(errors.refused(model))
        request = await parsed(text)
        previous = request.previous_response_id
        earlier = await self._conversations.earlier(run.serving, owner, model, previous)
        if earlier is None:
            return None
        return await self._conversations.with_earlier(owner, request, earlier)

    def _refused(self, work: Work, caller: Caller, reply: ErrorReply, seconds: float) -> None:
        entry = work.entry
        model = self._state.models.find(entry.model)
        label = "" if model is None else model.label
        record = RequestRecord(
            entry.request_id,
            RESPONSES_PATH,
            reply.status,
            result_of(reply.status),
            seconds,
            **names_of(caller),
            model=label,
            requested_model=None if label == entry.model else entry.model,
            code=reply.code,
            response_id=entry.id,
        )
        self._state.recorder.record(record)


def _client_timeout(asked: AppRequest) -> float | None:
    """How many seconds the client wants to wait for the end of its reply. Raises `Refused`."""
    values = [value for name, value in asked.scope["headers"] if name.lower() == _TIMEOUT]
    if not values:
        return None
    value = values[0]
    seconds = float(value) if len(value) <= _LONGEST_NUMBER and _SECONDS.fullmatch(value) else 0.0
    if len(values) > 1 or not 0 < seconds <= _LONGEST_SECONDS:
        raise Refused(errors.bad_timeout())
    return seconds
