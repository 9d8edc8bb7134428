"""`GET /healthz` and `/health` (the process answers), and `GET /readyz` (it takes requests)."""

from typing import Literal

from sluicegate.gateway.app_request import AppRequest
from sluicegate.gateway.asgi import respond
from sluicegate.gateway.state import State

HEALTH_PATHS = ("/healthz", "/health")
"""The second is that of vLLM and llama.cpp: some of their clients (guidellm) ask there before all else."""
READY_PATH = "/readyz"

_HEADERS = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"))


async def healthz(asked: AppRequest) -> None:
    await respond(asked.send, 200, _HEADERS, b'{"status":"ok"}')


class ReadyEndpoint:
    """503 from the moment the gateway is told to stop, so that balancers send no more."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def __call__(self, asked: AppRequest) -> None:
        found = readiness(self._state)
        status = 200 if found == "ready" else 503
        lost = b',"counters":"lost"' if self._state.counters.lost else b""
        await respond(asked.send, status, _HEADERS, b'{"status":"%b"%b}' % (found.encode(), lost))


def readiness(state: State) -> Literal["ready", "draining", "not running"]:
    """Whether it takes requests."""
    if state.leaving or state.draining:
        return "draining"
    return "not running" if state.dead or state.front is None else "ready"
