"""Where callers and keys are kept."""

import hashlib

from sqlalchemy.engine import Connection, make_url

from sluicegate.config import StorageConfig
from sluicegate.identity.schema import MIGRATIONS, versions
from sluicegate.storage import Database, migrate, storage_directory

_FILE = "callers.db"
_COPY = "callers-copy-{}.db"


def open_callers(config: StorageConfig) -> Database:
    """The database of callers and keys. It outlives a power cut: a key that was revoked stays so."""
    return Database(config.database or storage_directory(config) / _FILE, _bring_up, durable=True)


def open_copy(config: StorageConfig) -> Database | None:
    """Where this machine keeps a copy of what a server has, for a start without it; None: there is no server.

    A copy belongs to one server and database: its name has a digest of where that is, without any password.
    """
    if config.database is None:
        return None
    url = make_url(config.database.get_secret_value())
    place = f"{url.host}:{url.port}/{url.database}"
    name = _COPY.format(hashlib.sha256(place.encode()).hexdigest()[:8])
    return Database(storage_directory(config) / name, _bring_up, durable=True)


def _bring_up(connection: Connection) -> None:
    migrate(connection, versions, MIGRATIONS)
