"""`GET /healthz` (the process answers) and `GET /readyz` (it takes requests)."""

from sluicegate.gateway.asgi import Receive, Scope, Send, respond
from sluicegate.gateway.state import State

HEALTH_PATH = "/healthz"
READY_PATH = "/readyz"

_HEADERS = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"))


async def healthz(scope: Scope, receive: Receive, send: Send) -> None:
    await respond(send, 200, _HEADERS, b'{"status":"ok"}')


class ReadyEndpoint:
    """503 from the moment the gateway is told to stop, so that balancers send no more."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._state.draining:
            await respond(send, 503, _HEADERS, b'{"status":"draining"}')
            return
        try:
            self._state.running_relay()
        except Exception:
            await respond(send, 503, _HEADERS, b'{"status":"no relay"}')
            return
        await respond(send, 200, _HEADERS, b'{"status":"ready"}')
