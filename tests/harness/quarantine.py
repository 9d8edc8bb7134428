"""The tests that are known to need a second attempt now and then, for a while."""

import tomllib
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Self

MAX_ENTRIES = 5
MAX_DAYS = 14
_MEMBERS = {"test", "reason", "since", "until"}


class QuarantineFault(Exception):
    """The file does not say what it must."""


@dataclass(frozen=True)
class Entry:
    """One test. `until` is its last day, at most 14 days after `since`."""

    test: str
    reason: str
    since: date
    until: date


@dataclass(frozen=True)
class Quarantine:
    """At most five entries."""

    entries: tuple[Entry, ...]

    @classmethod
    def read(cls, file: Path) -> Self:
        """Raises `QuarantineFault` for what is not in order."""
        return cls.parse(file.read_text())

    @classmethod
    def parse(cls, text: str) -> Self:
        """From TOML with a table `[[quarantined]]` an entry. Raises `QuarantineFault` as `read` does."""
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise QuarantineFault(f"{error}") from None
        if tables.keys() - {"quarantined"} or not isinstance(tables.get("quarantined", []), list):
            raise QuarantineFault("there are tables [[quarantined]] and nothing else")
        entries = tuple(_entry(table) for table in tables.get("quarantined", []))
        if len(entries) > MAX_ENTRIES:
            raise QuarantineFault(f"there are more than {MAX_ENTRIES} entries")
        return cls(entries)

    def tests(self, today: date) -> frozenset[str]:
        """Those that are quarantined on this day."""
        return frozenset(entry.test for entry in self.entries if entry.since <= today <= entry.until)


def _entry(table: object) -> Entry:
    if not isinstance(table, dict) or table.keys() != _MEMBERS:
        raise QuarantineFault(f"an entry has {', '.join(sorted(_MEMBERS))}: {table}")
    entry = Entry(**table)
    named = isinstance(entry.test, str) and isinstance(entry.reason, str) and entry.test and entry.reason
    dated = type(entry.since) is date and type(entry.until) is date
    if not named or not dated:
        raise QuarantineFault(f"tests/quarantine.toml: two texts and two dates are needed: {table}")
    if not timedelta(0) <= entry.until - entry.since <= timedelta(days=MAX_DAYS):
        raise QuarantineFault(f"{entry.test} may stay at most {MAX_DAYS} days")
    return entry
