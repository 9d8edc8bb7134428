"""The relayed endpoints under any ASGI server: the same exchanges, without a socket of the front's own.

This is the plain way, on the event loop. It knows no server's insides.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from sluicegate._core import Exchange
from sluicegate.gateway import errors
from sluicegate.gateway.app_request import AppRequest, Endpoint
from sluicegate.gateway.asgi import Headers, Message, Receive, Send
from sluicegate.gateway.errors import Refused
from sluicegate.gateway.state import State
from sluicegate.telemetry import where

Left = Callable[[Message], None]
"""Called once where the client leaves, with the server's message, before the exchange is left."""


class _Delivery:
    """One exchange on its way to its client."""

    __slots__ = ("closing", "left", "ready")

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        """There may be something to take."""
        self.left = False
        """The client is gone: nothing more is sent."""
        self.closing = False
        """The front is closed: what there is now is all there will be."""


class Door:
    """For the event loop. `pump` is its reader on the front's descriptor."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._deliveries: dict[int, _Delivery] = {}

    def endpoint(self, path: str) -> Endpoint:
        """One of `RELAYED`, or a path of the operator's own, as it stands in the URL."""
        return partial(self._relay, path)

    async def _relay(self, path: str, asked: AppRequest) -> None:
        # The front looks, too; but a body is not read for a client who may not call.
        asked.authorize()
        await self.relay(path, asked, await asked.read())

    async def relay(self, path: str, asked: AppRequest, body: bytes) -> None:
        """Forward a request whose body has been read. Raises `Refused`."""
        query = asked.scope.get("query_string", b"")
        headers = [*map(tuple, asked.scope["headers"])]
        method = asked.scope["method"]
        exchange = self.submit(path, headers, body, asked.request_id, method=method, query=query)
        # From here on it has its record from the exchange's end.
        asked.recorded = True
        await self.deliver(exchange, asked.receive, asked.send)

    def submit(
        self,
        path: str,
        headers: Headers,
        body: bytes,
        request_id: str,
        *,
        method: str = "POST",
        query: bytes = b"",
        tag: int | None = None,
    ) -> Exchange:
        """See `Front.submit`. Raises `Refused`."""
        state = self._state
        if state.front is None:
            raise Refused(errors.shutting_down() if state.draining else errors.internal())
        try:
            asked = query.decode("ascii") if query.isascii() else ""
            return state.front.submit(
                method, path, [*headers], body, request_id, query=asked or None, tag=tag
            )
        except Exception as error:
            if state.draining:
                raise Refused(errors.shutting_down()) from None
            state.log.error("submit_failed", request_id=request_id, error=where(error))
            raise Refused(errors.internal()) from None

    async def deliver(
        self, exchange: Exchange, receive: Receive, send: Send, left: Left | None = None
    ) -> None:
        """Hand the reply to `send` as it comes; returns when it is over, or the client has left.

        A reply that stays incomplete gets no last message: the server then cuts the connection.
        """
        delivery = self._deliveries[exchange.ticket] = _Delivery()
        leaving = asyncio.get_running_loop().create_task(_watch(exchange, receive, delivery, left))
        try:
            await self._deliver(exchange, send, delivery)
        except Exception as error:  # Whatever a server raises for a client that is gone.
            self._state.log.debug("send_failed", ticket=exchange.ticket, error=type(error).__name__)
        finally:
            del self._deliveries[exchange.ticket]
            # Nothing happens where it has ended.
            exchange.leave()
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)

    async def _deliver(self, exchange: Exchange, send: Send, delivery: _Delivery) -> None:
        while not delivery.left:
            delivery.ready.clear()
            head, body, ended, aborted = exchange.take()
            if head is not None:
                status, headers = head
                await send({"type": "http.response.start", "status": status, "headers": headers})
            whole = ended and not aborted
            if body or whole:
                await send({"type": "http.response.body", "body": body, "more_body": not whole})
            if ended or aborted or delivery.closing:
                return
            if head is None and not body:
                await delivery.ready.wait()

    def pump(self) -> None:
        """There is something to take."""
        front = self._state.front
        if front is None:
            return
        for ticket in front.ready():
            delivery = self._deliveries.get(ticket)
            if delivery is not None:
                delivery.ready.set()

    def close(self) -> None:
        """The front is closed: end what is under way with what there is."""
        for delivery in self._deliveries.values():
            delivery.closing = True
            delivery.ready.set()


async def _watch(exchange: Exchange, receive: Receive, delivery: _Delivery, left: Left | None) -> None:
    try:
        message = await receive()
        while message["type"] != "http.disconnect":
            message = await receive()
    except Exception:  # Whatever a server raises for a client that is gone.
        message = {"type": "http.disconnect"}
    if left is not None:
        left(message)
    exchange.leave()
    delivery.left = True
    delivery.ready.set()
