"""The ledger: what every request cost; and where it, and what else is to last, is kept."""

from datetime import tzinfo
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator

from sluicegate.config.quantities import fault
from sluicegate.config.section import Section
from sluicegate.config.values import Bytes, Days, Secret

WhenFull = Literal["refuse", "drop"]
SyncToDisk = Literal["never", "second", "always"]


class StorageConfig(Section):
    """Where the ledger, and its journal, are kept. Stored responses have settings of their own."""

    directory: str = Field(
        default="",
        description="The directory of the journal and of SQLite files, made on first use; empty: "
        "$STATE_DIRECTORY, or sluicegate/ below $XDG_STATE_HOME (~/.local/state).",
    )
    database: Secret | None = Field(
        default=None,
        description="postgresql://user:password@host/database, in place of a SQLite file: for several "
        "machines.",
    )

    @field_validator("database")
    @classmethod
    def _postgresql(cls, url: Secret | None) -> Secret | None:
        if url is not None and not url.get_secret_value().startswith("postgresql://"):
            raise fault("url", "is not a PostgreSQL URL", "postgresql://user:password@host/database")
        return url


class LedgerConfig(Section):
    """The ledger: a row for each request, with its usage and its cost, that no crash loses."""

    timezone: str = Field(default="UTC", description="Where a day begins, for reports: `Europe/Berlin`.")
    keep_days: Days = Field(default=90, description="How long rows are kept. Sums by day stay.")
    journal_bytes: Bytes = Field(
        default=1024**3,
        description="How much may wait on this machine's disk to be put into the ledger; at least 16 MiB is "
        "taken.",
    )
    when_full: WhenFull = Field(
        default="refuse",
        description="What becomes of a request where as much waits as may, or the disk is full. refuse: it "
        "is answered with 503; drop: it is served, and has no row.",
    )
    sync: SyncToDisk = Field(
        default="second",
        description="When the journal is written to the disk, which matters where the machine loses power: "
        "never by the gateway itself, every second, or always, before a request goes on. A process that dies "
        "loses nothing with any of them.",
    )

    @field_validator("timezone")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            hint = "UTC, or a name such as Europe/Berlin"
            raise fault("timezone", "is no time zone that is known here", hint) from None
        return name

    @property
    def zone(self) -> tzinfo:
        return ZoneInfo(self.timezone)
