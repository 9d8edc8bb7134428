"""Where the ledger and its journal are."""

from pathlib import Path

from pydantic import SecretStr
from sqlalchemy.engine import Connection

from sluicegate.config import StorageConfig
from sluicegate.errors import ConfigurationFault
from sluicegate.ledger.schema import MIGRATIONS, versions
from sluicegate.storage import Database, migrate, storage_directory, why_unwritable

_FILE = "ledger.db"
_JOURNAL = "journal"


def journal_folder(config: StorageConfig) -> Path:
    return storage_directory(config) / _JOURNAL


def _place(config: StorageConfig) -> Path | SecretStr:
    return config.database or storage_directory(config) / _FILE


def open_database(config: StorageConfig) -> Database:
    """The ledger's database. It outlives a power cut, since what is in it is deleted from the journal."""
    return Database(_place(config), _bring_up, durable=True)


def ledger_faults(config: StorageConfig) -> list[ConfigurationFault]:
    """What would keep the ledger from being written, without making anything."""
    why = why_unwritable(storage_directory(config) / _FILE)
    if why is None:
        return []
    hint = "set `storage.directory` to a directory that this user may write to"
    return [ConfigurationFault("storage.directory", why, hint)]


def _bring_up(connection: Connection) -> None:
    migrate(connection, versions, MIGRATIONS)
