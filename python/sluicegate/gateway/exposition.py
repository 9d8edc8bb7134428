"""`GET /metrics`: every worker's metrics, from whichever is asked."""

from sluicegate.gateway.asgi import Receive, Scope, Send, respond
from sluicegate.gateway.state import State

PATH = "/metrics"


class MetricsEndpoint:
    def __init__(self, state: State) -> None:
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        accept = dict(scope["headers"]).get(b"accept", b"").decode("latin-1")
        metrics = self._state.metrics
        metrics.dropped_lines(self._state.log.dropped)
        await self._state.responses.backlog()
        content_type, body = await metrics.render(accept)
        await respond(send, 200, [(b"content-type", content_type.encode())], body)
