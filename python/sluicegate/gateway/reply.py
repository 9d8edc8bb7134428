"""One reply on its way: what the relay asks of Python while it moves the bytes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from sluicegate._core import Fault, Route, Usage
from sluicegate.gateway.asgi import Message, Receive, Send
from sluicegate.gateway.errors import ErrorReply, from_fault, internal
from sluicegate.gateway.state import Serving, State
from sluicegate.gateway.threads import Ending, Taken, may_wait_anywhere
from sluicegate.gateway.watch import ClientWatch
from sluicegate.pricing import Cost, members
from sluicegate.routing import may_succeed_elsewhere
from sluicegate.telemetry import where


class Reply:
    """The relay's `Reply` protocol over one ASGI `send`.

    `price`, `failed` and `defer` run on the relay's thread, one at a time, `finished` and `abort` on any, and
    `look` on the loop's. What they write is read by the request's coroutine only after the exchange's end.
    """

    __slots__ = (
        "_cost_style", "_forwards_authorization", "_loop", "_position", "_prices", "_receive", "_routes",
        "_sent", "_state", "_watch",
        "code", "cost", "model", "over", "priced_usage", "request_id", "route", "send", "tried",
    )  # fmt: skip

    def __init__(
        self,
        state: State,
        serving: Serving,
        loop: asyncio.AbstractEventLoop,
        receive: Receive,
        send: Send,
        request_id: str,
        model: str,
        routes: Sequence[Route],
    ) -> None:
        self.send = send
        self.request_id = request_id
        self.model = model
        self.route = routes[0]
        """The one that serves, or was tried last."""
        self.tried: list[tuple[str, str]] = []
        """(upstream, fault kind) of each attempt that failed with nothing sent."""
        self.code: str | None = None
        """Of the gateway's error reply."""
        self.priced_usage: Usage | None = None
        self.cost: Cost | None = None
        """Of `priced_usage`."""
        self.over = Ending(loop)
        """Nothing more will be sent: the server has all of it, or the client has left."""
        self._state = state
        # As the configuration was when the request came: another one may hold before it ends.
        self._cost_style = serving.config.cost.style
        self._prices = serving.prices
        self._forwards_authorization = serving.forwards_authorization
        self._loop = loop
        self._receive = receive
        self._watch: ClientWatch | None = None
        self._routes = routes
        self._position = 0
        self._sent: Fault | None = None

    def defer(self, message: Awaitable[Any] | Message, resume: Callable[[bool], None]) -> None:
        """Wait for `message`, or for `send(message)` where it is one; then `resume(ok)`, on any thread."""
        try:
            if getattr(self._loop, "any_thread", False) and may_wait_anywhere(message):
                cast(Any, message).add_done_callback(Taken(resume))
                return
            self._loop.call_soon_threadsafe(self._start_delivery, message, resume)
        except RuntimeError:  # The loop is closed: the server is gone, and the client with it.
            resume(False)

    def price(self, usage: Usage) -> bytes | None:
        """The members that this usage object gains."""
        cost = self.price_of(usage)
        self.priced_usage, self.cost = usage, cost
        return members(self._cost_style, cost)

    def price_of(self, usage: Any) -> Cost | None:
        """What `usage` costs on the route that served; None where that is not known. Never raises."""
        state, route = self._state, self.route
        try:
            cost = self._prices.price(self.model, route.model, usage)
        except Exception as error:  # A policy may be the user's own: its faults must not end a stream.
            state.warn_once("price_policy_failed", model=self.model, error=where(error))
            return None
        if cost is None:
            state.warn_once("unpriced", model=self.model, upstream_model=route.model)
        return cost

    def failed(self, fault: Fault) -> Route | tuple[int, list[tuple[bytes, bytes]], bytes]:
        """The next route, or what to tell the client."""
        reply: ErrorReply
        try:
            self.tried.append((fault.upstream, fault.kind))
            if fault.kind != "untranslatable":
                self._sent = fault
            following = self._position + 1
            if following < len(self._routes) and may_succeed_elsewhere(fault):
                self._position = following
                self.route = self._routes[following]
                return self.route
            # An upstream that the request was sent to has more to say than one that it could not be put to.
            fault = self._sent or fault
            own = self._forwards_authorization.get(fault.upstream, False)
            reply = from_fault(fault, clients_credentials=own)
        except Exception as error:
            self._state.log.error("error_reply_failed", request_id=self.request_id, error=where(error))
            reply = internal()
        self.code = reply.code
        return reply.status, reply.headers, reply.body

    def finished(self) -> None:
        """The server has the whole reply."""
        self.over.end()

    def abort(self) -> None:
        """The reply cannot be completed: it ends all the same, so that the server cuts the connection."""
        self.over.end()

    def look(self) -> None:
        """Find out when the client leaves: the reply is over then."""
        if not self.over.done():
            self._watch = ClientWatch(self.over, self._receive)
            self._watch.look()

    def stop_looking(self) -> None:
        if self._watch is not None:
            self._watch.stop()

    def _start_delivery(self, message: Awaitable[Any] | Message, resume: Callable[[bool], None]) -> None:
        task = self._loop.create_task(self._deliver(message, resume))
        # The loop itself keeps only weak references to tasks.
        tasks = self._state.tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _deliver(self, message: Awaitable[Any] | Message, resume: Callable[[bool], None]) -> None:
        ok = False
        try:
            await (self.send(cast(Message, message)) if isinstance(message, dict) else cast(Any, message))
            ok = True
        except Exception as error:  # Whatever a server raises for a client that is gone.
            self._state.log.debug("send_failed", request_id=self.request_id, error=type(error).__name__)
        finally:
            resume(ok)
