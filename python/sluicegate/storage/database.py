"""The connection to a database: SQLite by default, PostgreSQL by its URL.

SQLite commits with `synchronous=NORMAL`, unless it is to be `durable`: whatever dies, processes included,
loses nothing that was committed; only when the machine itself loses power may the last moments be missing,
never half of something.
"""

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import SecretStr
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from sluicegate.storage.errors import Contended, StoreUnavailable, Unstorable

# How long a writer of one process waits for those of others.
BUSY_SECONDS = 5.0

# Those that a writer keeps prepared for their next use.
_WRITER_STATEMENTS = 32

# An advisory lock's number: processes that start together must not migrate together.
_MIGRATION_LOCK = 0x736C7569

# How SQLite says that pages are given back to the file system a few at a time.
_INCREMENTAL = 2


# Classes of PostgreSQL's error codes (its manual, appendix A): bad data, a constraint, more than a row or an
# index may hold; and a deadlock or a conflict with another transaction.
_CONTENT = ("22", "23", "54")
_ROLLED_BACK = "40"


_T = TypeVar("_T")

Statement = tuple[str, Iterable[Sequence[Any]]]
"""SQL in a driver's own words, and the tuples that it is run for."""

Write = Callable[[Sequence[Statement]], None]
"""Runs statements in a transaction of their own. What the driver raises is raised."""


