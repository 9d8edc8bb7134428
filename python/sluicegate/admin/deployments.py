"""`/deployments`: how each is doing; taking one off, and putting it back."""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from sluicegate.admin.answers import answer, not_found, page
from sluicegate.admin.asking import MOST_ON_A_PAGE, Asked, Text, no_body, parameters
from sluicegate.admin.changes import Changes
from sluicegate.admin.watched import Watched
from sluicegate.routing import Load, Seen, deployments_of, load_of, look_at


class _Listed(Asked):
    # The thread that decides looks at all of a page at once.
    limit: Annotated[int, Field(ge=1, le=200)] = 100
    after: Text | None = None
    """The name that the page before ended with."""


class Deployments:
    def __init__(self, gateway: Watched, changes: Changes) -> None:
        self._gateway = gateway
        self._changes = changes

    async def list(self, request: Request) -> Response:
        asked = parameters(request, _Listed)
        models = self._gateway.models
        found = deployments_of(models)
        names = [name for name in found if asked.after is None or name > asked.after][: asked.limit + 1]
        wanted = [found[name] for name in names[: asked.limit]]
        seen = await self._gateway.decided(lambda: look_at(models, wanted))
        return page([_shown(each) for each in seen], names[-2] if len(names) > asked.limit else None)

    async def show(self, request: Request) -> Response:
        name: str = request.path_params["name"]
        return answer(_shown(await self._seen(name)))

    async def eject(self, request: Request) -> Response:
        """Take it off until it is put back, or the process ends."""
        await no_body(request)
        name, load = self._load(request)
        await self._gateway.decided(lambda: self._gateway.models.fleet.take_off(load))
        await self._changes.record(request, "deployment.eject", name)
        return answer(_shown(await self._seen(name)))

    async def restore(self, request: Request) -> Response:
        """Put it back, whatever it was left alone for."""
        await no_body(request)
        name, load = self._load(request)
        await self._gateway.decided(lambda: self._gateway.models.fleet.put_back(load))
        await self._changes.record(request, "deployment.restore", name)
        return answer(_shown(await self._seen(name)))

    def _load(self, request: Request) -> tuple[str, Load]:
        name: str = request.path_params["name"]
        load = load_of(self._gateway.models, name)
        if load is None:
            raise not_found("deployment", name)
        return name, load

    async def _seen(self, name: str) -> Seen:
        models = self._gateway.models
        found = deployments_of(models).get(name)
        if found is None:
            raise not_found("deployment", name)
        [seen] = await self._gateway.decided(lambda: look_at(models, [found]))
        return seen


def _shown(seen: Seen) -> dict[str, Any]:
    sizes = ("short", "middling", "long")
    ended, failed = seen.recent
    return {
        "name": seen.name,
        "upstream": seen.upstream,
        "upstream_model": seen.model,
        "models": seen.models[:MOST_ON_A_PAGE],
        "state": seen.state.value,
        "back_in": None if seen.back_in is None else round(max(0.0, seen.back_in), 3),
        "in_flight": seen.streams,
        "in_flight_input_tokens": seen.tokens,
        "max_streams": seen.max_streams,
        "first_token_seconds": dict(zip(sizes, map(_rounded, seen.first_token), strict=True)),
        "recent": {"ended": ended, "failed": failed},
        "faults": [{"at": _time(at), "reason": reason} for at, reason in seen.faults],
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
