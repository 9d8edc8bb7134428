"""`GET /healthz` (the process answers) and `GET /readyz` (it takes requests)."""

from sluicegate.gateway.app_request import AppRequest
from sluicegate.gateway.asgi import respond
from sluicegate.gateway.state import State

HEALTH_PATH = "/healthz"
READY_PATH = "/readyz"

_HEADERS = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"))


async def healthz(asked: AppRequest) -> None:
    await respond(asked.send, 200, _HEADERS, b'{"status":"ok"}')


class ReadyEndpoint:
    """503 from the moment the gateway is told to stop, so that balancers send no more."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def __call__(self, asked: AppRequest) -> None:
        state = self._state
        if state.leaving or state.draining:
            await respond(asked.send, 503, _HEADERS, b'{"status":"draining"}')
        elif state.dead or state.front is None:
            await respond(asked.send, 503, _HEADERS, b'{"status":"not running"}')
        else:
            await respond(asked.send, 200, _HEADERS, b'{"status":"ready"}')
