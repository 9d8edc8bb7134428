"""What becomes of each request: the one place where it is decided, and where its end is recorded."""

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from sluicegate._core import (
    Arrived,
    Died,
    Ended,
    Failed,
    FirstOutput,
    Lease,
    PriceAsked,
    ResponsesRequest,
    Unrecorded,
)
from sluicegate.admission import ANYONE, Later
from sluicegate.gateway import errors, stored_errors
from sluicegate.gateway.accounts import LedgerFull, LedgerNotSynced, estimated_input, open_entry
from sluicegate.gateway.admission import Work, told
from sluicegate.gateway.asgi import new_response_id
from sluicegate.gateway.attempt_headers import attempt_headers
from sluicegate.gateway.call import Call, Continued, Run
from sluicegate.gateway.errors import ErrorReply
from sluicegate.gateway.forms import in_form
from sluicegate.gateway.recording import cannot_count, record_of, undecided_record
from sluicegate.gateway.rights import Refusal
from sluicegate.gateway.state import State
from sluicegate.routing import Model, NoRoute, Plan
from sluicegate.telemetry import where

Answered = TypeVar("Answered")
Answer = ErrorReply | tuple[ResponsesRequest | None, bytes | None]
"""The result of looking up a conversation: a refusal; or the request with the conversation in front, and the
body to store for it. None: the client's own.
"""
Continue = Callable[[Call, ResponsesRequest], None]
StoreReply = Callable[[Call, Ended, bytes | None], None]
"""None: the reply was to be stored, and `Ended.not_kept` says why it cannot be."""


