"""Listing, making, replacing and ending keys, on the database itself."""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import insert, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sluicegate.config import Config
from sluicegate.identity.audit import Change, changing
from sluicegate.identity.callers import caller_on, find_caller
from sluicegate.identity.errors import Conflict, InvalidFields, NoSuchKey
from sluicegate.identity.model import (
    MICRO,
    ConfiguredKey,
    KeyFields,
    RotationFields,
    StoredKey,
    allowed_columns,
    iso,
    key_of,
    read,
    validated,
)
from sluicegate.identity.schema import keys
from sluicegate.identity.secret import configured_key_id, new_key, public_id
from sluicegate.storage import Database

OVERLAP_SECONDS = RotationFields().overlap
"""How long a key works on that another one replaces, where nobody says."""


class MadeKey(NamedTuple):
    """A key that was made a moment ago."""

    key: StoredKey
    text: str
    """The key itself. It is nowhere else, and cannot be shown again."""


async def list_keys(
    database: Database,
    config: Config,
    caller: str | None = None,
    *,
    after: str | None = None,
    limit: int | None = None,
) -> list[StoredKey]:
    """The keys of the database, oldest first; those of one caller, by its id or name. The first `limit` of
    those that follow the one with the id `after`.

    Raises `NoSuchCaller`, `Conflict` (see `find_caller`), `NoSuchKey` and `StoreUnavailable`.
    """
    query = select(keys).order_by(keys.c.created, keys.c.id).limit(limit)
    if caller is not None:
        found = await find_caller(database, config, caller)
        query = query.where(keys.c.caller_id == found.id)
    if not database.exists:
        return []
    async with database.read("keys") as connection:
        if after is not None:
            made = await connection.scalar(select(keys.c.created).where(keys.c.id == after))
            if made is None:
                raise NoSuchKey(after)
            query = query.where(tuple_(keys.c.created, keys.c.id) > tuple_(made, after))
        rows = (await connection.execute(query)).all()
    return [key_of(row) for row in rows]


def configured_keys(config: Config, caller: str | None = None) -> list[ConfiguredKey]:
    """The keys of the configuration; those of one caller, by its id or name."""
    ids = {each.name: each.id or each.name for each in config.callers}
    found = []
    for key in config.keys:
        owner = ids.get(key.name) or key.id or key.name
        if caller is None or caller in (owner, key.name):
            said = {name: getattr(key, name) for name in ("limits", "models", "endpoints", "expires")}
            id = configured_key_id(hashlib.sha256(key.key.get_secret_value().encode()).digest())
            found.append(ConfiguredKey(id, owner, key.name, KeyFields.model_construct(**said)))
    return found


async def find_key(database: Database, id: str) -> StoredKey:
    """The key with this public id. Raises `NoSuchKey` and `StoreUnavailable`."""
    if not database.exists:
        raise NoSuchKey(id)
    async with database.read("key") as connection:
        return await _key_on(connection, id)


async def key_meant(database: Database, config: Config, text: str) -> StoredKey | ConfiguredKey:
    """The key with this public id, or the key that `text` itself is, as a client sends it.

    Raises `NoSuchKey`, whose message repeats nothing that may be a secret, and `StoreUnavailable`.
    """
    digest = hashlib.sha256(text.encode()).digest()
    ids = (text, configured_key_id(digest))
    for configured in configured_keys(config):
        if configured.id in ids:
            return configured
    id = public_id(text)
    if not id:
        raise NoSuchKey
    key = await find_key(database, id)
    if id != text and key.digest != digest:
        raise NoSuchKey
    return key


async def create_key(
    database: Database, config: Config, caller: str, data: Mapping[str, Any], actor: str
) -> MadeKey:
    """Make a key of a caller, by its id or name, also of one of the configuration.

    `data`: the members of `KeyFields`. Raises `NoSuchCaller`, `Conflict` (see `find_caller`),
    `InvalidFields` and `StoreUnavailable`.
    """
    fields = validated(KeyFields, data, config)
    _check_expiry(fields.expires)
    async with changing(database, "create a key", actor) as change:
        owner = await caller_on(change.connection, config, caller)
        made = await _insert(change, owner.id, fields, None)
        await change.note("key.create", made.key.id, _noted(made.key))
    return made


