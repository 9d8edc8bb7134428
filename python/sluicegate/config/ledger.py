"""The ledger: what every request cost; and where it, and what else is to last, is kept."""

from collections.abc import Iterator
from datetime import tzinfo
from typing import Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from sluicegate.config.quantities import fault, raise_all
from sluicegate.config.redis_url import RedisUrl
from sluicegate.config.section import Section
from sluicegate.config.values import Bytes, Days, ExistingFile, Secret

WhenFull = Literal["refuse", "drop"]
SyncToDisk = Literal["never", "second", "always"]
CountersLost = Literal["local", "allow", "refuse"]


class StorageConfig(Section):
    """Where the ledger with its journal, callers and keys, and the counters of limits are kept. Stored
    responses have settings of their own.
    """

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

    counters: Secret | None = Field(
        default=None,
        description="redis://host:6379, rediss://… with TLS, or unix:///path of a socket, of Redis or "
        "Valkey: several machines count limits together. null: each counts for itself.",
    )
    counters_ca_file: ExistingFile | None = Field(
        default=None,
        description="The authorities to trust for `counters` in place of the usual ones, PEM.",
    )
    counters_lost: CountersLost = Field(
        default="local",
        description="What limits do while that server does not answer. local: each gateway keeps to its "
        "share of them, by what it knew last; allow: everything is let in; refuse: whoever has limits gets "
        "a 503.",
    )

    @field_validator("counters")
    @classmethod
    def _redis(cls, url: Secret | None) -> Secret | None:
        if url is not None:
            try:
                RedisUrl.of(url.get_secret_value())
            except ValueError:
                hint = "redis://user:password@host:6379/0, rediss:// with TLS, or unix:///path/of/socket?db=0"
                raise fault("url", "is not a Redis URL", hint) from None
        return url

    @model_validator(mode="after")
    def _has_counters_to_lose(self) -> Self:
        raise_all("StorageConfig", self._faults())
        return self

    def _faults(self) -> Iterator[PydanticCustomError]:
        if self.counters is None and "counters_lost" in self.model_fields_set:
            message, hint = "does nothing without `counters`", "add `counters`, or take it out"
            yield fault("counters_lost", message, hint, at=("counters_lost",), lacks=("counters",))
        if self.counters_ca_file is not None and not (
            self.counters is not None and self.counters.get_secret_value().startswith("rediss:")
        ):
            message, hint = "does nothing without TLS", "`counters: rediss://…`, or take it out"
            yield fault("counters_ca_file", message, hint, at=("counters_ca_file",), lacks=("counters",))

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