class Decider:
    """Takes events, one thread at a time, and answers them. Only `post` and `expect` are for any thread.

    Nothing here waits: `elsewhere` gets the requests that continue a conversation, and `answer` is posted
    with the result; `store_reply` gets the replies to be stored. Both are called on the deciding thread and
    must not block, and neither must `died`, which gets the reason why the process has to end.
    """

    __slots__ = (
        "_calls",
        "_died",
        "_elsewhere",
        "_posted",
        "_runs",
        "_state",
        "_store_reply",
        "_tags",
        "wake",
    )  # fmt: skip

    def __init__(
        self, state: State, elsewhere: Continue, store_reply: StoreReply, died: Callable[[str], None]
    ) -> None:
        self._state = state
        self._elsewhere = elsewhere
        self._store_reply = store_reply
        self._died = died
        self._calls: dict[int, Call] = {}
        self._runs: dict[int, Run] = {}
        self._tags = itertools.count(1)
        self._posted: deque[Callable[[], None]] = deque()
        self.wake: Callable[[], None] = self.run_posted
        """Has what is posted run soon, by the thread that decides."""

    @property
    def open(self) -> int:
        """Requests that have been decided about and have not ended."""
        return len(self._calls)

    @property
    def under_way(self) -> list[Lease]:
        """What was held against limits and has not ended. For the thread that decides."""
        return [call.lease for call in self._calls.values() if call.lease is not None]

    # === for any thread ===

    def post(self, step: Callable[[], None]) -> None:
        """Have `step` run by the thread that decides. One that raises is logged."""
        self._posted.append(step)
        self.wake()

    async def ask(self, step: Callable[[], Answered]) -> Answered:
        """What `step` says on the thread that decides. On the event loop."""
        return await self.hear(lambda tell: tell(step()))

    async def hear(self, step: Callable[[Callable[[Answered], None]], None]) -> Answered:
        """What `step` says on the thread that decides, now or later: it is given what to call with that. On
        the event loop.
        """
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Answered] = loop.create_future()

        def tell(set_it: Callable[[Any], None], value: object) -> None:
            if not answered.done():
                set_it(value)

        def answer(value: Answered) -> None:
            loop.call_soon_threadsafe(tell, answered.set_result, value)

        def run() -> None:
            try:
                step(answer)
            except Exception as error:
                loop.call_soon_threadsafe(tell, answered.set_exception, error)

        self.post(run)
        return await answered

    def expect(self, run: Run) -> int:
        """The tag by which `run` is submitted."""
        tag = next(self._tags)
        self._runs[tag] = run
        return tag

    def forget(self, tag: int) -> None:
        """The run with this tag was not submitted after all."""
        self._runs.pop(tag, None)

    # === for the thread that decides ===

    def handle(self, events: Sequence[Any]) -> None:
        """Answer `events`. What one of them breaks concerns no other."""
        for event in events:
            try:
                # By name, so that a test can play events of its own.
                _HANDLERS[type(event).__name__](self, event)
            except Exception as error:
                self._broke(event, error)

    def run_posted(self) -> None:
        """Run what was posted. What one of the steps breaks concerns no other."""
        posted = self._posted
        while posted:
            try:
                posted.popleft()()
            except Exception as error:
                self._state.log.error("unhandled", at="posted", error=where(error))

    def answer(self, call: Call, ticket: int, answer: Answer | None) -> None:
        """What was found elsewhere about a request: it goes on here. None: nothing could be found out."""
        if self._calls.get(ticket) is not call or call.arrived is None:
            return  # It has ended meanwhile.
        try:
            if answer is None:
                self._refuse(call, errors.internal())
            elif isinstance(answer, ErrorReply):
                self._refuse(call, answer)
            else:
                request, call.body = answer
                self._begin(call, request)
        except Exception as error:
            self._broke(call.arrived, error)

    def _arrived(self, event: Arrived) -> None:
        tag = event.tag
        run = None if tag is None else self._runs.get(tag)
        serving = self._state.serving if run is None else run.serving
        call = self._calls[event.ticket] = Call(event, serving, run)
        endpoint = event.endpoint
        if event.anthropic:
            call.anthropic = event.request_id
        admission = serving.admission
        rights = admission.rights
        if run is None:
            key = event.key
            caller = rights.authorize(rights.by_key(key, key is not None), endpoint)
            if isinstance(caller, Refusal):
                self._refuse(call, errors.refused(caller))
                return
        else:
            caller = run.caller
        call.caller = caller
        call.counts = endpoint == "count_tokens"
        error = event.error
        if error is not None:
            self._refuse(call, errors.invalid_body(error))
            return
        passed = event.upstream
        if passed is None:
            model = rights.model(caller, event.model)
        else:
            found = rights.upstream(caller, passed, endpoint)
            if found is None:  # The configuration has become another one just now.
                self._refuse(call, errors.internal())
                return
            model = found
        if isinstance(model, Refusal):
            self._refuse(call, errors.refused(model))
            return
        call.model = model
        if call.counts and not self._is_to_be_forwarded(call, event, model):
            return
        requests = 1 if run is None else 0
        work: Work = "count" if call.counts else "reply"
        answer = admission.admit(caller, model, event, requests=requests, work=work)
        if isinstance(answer, Later):
            answer.then(lambda answer: self._admitted(call, event, told(answer)))
        else:
            self._admitted(call, event, answer)

    def _admitted(self, call: Call, event: Arrived, answer: Lease | Refusal | None) -> None:
        """What the caller's limits say: at once, or later where other machines had to be asked."""
        if call.arrived is None:
            # The client has left meanwhile.
            if isinstance(answer, Lease):
                answer.unused()
            return
        try:
            if isinstance(answer, Refusal):
                self._refuse(call, errors.refused(answer))
                return
            call.lease = answer
            if call.run is not None:
                # It may have megabytes, which are needed no longer than the engine needs them.
                request, call.run.request = call.run.request, None
                self._begin(call, request)
            elif event.endpoint == "responses":
                self._respond(call, event)
            else:
                self._begin(call, None)
        except Exception as error:
            self._broke(event, error)

    def _is_to_be_forwarded(self, call: Call, event: Arrived, model: Model) -> bool:
        """Whether an upstream says how many tokens the input has; else the gateway has answered: with its
        estimate, or that nobody counts them.
        """
        serving = call.serving
        names = {deployment.upstream for deployment in model.deployments}
        if not names.isdisjoint(serving.counting):
            return True
        if names.isdisjoint(serving.estimating):
            self._refuse(call, errors.not_counted(model.name))
        else:
            call.arrived = None
            counted = b'{"input_tokens":%d}' % (event.input_tokens_estimate or 1)
            event.reply(200, [(b"content-type", b"application/json")], counted)
        return False

    def _respond(self, call: Call, event: Arrived) -> None:
        request = event.request
        call.owner = call.serving.admission.rights.owner(call.caller or ANYONE, event.headers)
        if not isinstance(request, ResponsesRequest):
            self._begin(call, None)
        elif request.unstorable is not None and self._is_stored(request):
            self._refuse(call, stored_errors.unstorable(request.unstorable))
        # Most requests continue nothing, and need not be read again.
        elif request.previous_response_id is not None or request.refers:
            self._elsewhere(call, request)
        else:
            self._begin(call, None)

    def _begin(self, call: Call, request: ResponsesRequest | None) -> None:
        """Send it on its way. `request`: in place of the client's."""
        arrived, model = call.arrived, call.model
        if arrived is None or model is None:
            return
        state = self._state
        # A conversation's later turns are known by its first, which `request` has in front.
        facts = arrived if request is None else Continued(arrived, request)
        only = call.serving.counting if call.counts else None
        plan = call.plan = Plan(model, facts, only)
        step = plan.next()
        if isinstance(step, NoRoute):
            self._refuse(call, self._told(call, step))
            return
        route, last, after, deployment, trial = step
        call.route = route
        call.tried = attempt_headers(model, deployment, route, 1)
        pricing = call.serving.prices.pricing(model, route)
        try:
            estimate = estimated_input(call, facts.input_tokens_estimate)
            ledger = state.ledger
            entry = None if ledger is None else open_entry(ledger, call, arrived, route, estimate)
        except LedgerFull:
            self._refuse(call, errors.ledger_full())
            return
        except LedgerNotSynced:
            self._refuse(call, errors.ledger_not_synced())
            return
        if entry is not None:
            call.row = entry.id
        told = route, pricing, last, trial, after, call.tried, call.lease, entry, estimate
        if arrived.endpoint == "responses":
            run = call.run
            taken = arrived.forward(
                *told,
                request=request,
                response_id=new_response_id() if run is None else run.response_id,
                keep=self._bytes_to_copy(call, arrived.request) if run is None else None,
            )
        else:
            taken = arrived.forward(*told)
        if taken and arrived.stream:
            call.streams = True
            state.metrics.stream_started(model.label)
        call.arrived = None

    def _bytes_to_copy(self, call: Call, request: object) -> int | None:
        if isinstance(request, ResponsesRequest) and self._is_stored(request):
            return call.serving.config.responses.max_response_bytes
        return None

    def _is_stored(self, request: ResponsesRequest) -> bool:
        return self._state.responses.enabled and request.store

    def _refuse(self, call: Call, reply: ErrorReply) -> None:
        arrived, call.arrived = call.arrived, None
        reply = _written(call, reply)
        if arrived is not None and arrived.reply(reply.status, reply.headers, reply.body):
            call.code, call.limit = reply.code, reply.limit

    def _failed(self, event: Failed) -> None:
        call = self._calls[event.ticket]
        plan, model = call.plan, call.model
        if plan is None or model is None:
            raise LookupError("no plan")
        # Of an upload that is gone nothing is left to send to another upstream.
        lacks = event.fault.spent or (call.counts and cannot_count(event.fault))
        step = NoRoute(event.fault) if lacks else plan.next(event.fault)
        if isinstance(step, NoRoute):
            reply = _written(call, self._told(call, step))
            if event.reply(reply.status, [*reply.headers, *call.tried], reply.body):
                call.code = reply.code
            return
        route, last, after, deployment, trial = step
        call.route = route
        call.tried = attempt_headers(model, deployment, route, event.attempts + 1)
        pricing = call.serving.prices.pricing(model, route)
        event.attempt(route, pricing, last, trial, after, [*call.headers, *call.tried])

    def _first_output(self, event: FirstOutput) -> None:
        plan = self._calls[event.ticket].plan
        if plan is not None:
            plan.first_output()

    def _told(self, call: Call, step: NoRoute) -> ErrorReply:
        fault = step.fault
        if fault is None:
            model = call.model
            if model is None or step.why in ("failed", "none"):
                return errors.internal()
            if step.why == "full":
                return errors.all_busy(model.described)
            if step.why == "taken_off":
                return errors.all_taken_off(model.described)
            return errors.all_resting(model.described, step.wait, rate_limited=step.reason == "429")
        if call.counts and cannot_count(fault):
            return errors.not_counted("" if call.model is None else call.model.name)
        own = call.serving.forwards_authorization.get(fault.upstream, False)
        return errors.from_fault(fault, clients_credentials=own)

    def _price_asked(self, event: PriceAsked) -> None:
        call = self._calls[event.ticket]
        model, route, usage = call.model, call.route, event.usage
        if model is None or route is None:
            raise LookupError("no route")
        prices = call.serving.prices
        call.priced_usage = usage
        call.cost = prices.cost(model.name, route.model, usage)
        event.answer(prices.members(call.cost))

    def _ended(self, event: Ended) -> None:
        state = self._state
        call = self._calls.pop(event.ticket, None)
        if event.tag is not None:
            self._runs.pop(event.tag, None)
        if call is None:
            state.recorder.record(undecided_record(event, state.serving))
            return
        # It may still be on its way elsewhere, and come back.
        call.arrived = None
        try:
            # First of all, since what follows may fail: the deployment has one request fewer.
            if call.plan is not None:
                call.plan.ended(event.outcome)
            self._record(event, call)
        finally:
            if call.lease is not None:
                call.lease.release()

    def _record(self, event: Ended, call: Call) -> None:
        state = self._state
        if call.streams and call.model is not None:
            state.metrics.stream_ended(call.model.label)
        record = record_of(event, call, call.serving)
        state.recorder.record(record)
        if not record.priced and record.model:
            state.notices.warn_once("unpriced", model=record.model, upstream_model=record.upstream_model)
        elif not record.priced and call.model is not None and not call.model.upstream:
            # A name that only its client knows is no word for the log.
            state.notices.warn_once("unpriced", upstream=record.upstream)
        if record.implausible:
            served = {"upstream": record.upstream, "upstream_model": record.upstream_model}
            state.notices.warn_once("implausible_usage", model=record.model, **served)
        if record.status == 200 and not record.client_left:
            reply = event.kept
            if reply is not None or event.not_kept is not None:
                self._store_reply(call, event, reply)
        if call.lease is not None:
            event.settle(call.lease)

    def _unrecorded(self, event: Unrecorded) -> None:
        self._state.metrics.unrecorded(event.requests)
        self._state.log.warning("requests_not_recorded", requests=event.requests)

    def _end_process(self, event: Died) -> None:
        self._died(event.message)

    def _broke(self, event: Any, error: Exception) -> None:
        ticket = getattr(event, "ticket", None)
        self._state.log.error("unhandled", at=type(event).__name__, ticket=ticket, error=where(error))
        # Nobody may wait for an answer that does not come.
        with contextlib.suppress(Exception):
            if hasattr(event, "answer"):
                event.answer(None)
            elif hasattr(event, "reply"):
                call = None if ticket is None else self._calls.get(ticket)
                reply = _written(call, errors.internal())
                if event.reply(reply.status, reply.headers, reply.body) and call is not None:
                    call.code = reply.code


def _written(call: Call | None, reply: ErrorReply) -> ErrorReply:
    """`reply` in the form of the client's API."""
    if call is None:
        return reply
    reply = in_form(reply, call.form, call.anthropic)
    if call.lease is not None and (own := call.headers):
        # What an upstream says of its own limits would confuse.
        theirs = [header for header in reply.headers if b"ratelimit" not in header[0].lower()]
        reply = replace(reply, headers=[*theirs, *own])
    return reply


_HANDLERS: dict[str, Callable[[Decider, Any], None]] = {
    "Arrived": Decider._arrived,
    "Failed": Decider._failed,
    "FirstOutput": Decider._first_output,
    "PriceAsked": Decider._price_asked,
    "Ended": Decider._ended,
    "Unrecorded": Decider._unrecorded,
    "Died": Decider._end_process,
}
