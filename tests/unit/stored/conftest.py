"""One store, on SQLite and on PostgreSQL: whatever is promised is promised on both."""

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


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    with postgres.server() as url:
        yield url


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
