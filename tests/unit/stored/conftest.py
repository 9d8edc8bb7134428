"""One store, on SQLite and on PostgreSQL: whatever is promised is promised on both."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness import postgres
from harness.stored_stand import Upstream, worker
from sluicegate.config import StoreConfig
from sluicegate.responses import ResponseStore

Settings = Callable[..., StoreConfig]


@pytest.fixture(autouse=True)
async def _database_threads_end() -> AsyncIterator[None]:
    """A connection that is given up (its file is no database, say) ends a little later, on this loop."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        if "_connection_worker_thread" in thread.name:
            await asyncio.to_thread(thread.join, 10)
            assert not thread.is_alive(), "a connection was left open"


@contextmanager
def _place(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    if kind == "sqlite":
        yield {"path": str(tmp_path / "responses.db")}
        return
    with postgres.database(request.getfixturevalue("postgres_server")) as url:
        yield {"url": url}


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    """The configuration of a store of one's own, with changes."""
    with _place(request.param, request, tmp_path) as place:
        yield lambda **changes: StoreConfig(**{**place, **changes})


@pytest.fixture
async def start(settings: Settings) -> AsyncIterator[Callable[..., Any]]:
    """`await start(upstream, **changes)`: as many workers over the same store as a test needs."""
    async with AsyncExitStack() as workers:

        async def begin(upstream: Upstream | None = None, **changes: Any) -> ResponseStore:
            return await workers.enter_async_context(worker(upstream, settings(**changes)))

        yield begin


@pytest.fixture
def upstream() -> Upstream:
    """An upstream whose exchanges the test plays."""
    return Upstream()


@pytest.fixture
async def store(start: Callable[..., Any], upstream: Upstream) -> ResponseStore:
    """One worker with that upstream."""
    found = await start(upstream)
    assert isinstance(found, ResponseStore)
    return found
