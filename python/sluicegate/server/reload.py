"""A configuration that changes while the gateway runs: when it asks for it, and when its file is another."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from sluicegate.config import Config, load_file
from sluicegate.errors import ConfigurationError
from sluicegate.routing import ModelTable
from sluicegate.telemetry import Log

RELOAD_SIGNAL = signal.SIGURG
"""From the parent to its workers. One that is not ready yet is not hurt: by default it is ignored."""

# A look at a file costs next to nothing, and sees what notifications do not: files of a network, and links
# that are turned to another directory, as Kubernetes does with its ConfigMaps.
POLL_SECONDS = 0.5

Stamp = tuple[int, int, int] | None


def stamp_of(path: Path | None) -> Stamp:
    """What changes when the file at `path` does; None where there is none."""
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def load_whole(path: Path) -> Config:
    """The configuration at `path`, whose upstreams can be used. Raises `ConfigurationError`."""
    config = load_file(path)
    ModelTable(config)
    return config


def faults_of(error: Exception) -> list[str]:
    """For the log."""
    if isinstance(error, ConfigurationError):
        return [str(fault) for fault in error.faults]
    return [type(error).__name__]


class Reloader:
    """Reads the file again, in a thread of its own, when asked to and (`watch`) when it has changed.

    `changed` gets each configuration without faults and the stamp of its file; one with faults is logged, and
    changes nothing. A change counts once the file has been the same for two looks: what is still being
    written is not read.
    """

    def __init__(
        self, path: Path, stamp: Stamp, changed: Callable[[Config, Stamp], None], log: Log, *, watch: bool
    ) -> None:
        self._path = path
        self._known = self._last = stamp
        self._changed = changed
        self._log = log
        self._watch = watch
        self._asked = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sluicegate-reload", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(self) -> None:
        """Read it soon. From a signal's handler, too: it takes no lock."""
        self._asked = True

    def stop(self) -> None:
        """Idempotent."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(POLL_SECONDS):
            self.look()

    def look(self) -> None:
        """One look."""
        asked, self._asked = self._asked, False
        stamp = stamp_of(self._path)
        settled = self._watch and stamp != self._known and stamp == self._last
        self._last = stamp
        if asked or settled:
            self._known = stamp
            self._load(stamp)

    def _load(self, stamp: Stamp) -> None:
        try:
            config = load_whole(self._path)
        except Exception as error:
            # Whatever is wrong with a file must not end the thread: the next one may be right.
            self._log.error("reload_failed", faults=faults_of(error))
            return
        self._changed(config, stamp)


def tell(pids: list[int]) -> None:
    """Let workers read the file again."""
    for pid in pids:
        try:
            os.kill(pid, RELOAD_SIGNAL)
        except ProcessLookupError:
            continue
