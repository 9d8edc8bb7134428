"""The path of the store's file, and whether the file can be written."""

from pathlib import Path

from pydantic import SecretStr

from sluicegate.config import StoreConfig
from sluicegate.errors import ConfigurationFault
from sluicegate.storage import state_directory, why_unwritable

_FILE = "responses.db"


def store_place(config: StoreConfig) -> Path | SecretStr:
    """The SQLite file, or the URL of the server that keeps responses."""
    if config.url is not None:
        return config.url
    return Path(config.path).expanduser() if config.path else state_directory() / _FILE


def store_path(config: StoreConfig) -> Path | None:
    """The SQLite file; None where a server keeps responses."""
    place = store_place(config)
    return place if isinstance(place, Path) else None


def store_faults(config: StoreConfig) -> list[ConfigurationFault]:
    """What would keep the file from being written, without making anything: it is made on first use."""
    path = store_path(config) if config.store else None
    why = None if path is None else why_unwritable(path)
    if why is None:
        return []
    hint = "set `responses.path` to a file that this user may write, or `responses.store: false`"
    return [ConfigurationFault("responses.path", why, hint)]
