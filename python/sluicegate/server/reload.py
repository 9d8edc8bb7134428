"""A configuration that changes while the gateway runs: when its file is another, and what of it counts."""

import hashlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from sluicegate.config import NEED_RESTART, Config, Section, changed_settings, load_change
from sluicegate.errors import ConfigurationError
from sluicegate.routing import ModelTable
from sluicegate.telemetry import ConfigurationReport, Log

# A look at a file costs next to nothing, and sees what notifications do not: files of a network, and links
# that are turned to another directory, as Kubernetes does with its ConfigMaps.
POLL_SECONDS = 0.5

HASH_CHARACTERS = 16

Stamp = tuple[int, int, int] | None


def stamp_of(path: Path) -> Stamp:
    """What changes when the file at `path` does; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def hash_of(path: Path) -> str:
    """What tells one version of the file at `path` from another. Raises `OSError`."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:HASH_CHARACTERS]


def faults_of(error: Exception) -> list[str]:
    """For the log."""
    if isinstance(error, ConfigurationError):
        return [str(fault) for fault in error.faults]
    return [type(error).__name__]


class Reader:
    """Reads the file again, in a thread of its own, when asked to and (`watch`) when it has changed.

    `take` gets, on that thread, each configuration without faults; it raises where it cannot have it. One
    with faults is logged and reported, and changes nothing. The file is read once it has been the same for
    two looks, and counts where it still is after that: what is still being written is not taken.
    """

    def __init__(
        self,
        path: Path,
        running: Config,
        take: Callable[[Config], None],
        log: Log,
        report: ConfigurationReport,
        *,
        watch: bool,
    ) -> None:
        self._path = path
        self._running = running
        self._take = take
        self._log = log
        self._report = report
        self._watch = watch
        self._asked = False
        self._changed = False
        self._known: Stamp = None
        self._last: Stamp = None
        # The sections of the file that the process began with: options of the command line are not in it.
        self._begun_with = _sections(running)
        self._told: dict[str, Section | None] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sluicegate-reload", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(self) -> None:
        """Read it soon, whether it has changed or not. Any thread."""
        self._asked = True

    def stop(self) -> None:
        """Begin nothing any more. Idempotent."""
        self._over.set()

    @property
    def stopped(self) -> bool:
        return self._over.is_set()

    def _run(self) -> None:
        self.begin()
        while not self._over.wait(POLL_SECONDS):
            self.look()

    def begin(self) -> None:
        """Learn what the file is. It may have changed since `running` was read from it."""
        stamp = stamp_of(self._path)
        self._known = self._last = stamp
        self._report.begun(str(self._path), None)
        try:
            hash = hash_of(self._path)
            found = load_change(self._path, self._running)
        except (ConfigurationError, OSError):
            # It is told when it has settled.
            self._changed = True
            return
        self._begun_with = _sections(found)
        self._changed = not _same(found, self._running)
        if not self._changed:
            self._report.begun(str(self._path), hash)

    def look(self) -> None:
        """One look."""
        stamp = stamp_of(self._path)
        settled, self._last = stamp == self._last, stamp
        self._changed = self._changed or stamp != self._known
        if settled and (self._asked or (self._watch and self._changed)):
            self._asked = self._changed = False
            self._known = stamp
            self._read(stamp)

    def _read(self, stamp: Stamp) -> None:
        try:
            hash = hash_of(self._path)
            config = load_change(self._path, self._running)
            # Upstreams that cannot be used are faults as well.
            ModelTable(config)
        except Exception as error:
            # Whatever is wrong with a file must not end the thread: the next one may be right.
            if not self._moved(stamp):
                self._failed(error)
            return
        if self._moved(stamp):
            return
        try:
            self._take(config)
        except Exception as error:
            self._failed(error)
            return
        self._running = config
        self._report.served(hash)
        self._tell_of_restarts(config)

    def _failed(self, error: Exception) -> None:
        faults = faults_of(error)
        self._report.failed(faults)
        self._log.error("reload_failed", faults=faults)

    def _moved(self, stamp: Stamp) -> bool:
        """Whether the file is not any more what was read; it is read again, then."""
        if stamp_of(self._path) == stamp:
            return False
        self._asked = True
        return True

    def _tell_of_restarts(self, config: Config) -> None:
        for name, section in _sections(config).items():
            if section == self._begun_with[name]:
                self._told.pop(name, None)
            elif name not in self._told or section != self._told[name]:
                self._told[name] = section
                changed = changed_settings(self._begun_with[name], section, name)
                self._log.warning("needs_restart", section=name, settings=changed)


def _sections(config: Config) -> Mapping[str, Section | None]:
    return {name: getattr(config, name) for name in NEED_RESTART}


def _same(one: Config, other: Config) -> bool:
    """Whether both say the same of what needs no restart."""
    return one.model_copy(update=dict(_sections(other))) == other
