"""The admin API as an ASGI application."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sluicegate.admin.answers import Answered, answer
from sluicegate.admin.callers import Callers
from sluicegate.admin.changes import Changes
from sluicegate.admin.deployments import Deployments
from sluicegate.admin.reports import Reports
from sluicegate.admin.watched import Watched
from sluicegate.identity import Conflict, IdentityError, InvalidFields, NoSuchCaller, NoSuchKey
from sluicegate.storage import Database, StoreUnavailable

ROOT = "/admin/api/v1"


def admin_api(gateway: Watched, database: Database) -> Starlette:
    """What is behind the guard: it lets through who may do what. `database`: of callers, and of the audit."""
    changes = Changes(database, gateway.log)
    callers = Callers(gateway, database, changes)
    deployments = Deployments(gateway, changes)
    reports = Reports(gateway)
    state = _State(gateway)
    routes = [
        Route("/healthz", state.healthz),
        Route("/readyz", state.readyz),
        Route("/metrics", state.metrics),
        *(
            Route(ROOT + path, endpoint, methods=[method])
            for method, path, endpoint in (
                ("GET", "/callers", callers.list),
                ("POST", "/callers", callers.create),
                ("GET", "/callers/{id:path}/keys", callers.keys),
                ("POST", "/callers/{id:path}/keys", callers.create_key),
                ("GET", "/callers/{id:path}/limits", callers.limits),
                ("GET", "/callers/{id:path}", callers.show),
                ("PATCH", "/callers/{id:path}", callers.change),
                ("DELETE", "/callers/{id:path}", callers.disable),
                ("POST", "/keys/{id}/rotate", callers.rotate_key),
                ("DELETE", "/keys/{id}", callers.revoke_key),
                ("GET", "/usage", reports.usage),
                ("GET", "/requests", reports.requests),
                ("GET", "/requests/{id}", reports.request),
                ("GET", "/live", reports.live),
                ("GET", "/audit", changes.list),
                ("GET", "/configuration", state.configuration),
                ("GET", "/deployments", deployments.list),
                ("POST", "/deployments/{name:path}/eject", deployments.eject),
                ("POST", "/deployments/{name:path}/restore", deployments.restore),
                ("GET", "/deployments/{name:path}", deployments.show),
            )
        ),
    ]
    application = Starlette(routes=routes, exception_handlers=_HANDLERS)
    application.router.redirect_slashes = False
    return application


class _State:
    def __init__(self, gateway: Watched) -> None:
        self._gateway = gateway
        self._rendering = asyncio.Lock()

    async def healthz(self, request: Request) -> Response:
        return answer({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        readiness = self._gateway.readiness
        return answer(dict(readiness), 200 if readiness["status"] == "ready" else 503)

    async def configuration(self, request: Request) -> Response:
        served = self._gateway.configuration
        failure = served.failure
        failed = None if failure is None else {"at": _time(failure.at), "faults": list(failure.faults)}
        return answer(
            {"path": served.path, "hash": served.hash, "since": _time(served.since), "failed": failed}
        )

    async def metrics(self, request: Request) -> Response:
        # It takes a thread's time: as many scrapers as there may be share one.
        async with self._rendering:
            content_type, body = await self._gateway.exposition(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


async def _answered(request: Request, error: Any) -> Response:
    answered: Answered = error
    return answered.response()


async def _broke(request: Request, error: Exception) -> Response:
    # The guard logs it.
    return Answered(500, "internal_error", "The gateway has failed; its log says where.").response()


async def _wrong_path(request: Request, error: Any) -> Response:
    path = request.url.path[:256]
    if error.status_code == 405:
        message = f"{path} does not take {request.method[:16]}."
        return Answered(405, "method_not_allowed", message, headers=error.headers).response()
    return Answered(404, "unknown_url", f"There is nothing at {path}.").response()


async def _refused(request: Request, error: Exception) -> Response:
    for kind, (status, code) in _OF_IDENTITIES.items():
        if isinstance(error, kind):
            return Answered(status, code, f"{error}.").response()
    return await _broke(request, error)


async def _no_store(request: Request, error: Exception) -> Response:
    message = f"The database cannot be had just now: {error}."
    return Answered(503, "store_unavailable", message).response()


_OF_IDENTITIES: Mapping[type[Exception], tuple[int, str]] = {
    NoSuchCaller: (404, "not_found"),
    NoSuchKey: (404, "not_found"),
    Conflict: (409, "conflict"),
    InvalidFields: (400, "invalid_body"),
}

_HANDLERS = {
    Answered: _answered,
    HTTPException: _wrong_path,
    IdentityError: _refused,
    StoreUnavailable: _no_store,
    Exception: _broke,
}
