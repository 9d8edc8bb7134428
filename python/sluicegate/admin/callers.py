"""`/callers` and `/keys`: who may call, and how much of their limits is left."""

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field, JsonValue, RootModel
from starlette.requests import Request
from starlette.responses import Response

from sluicegate.admin.answers import answer, not_found, page
from sluicegate.admin.asking import AskedBody, Paged, Text, body, no_body, parameters
from sluicegate.admin.changes import Changes
from sluicegate.admin.guard import identity_of
from sluicegate.admin.watched import Watched
from sluicegate.admission import LONGEST_USER, Standing
from sluicegate.config import Expiry
from sluicegate.identity import (
    OVERLAP_SECONDS,
    MadeKey,
    change_caller,
    create_caller,
    create_key,
    find_caller,
    list_callers,
    list_keys,
    revoke_key,
    rotate_key,
)
from sluicegate.ledger import PICO
from sluicegate.storage import Database

_MOST_DAYS = 366

_AT_ONCE = 100
"""Callers and keys that are read, checked and written as JSON in one step."""


class _Listed(Paged):
    after: Text | None = None
    """The id that the page before ended with."""


class _OfUser(_Listed):
    user: Text | None = None
    """One of the people behind the caller."""


class _Members(RootModel[dict[str, JsonValue]]):
    """What becomes of them says who makes them."""


class _Rotation(AskedBody):
    overlap: Annotated[float, Field(ge=0, le=_MOST_DAYS * 24 * 3600)] = OVERLAP_SECONDS
    """Seconds for which the old key works on."""
    expires: Expiry | None = None


class Callers:
    def __init__(self, gateway: Watched, database: Database, changes: Changes) -> None:
        self._gateway = gateway
        self._database = database
        self._changes = changes

    async def list(self, request: Request) -> Response:
        asked = parameters(request, _Listed)

        async def part(after: str | None, limit: int) -> list[dict[str, Any]]:
            found = list_callers(self._database, self._gateway.config, after=after, limit=limit)
            return [caller.as_data() for caller in await self._database.undisturbed(found)]

        return await _page(part, asked)

    async def create(self, request: Request) -> Response:
        members = await body(request, _Members)
        made = await self._database.undisturbed(
            create_caller(self._database, self._gateway.config, members.root, _actor(request))
        )
        self._changes.tell(request, "caller.create", made.id)
        return answer(made.as_data(), 201)

    async def show(self, request: Request) -> Response:
        found = await self._database.undisturbed(
            find_caller(self._database, self._gateway.config, _id(request))
        )
        return answer(found.as_data())

    async def change(self, request: Request) -> Response:
        members = await body(request, _Members)
        return await self._change(request, members.root)

    async def disable(self, request: Request) -> Response:
        """It may not call any more. What it has used stays, and so does its name."""
        await no_body(request)
        return await self._change(request, {"disabled": True})

    async def _change(self, request: Request, members: dict[str, JsonValue]) -> Response:
        changed = await self._database.undisturbed(
            change_caller(self._database, self._gateway.config, _id(request), members, _actor(request))
        )
        self._changes.tell(request, "caller.change", changed.id)
        return answer(changed.as_data())

    async def limits(self, request: Request) -> Response:
        asked = parameters(request, _OfUser)
        name = _id(request)
        passed, first = _place(asked.after)
        user = asked.user and asked.user[:LONGEST_USER]
        found = await self._gateway.standings(name, user, first, asked.limit + 1)
        if not found and not first:
            # One that was made a moment ago is not known yet; who is nobody has no limits.
            await self._database.undisturbed(find_caller(self._database, self._gateway.config, name))
        found, more = found[: asked.limit], found[asked.limit :]
        lines = [
            (f"{number}:{place}", each)
            for place, several in found
            for number, each in enumerate(several)
            if number >= passed or place != first
        ]
        shown, rest = lines[: asked.limit], lines[asked.limit :]
        following = [place for place, _ in rest[:1]] + [f"0:{place}" for place, _ in more]
        return page(
            [{"id": each.name, **_standing(each)} for _, each in shown], following[0] if following else None
        )

    # === keys ===

    async def keys(self, request: Request) -> Response:
        asked = parameters(request, _Listed)
        now = time.time()

        async def part(after: str | None, limit: int) -> list[dict[str, Any]]:
            found = list_keys(self._database, self._gateway.config, _id(request), after=after, limit=limit)
            return [key.as_data(now) for key in await self._database.undisturbed(found)]

        return await _page(part, asked)

    async def create_key(self, request: Request) -> Response:
        members = await body(request, _Members)
        made = await self._database.undisturbed(
            create_key(self._database, self._gateway.config, _id(request), members.root, _actor(request))
        )
        self._changes.tell(request, "key.create", made.key.id)
        return answer(_made(made), 201)

    async def rotate_key(self, request: Request) -> Response:
        asked = await body(request, _Rotation, optional=True)
        rotated = rotate_key(
            self._database, _id(request), _actor(request), overlap=asked.overlap, expires=asked.expires
        )
        made, old = await self._database.undisturbed(rotated)
        self._changes.tell(request, "key.rotate", old.id)
        return answer({**_made(made), "replaced": old.as_data(time.time())}, 201)

    async def revoke_key(self, request: Request) -> Response:
        await no_body(request)
        revoked = await self._database.undisturbed(revoke_key(self._database, _id(request), _actor(request)))
        self._changes.tell(request, "key.revoke", revoked.id)
        return answer(revoked.as_data(time.time()))


def _id(request: Request) -> str:
    id: str = request.path_params["id"]
    return id


def _actor(request: Request) -> str:
    return identity_of(request.scope).actor


async def _page(
    part: Callable[[str | None, int], Awaitable["list[dict[str, Any]]"]], asked: _Listed
) -> Response:
    """A page of what `part` lists: so many that follow an id. It is asked for some at a time, so that
    requests have their turn in between.
    """
    found: list[dict[str, Any]] = []
    wanted = asked.limit + 1
    after = asked.after
    while len(found) < wanted:
        some = await part(after, min(wanted - len(found), _AT_ONCE))
        if not some:
            break
        found += some
        after = some[-1]["id"]
    shown = found[: asked.limit]
    return page(shown, shown[-1]["id"] if len(found) > len(shown) else None)


def _place(after: str | None) -> tuple[int, str]:
    """How many limits of which place the page before has shown. Raises `Answered`."""
    if after is None:
        return 0, ""
    number, colon, place = after.partition(":")
    if not (colon and place and number.isascii() and number.isdigit() and len(number) < 10):
        raise not_found("entry", after)
    return int(number), place


def _made(made: MadeKey) -> dict[str, Any]:
    """The only answer that has a key in it."""
    return {**made.key.as_data(time.time()), "key": made.text}


def _standing(each: Standing) -> dict[str, Any]:
    now = datetime.now(UTC)
    amounts: dict[str, Any] = {
        "limit": each.limit,
        "used": each.used,
        "reserved": each.reserved,
        "remaining": each.remaining,
    }
    if each.resource == "cost":
        amounts = {name: _usd(amount) for name, amount in amounts.items()}
    resets = now + timedelta(seconds=each.reset)
    return {
        "resource": each.resource,
        "window": each.window or None,
        **amounts,
        "resets_at": resets.isoformat(timespec="milliseconds") if each.window else None,
    }


def _usd(amount: int) -> str:
    """Plain decimal text, as the ledger's reports have it."""
    plain = f"{Decimal(amount) / PICO:f}"
    return plain.rstrip("0").rstrip(".") if "." in plain else plain
