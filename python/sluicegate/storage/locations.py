"""Where files are kept, and whether they can be."""

import os
from pathlib import Path

from sluicegate.config import StorageConfig


def state_directory() -> Path:
    """Where files are if nobody says: what systemd gives a service, else the user's state directory."""
    if directory := os.environ.get("STATE_DIRECTORY"):
        return Path(directory.partition(":")[0])
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "sluicegate"


def storage_directory(config: StorageConfig) -> Path:
    """The directory of the journal and of SQLite files."""
    return Path(config.directory).expanduser() if config.directory else state_directory()


def why_unwritable(path: Path) -> str | None:
    """What keeps a SQLite file from being written, without making anything; None: nothing does."""
    if path.exists():
        if path.is_file() and os.access(path, os.R_OK | os.W_OK):
            return _why_not_below(path.parent)
        return f"names {path}, which {'is not writable' if path.is_file() else 'is not a file'}"
    return _why_not_below(path.parent)


def _why_not_below(folder: Path) -> str | None:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    # SQLite makes files beside its own.
    if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
        return None
    return f"is below {folder}, which {'is not writable' if folder.is_dir() else 'is not a directory'}"
