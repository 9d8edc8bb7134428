"""Where callers and keys are kept."""

from sqlalchemy.engine import Connection

from sluicegate.config import StorageConfig
from sluicegate.identity.schema import MIGRATIONS, versions
from sluicegate.storage import Database, migrate, storage_directory

_FILE = "callers.db"


def open_callers(config: StorageConfig) -> Database:
    """The database of callers and keys. It outlives a power cut: a key that was revoked stays so."""
    return Database(config.database or storage_directory(config) / _FILE, _bring_up, durable=True)


def _bring_up(connection: Connection) -> None:
    migrate(connection, versions, MIGRATIONS)
