"""`GET /metrics`."""

from ipaddress import ip_address

from sluicegate.gateway import errors
from sluicegate.gateway.app_request import AppRequest
from sluicegate.gateway.asgi import Scope, respond
from sluicegate.gateway.errors import Refused
from sluicegate.gateway.state import State

PATH = "/metrics"


class MetricsEndpoint:
    def __init__(self, state: State) -> None:
        self._state = state

    async def __call__(self, asked: AppRequest) -> None:
        config = self._state.config
        server = config.server
        local = config.admin is None and server.is_loopback and _came_locally(asked.scope)
        if server.metrics != "public" and not local:
            raise Refused(errors.metrics_not_public())
        accept = asked.headers.get(b"accept", b"").decode("latin-1")
        content_type, body = await exposition(self._state, accept)
        await respond(asked.send, 200, [(b"content-type", content_type.encode())], body)


async def exposition(state: State, accept: str) -> tuple[str, bytes]:
    """(content type, metrics). `accept`: the scraper's header."""
    metrics = state.metrics
    metrics.dropped_lines(state.log.dropped)
    await state.responses.backlog()
    return await metrics.render(accept)


def _came_locally(scope: Scope) -> bool:
    """Whether the request came to a loopback address or a Unix socket.

    Under a server that is not ours the configured host says nothing about where that server listens.
    """
    server = scope.get("server")
    # ASGI 3.0, HTTP connection scope: of a Unix socket the host is its path, and its port is None or a
    # text.
    if server is None or server[1] is None or server[0].startswith("/"):
        return True
    try:
        return ip_address(server[0]).is_loopback
    except ValueError:
        return bool(server[0] == "localhost")
