"""`GET /metrics`."""

from sluicegate.gateway.app_request import AppRequest
from sluicegate.gateway.asgi import respond
from sluicegate.gateway.state import State

PATH = "/metrics"


class MetricsEndpoint:
    def __init__(self, state: State) -> None:
        self._state = state

    async def __call__(self, asked: AppRequest) -> None:
        accept = asked.headers.get(b"accept", b"").decode("latin-1")
        metrics = self._state.metrics
        metrics.dropped_lines(self._state.log.dropped)
        await self._state.responses.backlog()
        content_type, body = await metrics.render(accept)
        await respond(asked.send, 200, [(b"content-type", content_type.encode())], body)