async def rotate_key(
    database: Database,
    id: str,
    actor: str,
    *,
    overlap: float | str = OVERLAP_SECONDS,
    expires: datetime | str | None = None,
) -> tuple[MadeKey, StoredKey]:
    """Make a key in the place of another, which works on for `overlap` (seconds, or text: `24h`): the new one
    and the old one.

    The new one may what the old one may, and lasts as long as that was made for, unless `expires` says
    otherwise. Raises `NoSuchKey`, `Conflict` where the key has ended, `InvalidFields` and `StoreUnavailable`.
    """
    said = read(RotationFields, {"overlap": overlap, "expires": expires})
    _check_expiry(said.expires)
    async with changing(database, "rotate a key", actor) as change:
        old = await _key_on(change.connection, id)
        state = old.state(change.now / MICRO)
        if state != "active":
            raise Conflict(f"the key `{id}` is {state}: make a new one")
        ends = said.expires
        if ends is None and old.expires is not None:
            ends = _moment(change.now + old.expires - old.created)
        made = await _insert(change, old.caller_id, old.fields.model_copy(update={"expires": ends}), old)
        last = min(change.now + int(said.overlap * MICRO), old.expires or 2**62)
        ended = {"expires": last, "changed": change.version}
        await change.connection.execute(update(keys).where(keys.c.id == id).values(ended))
        noted = {**_noted(made.key), "new": made.key.id, "old_expires": iso(last)}
        await change.note("key.rotate", id, noted)
    fields = old.fields.model_copy(update={"expires": _moment(last)})
    return made, replace(old, expires=last, fields=fields)


async def revoke_key(database: Database, id: str, actor: str) -> StoredKey:
    """End a key at once and for good; where it is revoked already, nothing changes.

    Raises `NoSuchKey` and `StoreUnavailable`.
    """
    async with changing(database, "revoke a key", actor) as change:
        key = await _key_on(change.connection, id)
        if key.revoked is not None:
            return key
        ended = {"revoked": change.now, "changed": change.version}
        await change.connection.execute(update(keys).where(keys.c.id == id).values(ended))
        await change.note("key.revoke", id, {"caller": key.caller_id, "name": key.fields.name})
    return replace(key, revoked=change.now)


async def _insert(change: Change, caller_id: str, fields: KeyFields, old: StoredKey | None) -> MadeKey:
    new = new_key()
    expires = None if fields.expires is None else int(fields.expires.timestamp() * MICRO)
    key = StoredKey(
        id=new.id,
        caller_id=caller_id,
        fields=fields,
        last_four=new.last_four,
        created=change.now,
        expires=expires,
        revoked=None,
        replaces=None if old is None else old.id,
        counted_as=new.id if old is None else old.counted_as,
        digest=new.digest,
    )
    row = {
        "id": key.id,
        "caller_id": caller_id,
        "name": fields.name,
        "digest": key.digest,
        "last_four": key.last_four,
        **allowed_columns(fields),
        "created": key.created,
        "expires": expires,
        "replaces": key.replaces,
        "counted_as": None if old is None else key.counted_as,
        "changed": change.version,
    }
    await change.connection.execute(insert(keys).values(row))
    return MadeKey(key, new.text)


async def _key_on(connection: AsyncConnection, id: str) -> StoredKey:
    row = (await connection.execute(select(keys).where(keys.c.id == id))).first()
    if row is None:
        raise NoSuchKey(id)
    return key_of(row)


def _check_expiry(expires: datetime | None) -> None:
    if expires is not None and expires.timestamp() <= time.time():
        raise InvalidFields(["expires: is over already"])


def _moment(micro: int) -> datetime:
    return datetime.fromtimestamp(micro / MICRO, UTC)


def _noted(key: StoredKey) -> dict[str, Any]:
    said = key.fields.model_dump(mode="json", exclude_defaults=True)
    return {"caller": key.caller_id, **said, "expires": iso(key.expires)}
