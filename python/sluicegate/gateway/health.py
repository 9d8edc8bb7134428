"""`GET /healthz` and `/health` (the process answers), and `GET /readyz` (it takes requests)."""

from sluicegate.gateway.app_request import AppRequest
from sluicegate.gateway.asgi import respond
from sluicegate.gateway.errors import dump
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
        await respond(asked.send, 200 if found["status"] == "ready" else 503, _HEADERS, dump(found))


def readiness(state: State) -> dict[str, str]:
    """Whether it takes requests. `status`: `ready`, `draining`, `not running`, or `refusing` where no request
    is served before its entry in the ledger is on the disk, which takes nothing. Where all is well there is
    nothing else: `counters` is `lost` while their server does not answer, `configuration` is `stale` while
    the file says something that cannot be served, and `ledger` is `not_synced` while the disk takes nothing.
    """
    if state.leaving or state.draining:
        found = {"status": "draining"}
    else:
        found = {"status": "not running" if state.dead or state.front is None else "ready"}
    if state.ledger is not None and state.ledger.is_not_synced:
        found["ledger"] = "not_synced"
        if state.ledger.needs_sync and found["status"] == "ready":
            found["status"] = "refusing"
    if state.counters.lost:
        found["counters"] = "lost"
    if state.metrics.configuration.failure is not None:
        found["configuration"] = "stale"
    return found
