"""The store's tables, and how they came to be, version by version.

A response's row is small and changes often (its lease is renewed); what is large is written once, in tables
of its own. Times are Unix seconds.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    delete,
    inspect,
    literal,
    select,
    text,
    update,
)
from sqlalchemy.engine import Connection

from sluicegate.storage import migrate, version_table

metadata = MetaData()

responses = Table(
    "responses",
    metadata,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("background", Boolean, nullable=False),
    Column("previous_id", Text),
    Column("request_id", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("completed_at", Double),
    Column("expires_at", Double, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    # Background work.
    Column("queued_at", Double),
    Column("not_before", Double, nullable=False, default=0.0),
    Column("attempts", Integer, nullable=False, default=0),
    Column("cancelling", Boolean, nullable=False, default=False),
    Column("holder", Text),
    Column("lease_until", Double),
    Column("fence", Integer, nullable=False, default=0),
    # Who asked for it, beside its owner.
    Column("key_id", Text),
    Column("user_id", Text),
    Column("deadline", Double),
    Index("responses_waiting", "status", "owner", "queued_at"),
    Index("responses_held", "holder"),
    Index("responses_expiring", "expires_at"),
)
"""`fence` grows each time that somebody takes a response over: whoever comes with an older one writes
nothing."""

payloads = Table(
    "response_payloads",
    metadata,
    Column("response_id", Text, primary_key=True),
    Column("request", LargeBinary, nullable=False),
    Column("response", LargeBinary, nullable=False),
)
"""`request`: the client's body. `response`: the Response object, as it was made and, later, as it ended."""

events = Table(
    "response_events",
    metadata,
    Column("response_id", Text, primary_key=True),
    Column("first", BigInteger, primary_key=True, autoincrement=False),
    Column("last", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
)
"""Runs of events as they were sent; `first` and `last` are sequence numbers."""

items = Table(
    "response_items",
    metadata,
    Column("owner", Text, primary_key=True),
    Column("item_id", Text, primary_key=True),
    Column("response_id", Text, nullable=False),
    Index("response_items_of", "response_id"),
    Index("response_items_named", "item_id"),
)
"""Where to look an `item_reference` up."""

versions = version_table("response_store_version", metadata)


# PostgreSQL's indexes take no row larger than 2704 bytes, and some have an owner in front of the id.
_MAX_KEY_BYTES = 1024


def is_key(id: str) -> bool:
    """Whether an id can be one of the tables' keys: Unicode without NUL, which PostgreSQL refuses, and not
    longer than an index takes."""
    try:
        return "\0" not in id and len(id.encode()) <= _MAX_KEY_BYTES
    except UnicodeEncodeError:
        return False


Owners = Mapping[str, str]


def _create(connection: Connection, owners: Owners) -> None:
    metadata.create_all(connection)


def _name_owners_by_id(connection: Connection, owners: Owners) -> None:
    """What belonged to a name belongs to whoever has that name now, and to no name any more."""
    named: set[str] = set()
    for table in (responses, items):
        column = table.c.owner
        named |= set(connection.execute(select(column).where(column != "").distinct()).scalars())
        # First all: a name that looks like an owner must not be taken for one.
        connection.execute(update(table).where(column != "").values(owner=literal("name:") + column))
    for name in sorted(named & owners.keys()):
        old, new = f"name:{name}", owners[name]
        connection.execute(update(responses).where(responses.c.owner == old).values(owner=new))
        # Two names may be one owner now, and both may have sent the same item.
        there = select(items.c.item_id).where(items.c.owner == new)
        connection.execute(delete(items).where(items.c.owner == old, items.c.item_id.in_(there)))
        connection.execute(update(items).where(items.c.owner == old).values(owner=new))


def _add_who_asked(connection: Connection, owners: Owners) -> None:
    there = {column["name"] for column in inspect(connection).get_columns("responses")}
    for name in ("key_id", "user_id"):
        # A new store has them.
        if name not in there:
            connection.execute(text(f"ALTER TABLE responses ADD COLUMN {name} TEXT"))


def _add_deadline(connection: Connection, owners: Owners) -> None:
    there = {column["name"] for column in inspect(connection).get_columns("responses")}
    if "deadline" not in there:
        connection.execute(text("ALTER TABLE responses ADD COLUMN deadline DOUBLE PRECISION"))
    for index in items.indexes:
        index.create(connection, checkfirst=True)


MIGRATIONS: Sequence[Callable[[Connection, Owners], None]] = (
    _create,
    _name_owners_by_id,
    _add_who_asked,
    _add_deadline,
)


def bring_up(connection: Connection, owners: Owners) -> None:
    """Bring the store to this version, in the caller's transaction. Raises `StoreTooNew`.

    `owners`: who is meant by the names that the first version has for owners.
    """
    migrate(connection, versions, [partial(_with, step, owners) for step in MIGRATIONS])


def _with(step: Callable[[Connection, Owners], None], owners: Owners, connection: Connection) -> None:
    step(connection, owners)
