"""Notifying other processes on the same PostgreSQL database of what was written, by LISTEN and NOTIFY.

What is told may be lost with a connection, and behind a pooler nobody may be listening at all: whoever must
not miss anything asks every now and then.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from sluicegate.storage import Database, StoreUnavailable

_CHANNEL = "sluicegate_responses"

# A message has less than 8000 bytes, and the ids of background responses, which are our own, have 37.
_IDS = 200


async def tell(connection: AsyncConnection, ids: Sequence[str]) -> None:
    """Tell of these background responses, once this transaction is committed. With SQLite nobody listens."""
    if connection.dialect.name != "postgresql":
        return
    for start in range(0, len(ids), _IDS):
        await connection.execute(select(func.pg_notify(_CHANNEL, " ".join(ids[start : start + _IDS]))))


class Listener:
    """Hears of responses that changed: `heard` is called with their ids, on the event loop, also with those
    that this process has written."""

    def __init__(self, database: Database, heard: Callable[[Sequence[str]], None]) -> None:
        self._database = database
        self._heard = heard
        self._connection: AsyncConnection | None = None
        self._driver: Any = None

    @property
    def listens(self) -> bool:
        return self._driver is not None and not self._driver.is_closed()

    async def open(self) -> None:
        """Begin to listen, anew where the connection was lost. Raises `StoreUnavailable`."""
        await self.close()
        connection = self._connection = await self._database.dedicated("listen")
        try:
            driver = (await connection.get_raw_connection()).driver_connection
            if driver is None:
                raise StoreUnavailable("the connection was lost")
            await driver.add_listener(_CHANNEL, self._told)
        except StoreUnavailable:
            raise
        except Exception as error:
            # The driver's own errors are of no common class.
            raise StoreUnavailable(f"{type(error).__name__}: {error}") from None
        self._driver = driver

    async def close(self) -> None:
        """Stop listening. Idempotent."""
        connection, self._connection, self._driver = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(SQLAlchemyError, OSError):
                await connection.invalidate()
                await connection.close()

    def _told(self, connection: object, process: int, channel: str, message: str) -> None:
        self._heard(message.split())