class Database:
    """One process's connections. Nothing is opened, or made, before the first use."""

    def __init__(
        self, place: Path | SecretStr, migrate: Callable[[Connection], None], *, durable: bool = False
    ) -> None:
        """`place`: a SQLite file, or the URL of a PostgreSQL database.

        `migrate` is called once, in a transaction of its own, and brings the tables to this version.
        `durable`: what is committed outlives a power cut as well.
        """
        self.path: Path | None = place if isinstance(place, Path) else None
        """The SQLite file; None for a server."""
        if isinstance(place, Path):
            self._url = URL.create("sqlite+aiosqlite", database=str(place))
        else:
            self._url = make_url(place.get_secret_value()).set(drivername="postgresql+asyncpg")
        self._migrate = migrate
        self._durable = durable
        self._engines: tuple[AsyncEngine, AsyncEngine] | None = None
        self._writer: sqlite3.Connection | None = None
        self._writing = threading.Lock()
        self._opening = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()
        self.on_failure: Callable[[str, Exception], None] | None = None
        """Called with the operation and the cause each time that the store fails."""

    @property
    def exists(self) -> bool:
        """Whether there may be something in it: False only for a file that nobody has made yet."""
        return self.path is None or self.path.exists()

    @contextlib.asynccontextmanager
    async def transaction(self, operation: str) -> AsyncIterator[AsyncConnection]:
        """A transaction that writes; raises `StoreUnavailable`, and `Unstorable` and `Contended` among it."""
        with self._failures(operation):
            writing, _ = await self._opened()
            async with writing.begin() as connection:
                yield connection

    async def write(self, operation: str, work: Callable[[Write], None]) -> None:
        """Run `work`, which may write any number of transactions; raises as `transaction` does.

        With SQLite all of it is one step of a thread, and each statement of a `transaction` is three. With a
        server it is run on the event loop, which goes on while the server works.
        """
        with self._failures(operation):
            writing, _ = await self._opened()
            if self.path is not None:
                await asyncio.to_thread(self._write_to_file, self.path, work)
                return
            async with writing.connect() as connection:
                await connection.run_sync(_write_to_server, work)

    def _write_to_file(self, path: Path, work: Callable[[Write], None]) -> None:
        with self._writing:
            if self._writer is None:
                self._writer = self._connected(path)
            writer = self._writer

            def write(statements: Sequence[Statement]) -> None:
                writer.execute("BEGIN IMMEDIATE")
                try:
                    for sql, rows in statements:
                        writer.executemany(sql, rows)
                    writer.execute("COMMIT")
                except BaseException:
                    writer.rollback()
                    raise

            work(write)

    def _connected(self, path: Path) -> sqlite3.Connection:
        # Threads take turns with it. A statement that adds many rows is large, and batches differ in theirs.
        connection = sqlite3.connect(
            path, BUSY_SECONDS, check_same_thread=False, cached_statements=_WRITER_STATEMENTS
        )
        try:
            self._prepare(connection, None)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextlib.asynccontextmanager
    async def read(self, operation: str) -> AsyncIterator[AsyncConnection]:
        """A connection for statements that only read, each for itself; raises `StoreUnavailable`."""
        with self._failures(operation):
            _, reading = await self._opened()
            async with reading.connect() as connection:
                yield connection

    async def dedicated(self, operation: str) -> AsyncConnection:
        """A connection that belongs to nobody else; whoever asked closes it. Raises `StoreUnavailable`."""
        with self._failures(operation):
            await self._opened()
            engine = create_async_engine(self._url, poolclass=NullPool, hide_parameters=True)
            return await engine.connect()

    async def undisturbed(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of `work`, which ends by itself even if whoever waits for it is cancelled.

        A connection whose statement is cancelled is lost, and with SQLite its thread.
        """
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        if self._under_way:
            await asyncio.wait(self._under_way)
        engines, self._engines = self._engines, None
        for engine in engines or ():
            with contextlib.suppress(SQLAlchemyError, OSError):
                await engine.dispose()
        await asyncio.to_thread(self._close_writer)

    def _close_writer(self) -> None:
        with self._writing, contextlib.suppress(sqlite3.Error):
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.close()

    @contextlib.contextmanager
    def _failures(self, operation: str) -> Iterator[None]:
        try:
            yield
        except UnicodeError as error:
            raise Unstorable(type(error).__name__) from None
        except (SQLAlchemyError, sqlite3.Error, OSError) as error:
            cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
            if _blames_content(cause):
                # Its words may repeat what was to be written.
                raise Unstorable(type(cause.__cause__ or cause).__name__) from None
            if self.on_failure is not None:
                self.on_failure(operation, cause if isinstance(cause, Exception) else error)
            kind = Contended if _sqlstate(cause).startswith(_ROLLED_BACK) else StoreUnavailable
            # The driver's own words: SQLAlchemy's repeat the statement, and what was in it.
            raise kind(f"{type(cause).__name__}: {cause}") from None
        except StoreUnavailable as error:
            if self.on_failure is not None and not isinstance(error, Unstorable):
                self.on_failure(operation, error)
            raise

    async def _opened(self) -> tuple[AsyncEngine, AsyncEngine]:
        if self._engines is not None:
            return self._engines
        async with self._opening:
            if self._engines is None:
                self._engines = await self._open()
            return self._engines

    async def _open(self) -> tuple[AsyncEngine, AsyncEngine]:
        if self.path is not None:
            _make_file(self.path)
        # One writer a process: SQLite has one at a time, and the writes of a process come in batches anyway.
        writing = self._engine(pool_size=1, max_overflow=1)
        reading = self._engine(
            pool_size=4, max_overflow=4, isolation_level="AUTOCOMMIT", skip_autocommit_rollback=True
        )
        if self.path is not None:
            event.listen(writing.sync_engine, "begin", _begin_immediately)
        try:
            async with writing.begin() as connection:
                if self.path is None:
                    await connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
                await connection.run_sync(self._migrate)
        except BaseException:
            await writing.dispose()
            await reading.dispose()
            raise
        return writing, reading

    def _engine(self, **options: Any) -> AsyncEngine:
        if self.path is None:
            return create_async_engine(self._url, pool_pre_ping=True, hide_parameters=True, **options)
        # A statement that is kept for its next use keeps a copy of what it wrote last, up to a response.
        connecting = {"timeout": BUSY_SECONDS, "cached_statements": 0}
        engine = create_async_engine(self._url, connect_args=connecting, hide_parameters=True, **options)
        event.listen(engine.sync_engine, "connect", self._prepare)
        return engine

    def _prepare(self, connection: Any, record: Any) -> None:
        # The driver begins no transactions by itself then.
        connection.isolation_level = None
        cursor = connection.cursor()
        # Only an empty file takes this one; any other is written all the same, and that a full disk refuses.
        cursor.execute("PRAGMA auto_vacuum")
        if cursor.fetchone() != (_INCREMENTAL,):
            cursor.execute("PRAGMA auto_vacuum=INCREMENTAL")
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute(f"PRAGMA synchronous={'FULL' if self._durable else 'NORMAL'}")
        cursor.close()


def _write_to_server(connection: Connection, work: Callable[[Write], None]) -> None:
    def write(statements: Sequence[Statement]) -> None:
        with connection.begin():
            for sql, rows in statements:
                connection.exec_driver_sql(sql, [*rows])

    work(write)


def _blames_content(cause: BaseException) -> bool:
    """Whether a statement was refused for what is in it, so that the same store takes others."""
    if isinstance(cause, sqlite3.Error):
        # `ProgrammingError` is also that of a connection that is closed.
        return isinstance(cause, sqlite3.DataError | sqlite3.IntegrityError) or "binding" in str(cause)
    # asyncpg refuses what it cannot encode with an error that is a `ValueError`, too.
    return _sqlstate(cause).startswith(_CONTENT) or isinstance(cause.__cause__, ValueError)


def _sqlstate(cause: BaseException) -> str:
    return getattr(cause, "sqlstate", None) or ""


def _make_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # What is in it is nobody else's business. SQLite gives its other files the same mode.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _begin_immediately(connection: Connection) -> None:
    # A transaction that first reads and then writes could not wait for another's end otherwise.
    connection.exec_driver_sql("BEGIN IMMEDIATE")
