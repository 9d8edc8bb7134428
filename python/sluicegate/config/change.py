"""Replacing the running configuration, and why a file that is still being written is not taken.

Whoever writes a file leaves every beginning of it on the disk for a moment, and many a beginning is a good
file in itself: one without the keys, which come last, or with the first letters of a key.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from sluicegate.config.check import check_source
from sluicegate.config.root import Config
from sluicegate.config.section import Section
from sluicegate.config.source import read
from sluicegate.errors import ConfigurationError, ConfigurationFault

NEED_RESTART = ("server", "responses", "storage", "ledger", "admin")
"""The sections that are taken at the start of a process, and not again."""


def changed_settings(one: Section | None, other: Section | None, path: str = "") -> list[str]:
    """The paths of the settings in which two sections of the same type differ: `server.port`. Where one of
    them is not there, that of the section itself.
    """
    if one is None or other is None:
        return [] if one is other else [path]
    found: list[str] = []
    for name in type(one).model_fields:
        old, new = getattr(one, name), getattr(other, name)
        place = f"{path}.{name}" if path else name
        if isinstance(old, Section) and isinstance(new, Section):
            found += changed_settings(old, new, place)
        elif old != new:
            found.append(place)
    return found


def load_change(
    path: str | os.PathLike[str], running: Config, environ: Mapping[str, str] | None = None
) -> Config:
    """The configuration in the file at `path`, to be served in place of `running`.

    Raises `ConfigurationError` with every fault in it, and where it would let anyone in who is not let in
    now without saying so, or may be the beginning of a longer file.
    """
    source = read(Path(path))
    if source.data is not None and not source.ends_whole:
        source.add((), "ends in the middle of a line: it may still be written", "end its last line")
    report = check_source(source, environ)
    if report.config is None:
        raise ConfigurationError(report.faults)
    if running.needs_keys and not report.config.needs_keys and report.config.access != "open":
        raise ConfigurationError(
            [
                ConfigurationFault(
                    "keys",
                    "are gone, and would leave the gateway open to anyone",
                    "say `access: open` where this is meant",
                )
            ]
        )
    return report.config
