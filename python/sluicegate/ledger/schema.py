"""The ledger's tables, and how they came to be, version by version.

In SQLite they have no row numbers: rows are kept by their key itself, and adding one changes one tree fewer.

Times are microseconds, of `started_at` since 1970; costs are whole numbers of 10**-12 USD, so that sums are
exact in every database. Null is "not known", but in `usage_daily`, whose key takes no null: there it is empty
text.
"""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import BigInteger, Boolean, Column, Date, Index, Integer, MetaData, Table, Text, text
from sqlalchemy.engine import Connection

from sluicegate.storage import MigrationStep, version_table

PICO = 10**12
"""Parts of a USD in which costs are counted."""

metadata = MetaData()

TOKENS = (
    "input",
    "cached_input",
    "cache_write",
    "cache_write_1h",
    "output",
    "reasoning",
    "input_audio",
    "output_audio",
    "input_image",
    "output_image",
)

COSTS = ("cost", "cost_input", "cost_cached_input", "cost_cache_write", "cost_output", "cost_reasoning")


def _texts(*names: str) -> list[Column[str]]:
    return [Column(name, Text) for name in names]


def _numbers(*names: str) -> list[Column[int]]:
    return [Column(name, BigInteger) for name in names]


# Few requests make a response that is stored.
_STORED = text("response_id IS NOT NULL")
_OF_RESPONSES = Index("ledger_response", "response_id", sqlite_where=_STORED, postgresql_where=_STORED)

ledger = Table(
    "ledger",
    metadata,
    Column("id", Text, primary_key=True),
    Column("run", Integer, nullable=False),
    Column("background", Boolean, nullable=False),
    Column("streamed", Boolean, nullable=False),
    *_texts("request_id", "response_id", "trace_id"),
    Column("started_at", BigInteger, nullable=False),
    Column("day", Date, nullable=False),
    *_texts("endpoint", "caller_id", "caller", "key_id", "team", "user_id"),
    *_texts("model", "requested_model", "upstream", "upstream_model", "upstream_request_id"),
    Column("status", Integer),
    Column("result", Text, nullable=False),
    *_texts("code", "fault", "finish_reason"),
    Column("client_left", Boolean, nullable=False),
    Column("attempts", Integer, nullable=False),
    *_numbers("wait", "first_byte", "first_token", "last_token", "longest_gap", "duration"),
    *_numbers(*TOKENS),
    Column("usage_source", Text, nullable=False),
    *_numbers(*COSTS),
    *_texts("upstream_cost", "price_id"),
    *_numbers("estimated_input", "estimated_output", "bytes_in", "bytes_out", "events", "malformed"),
    *_texts("gateway", "version"),
    _OF_RESPONSES,
    sqlite_with_rowid=False,
)
"""A row for each request; of a background response one for each run. Ids are UUIDs of version 7: ordered by
time, so that rows are added at the table's end. An index by caller would be written all over instead, which
takes longer than all else about a row where there are many callers.
"""


def first_id(seconds: float) -> str:
    """The least id of requests since `seconds` after 1970: the first bits of an id are its milliseconds."""
    return str(UUID(int=max(int(seconds * 1000), 0) << 80))


attempts = Table(
    "ledger_attempts",
    metadata,
    Column("id", Text, primary_key=True),
    Column("n", Integer, primary_key=True, autoincrement=False),
    *_texts("upstream", "upstream_model", "fault"),
    Column("status", Integer),
    *_numbers("started_at", "duration"),
    sqlite_with_rowid=False,
)
"""The attempts of requests that had several, counted from 1."""

# What the sums of a day are kept by. Who the people behind a caller are is not among it: they may be many.
KEYS = ("day", "caller_id", "key_id", "team", "model", "upstream", "upstream_model")
COUNTS = ("requests", "failed", "client_left", "interrupted", "estimated", "unpriced")
SUMS = (*COUNTS, *TOKENS, "cost")

prices_used = Table(
    "prices_used",
    metadata,
    Column("price_id", Text, primary_key=True),
    Column("source", Text, nullable=False),
    Column("rates", Text, nullable=False),
    Column("first_used", BigInteger, nullable=False),
)
"""What `price_id` of a row stands for. `rates`: JSON, USD per million tokens. A price never changes: another
one has another id.
"""

usage_daily = Table(
    "usage_daily",
    metadata,
    Column("day", Date, primary_key=True),
    *(Column(name, Text, primary_key=True) for name in KEYS[1:]),
    Column("caller", Text),
    *(Column(name, BigInteger, nullable=False) for name in SUMS),
    sqlite_with_rowid=False,
)
"""Sums of the rows of a day, changed in the transaction that adds them. A run after the first counts its
tokens, and no request.
"""

usage_users = Table(
    "usage_users",
    metadata,
    Column("day", Date, primary_key=True),
    Column("caller_id", Text, primary_key=True),
    Column("user_id", Text, primary_key=True),
    *(Column(name, BigInteger, nullable=False) for name in ("requests", "input", "output", "cost")),
    sqlite_with_rowid=False,
)
"""The same for the people behind callers, as far as anybody says who they are."""

versions = version_table("ledger_version", metadata)


def _create(connection: Connection) -> None:
    metadata.create_all(connection)


def _add_prices_used(connection: Connection) -> None:
    prices_used.create(connection, checkfirst=True)


def _index_responses_alone(connection: Connection) -> None:
    _OF_RESPONSES.drop(connection, checkfirst=True)
    _OF_RESPONSES.create(connection)


def _drop_index_of_callers(connection: Connection) -> None:
    connection.execute(text("DROP INDEX IF EXISTS ledger_of_caller"))


MIGRATIONS: Sequence[MigrationStep] = (
    _create,
    _add_prices_used,
    _index_responses_alone,
    _drop_index_of_callers,
)
