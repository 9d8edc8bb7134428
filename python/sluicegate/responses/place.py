"""The path of the store's file, and whether the file can be written."""

import os
from pathlib import Path

from sluicegate.config import StoreConfig
from sluicegate.errors import ConfigurationFault


def default_path() -> Path:
    """Where the file is if nobody says: what systemd gives a service, else the user's state directory."""
    if directory := os.environ.get("STATE_DIRECTORY"):
        return Path(directory.partition(":")[0]) / "responses.db"
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "sluicegate" / "responses.db"


def store_path(config: StoreConfig) -> Path | None:
    """The SQLite file; None where a server keeps responses."""
    if config.url is not None:
        return None
    return Path(config.path).expanduser() if config.path else default_path()


def store_faults(config: StoreConfig) -> list[ConfigurationFault]:
    """What would keep the file from being written, without making anything: it is made on first use."""
    path = store_path(config) if config.store else None
    if path is None:
        return []
    hint = "set `responses.path` to a file that this user may write, or `responses.store: false`"
    if path.exists():
        if path.is_file() and os.access(path, os.R_OK | os.W_OK):
            return _directory_faults(path.parent, hint)
        what = "is not writable" if path.is_file() else "is not a file"
        return [ConfigurationFault("responses.path", f"names {path}, which {what}", hint)]
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return _directory_faults(folder, hint)


def _directory_faults(folder: Path, hint: str) -> list[ConfigurationFault]:
    # SQLite makes files beside its own.
    if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
        return []
    what = "is not writable" if folder.is_dir() else "is not a directory"
    return [ConfigurationFault("responses.path", f"is below {folder}, which {what}", hint)]
