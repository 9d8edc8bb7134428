"""Who changed what, and when. Every change writes a row in its own transaction."""

import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sluicegate.identity.model import MICRO, as_json, iso
from sluicegate.identity.schema import audit, state
from sluicegate.storage import Database


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One change."""

    id: int
    at: int
    """Microseconds since 1970."""
    actor: str
    """`os:NAME`, a user of the machine; `token:NAME`, a token of the admin API; `socket`, its socket."""
    action: str
    """`caller.create`, `caller.change`, `key.create`, `key.rotate`, `key.revoke`, `deployment.eject`,
    `deployment.restore`."""
    subject: str
    """The id of the caller, the public id of the key, or the deployment's name."""
    change: Mapping[str, Any]

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "id": self.id,
            "at": iso(self.at),
            "actor": self.actor,
            "action": self.action,
            "subject": self.subject,
            "change": dict(self.change),
        }


async def audited(
    database: Database, *, subject: str | None = None, before: int | None = None, limit: int = 100
) -> list[AuditEntry]:
    """The newest entries, newest first; of one `subject` alone; with ids below `before`.

    Raises `StoreUnavailable`.
    """
    query = select(audit).order_by(audit.c.id.desc()).limit(limit)
    if subject is not None:
        query = query.where(audit.c.subject == subject)
    if before is not None:
        query = query.where(audit.c.id < before)
    async with database.read("audit") as connection:
        rows = (await connection.execute(query)).all()
    return [
        AuditEntry(row.id, row.at, row.actor, row.action, row.subject, json.loads(row.change)) for row in rows
    ]


async def note(database: Database, actor: str, action: str, subject: str) -> None:
    """Put into the audit what somebody has done that is no change of callers or keys.

    Raises `StoreUnavailable`.
    """
    values = {"at": int(time.time() * MICRO), "actor": actor[:128], "action": action, "subject": subject}
    async with database.transaction("audit") as connection:
        await connection.execute(insert(audit).values(**values, change=as_json({})))


class Change:
    """A change that is under way, in its transaction."""

    def __init__(self, connection: AsyncConnection, version: int, actor: str) -> None:
        self.connection = connection
        self.version = version
        """For the column `changed` of all rows that it touches."""
        self.now = int(time.time() * MICRO)
        self._actor = actor

    async def note(self, action: str, subject: str, change: Mapping[str, Any]) -> None:
        """Put it into the audit."""
        values = {"at": self.now, "actor": self._actor[:128], "action": action, "subject": subject}
        await self.connection.execute(insert(audit).values(**values, change=as_json(change)))


@contextlib.asynccontextmanager
async def changing(database: Database, operation: str, actor: str) -> AsyncIterator[Change]:
    """A transaction that no other change runs beside."""
    async with database.transaction(operation) as connection:
        counted = update(state).values(version=state.c.version + 1).returning(state.c.version)
        version = (await connection.execute(counted)).scalar_one()
        yield Change(connection, version, actor)
