"""Listing, making and changing callers, on the database itself."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sluicegate.config import CALLER_PREFIX, Config
from sluicegate.identity.audit import changing
from sluicegate.identity.errors import Conflict, InvalidFields, NoSuchCaller
from sluicegate.identity.model import (
    CallerFields,
    StoredCaller,
    allowed_columns,
    caller_of,
    of_configuration,
    plain,
    validated,
)
from sluicegate.identity.schema import callers
from sluicegate.identity.secret import random_text
from sluicegate.storage import Database

_ID_LETTERS = 16


async def list_callers(
    database: Database, config: Config, *, after: str | None = None, limit: int | None = None
) -> list[StoredCaller]:
    """Those of the configuration, and then those of the database by name: the first `limit` of those that
    follow the one with the id `after`. Raises `NoSuchCaller` where nobody has that, and `StoreUnavailable`.
    """
    first = _place_in(config, after)
    end = None if limit is None or first is None else first + limit
    found = [] if first is None else [of_configuration(caller) for caller in config.callers[first:end]]
    left = None if limit is None else limit - len(found)
    if left == 0:
        return found
    if not database.exists:
        if first is None:
            raise NoSuchCaller(after or "")
        return found
    query = select(callers).order_by(callers.c.name).limit(left)
    async with database.read("callers") as connection:
        if first is None:
            name = await connection.scalar(select(callers.c.name).where(callers.c.id == after))
            if name is None:
                raise NoSuchCaller(after or "")
            query = query.where(callers.c.name > name)
        rows = (await connection.execute(query)).all()
    return found + [caller_of(row) for row in rows]


def _place_in(config: Config, after: str | None) -> int | None:
    """How many of the configuration's callers are passed by; None: `after` is none of them."""
    if after is None:
        return 0
    places = (place for place, each in enumerate(config.callers, 1) if after == (each.id or each.name))
    return next(places, None)


async def find_caller(database: Database, config: Config, name: str) -> StoredCaller:
    """The caller with this id, or else with this name. Raises `NoSuchCaller`, `StoreUnavailable`, and
    `Conflict` where the configuration and the database have the name, both.
    """
    if not database.exists:
        return _one(of_config(config, name), name)
    async with database.read("caller") as connection:
        return await caller_on(connection, config, name)


async def create_caller(
    database: Database, config: Config, data: Mapping[str, Any], actor: str
) -> StoredCaller:
    """Make a caller; `data`: the members of `CallerFields`.

    Raises `InvalidFields`, `Conflict` where the name is taken, and `StoreUnavailable`.
    """
    fields = validated(CallerFields, data, config)
    async with changing(database, "create a caller", actor) as change:
        await _check_name(change.connection, config, fields.name)
        id = CALLER_PREFIX + random_text(_ID_LETTERS)
        row = {"id": id, **_columns(fields), "created": change.now, "changed": change.version}
        await change.connection.execute(insert(callers).values(row))
        await change.note("caller.create", id, fields.model_dump(mode="json", exclude_defaults=True))
    return StoredCaller(id, fields, created=change.now)


async def change_caller(
    database: Database, config: Config, name: str, changes: Mapping[str, Any], actor: str
) -> StoredCaller:
    """Change some members of `CallerFields` of the caller with this id, or name. What it used counts on.

    Raises `NoSuchCaller`, `InvalidFields`, `Conflict`, also for a caller of the configuration, and
    `StoreUnavailable`.
    """
    async with changing(database, "change a caller", actor) as change:
        connection = change.connection
        caller = await caller_on(connection, config, name)
        if caller.source == "configuration":
            raise Conflict(f"the caller `{caller.name}` is the configuration's: change it there")
        old = caller.fields
        # Only what is changed is held against the configuration: its limits may be gone meanwhile.
        given = validated(CallerFields, {"name": old.name, **changes}, config)
        fields = old.model_copy(update={name: getattr(given, name) for name in changes})
        if fields.name != old.name:
            await _check_name(connection, config, fields.name)
        before, after = plain(old), plain(fields)
        differing = {name: after[name] for name in after if after[name] != before[name]}
        if differing:
            row = {**_columns(fields), "changed": change.version}
            await connection.execute(update(callers).where(callers.c.id == caller.id).values(row))
            was = {name: before[name] for name in differing}
            await change.note("caller.change", caller.id, {"from": was, "to": differing})
    return StoredCaller(caller.id, fields, created=caller.created)


# === for the others here ===


async def caller_on(connection: AsyncConnection, config: Config, name: str) -> StoredCaller:
    """As `find_caller`, on a connection."""
    query = select(callers).where((callers.c.id == name) | (callers.c.name == name))
    rows = (await connection.execute(query)).all()
    return _one([*of_config(config, name), *map(caller_of, rows)], name)


def of_config(config: Config, name: str) -> list[StoredCaller]:
    """The configuration's callers with this id or name."""
    return [of_configuration(each) for each in config.callers if name in (each.id, each.name)]


def _one(found: list[StoredCaller], name: str) -> StoredCaller:
    with_id = [caller for caller in found if caller.id == name]
    found = with_id or found
    if not found:
        raise NoSuchCaller(name)
    if len(found) > 1:
        ids = ", ".join(caller.id for caller in found)
        raise Conflict(f"several callers have the name `{name}`: say which by its id ({ids})")
    return found[0]


async def _check_name(connection: AsyncConnection, config: Config, name: str) -> None:
    if name.startswith(CALLER_PREFIX):
        raise InvalidFields([f"name: names that begin with {CALLER_PREFIX} are taken for ids"])
    taken = {text for caller in config.callers for text in (caller.id, caller.name)}
    taken |= {key.name for key in config.keys}
    query = select(callers.c.id).where(callers.c.name == name)
    if name in taken or (await connection.execute(query)).first() is not None:
        raise Conflict(f"there is a caller `{name}`")


def _columns(fields: CallerFields) -> dict[str, Any]:
    said = {"name": fields.name, "team": fields.team, "disabled": fields.disabled}
    return {**said, **allowed_columns(fields)}
