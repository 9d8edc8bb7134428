"""Loading what is stored: within a bound of bytes for all requests together, which callers share.

Whoever loads something takes room for it first, and waits for its turn where there is none. No caller who has
some room already gets more than it leaves to others (`LoadRoom`), and of each caller one request at a time
waits for room, in the order in which they came: so a caller with many requests holds up its own.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from types import TracebackType
from typing import Any, Self, TypeVar

from sluicegate._core import LoadRoom, LoadShare
from sluicegate.responses.errors import LoadingBusy

PATIENCE_SECONDS = 10.0
"""How long a request waits for room."""

# What is stored is there in so many forms at most while it is used: as it is stored, as what is made of that,
# and as what an upstream is sent of it.
_FORMS = 3

# What is no larger is not counted: the number of requests bounds what such things take together.
_SMALL_BYTES = 16 * 1024

# Room is given back by the threads that move bytes, which tell nobody.
_LOOK_AGAIN_SECONDS = 0.02

_T = TypeVar("_T")


class _Turn:
    """The requests of one caller that wait for room, one after the other."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0


class _Loaded:
    """What several requests of one caller have loaded, for as long as one of them has it."""

    def __init__(self, task: "asyncio.Task[Any]") -> None:
        self.task = task
        self.holders = 0


class Loading:
    """For the event loop."""

    def __init__(self, most: int, patience: float = PATIENCE_SECONDS) -> None:
        """`most`: bytes of all that is loaded; `patience`: seconds that a request waits for room."""
        self.room = LoadRoom(most)
        self.patience = patience
        self._turns: dict[str, _Turn] = {}
        self._loaded: dict[Hashable, _Loaded] = {}

    def hold(self, owner: str) -> "Hold":
        """What one request of `owner` loads."""
        return Hold(self, owner)

    async def take(self, owner: str, size: int) -> LoadShare:
        """Room for `size` bytes. Raises `LoadingBusy` where there is none in time."""
        if owner not in self._turns and (share := self.room.take(owner, size)) is not None:
            return share
        try:
            async with asyncio.timeout(self.patience), self._turn(owner):
                while (share := self.room.take(owner, size)) is None:  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_AGAIN_SECONDS)
                return share
        except TimeoutError:
            raise LoadingBusy from None

    @contextlib.asynccontextmanager
    async def _turn(self, owner: str) -> AsyncIterator[None]:
        turn = self._turns.setdefault(owner, _Turn())
        turn.waiting += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                del self._turns[owner]

    async def load(self, key: Hashable, work: Callable[[], Awaitable[_T]]) -> _T:
        """What `work` gives, or has given to somebody who still has it. `drop` has to follow."""
        found = self._loaded.get(key)
        if found is None:
            found = self._loaded[key] = _Loaded(asyncio.ensure_future(work()))
        found.holders += 1
        # Whoever is cancelled leaves it to the others.
        result: _T = await asyncio.shield(found.task)
        return result

    def drop(self, key: Hashable) -> None:
        """Somebody who had `load` it has it no more."""
        found = self._loaded[key]
        found.holders -= 1
        if not found.holders:
            del self._loaded[key]


class Hold:
    """What one request holds of what is loaded, until its end (`with`)."""

    def __init__(self, loading: Loading, owner: str) -> None:
        self._loading = loading
        self._owner = owner
        self._keys: list[Hashable] = []
        self.share: LoadShare | None = None
        """What it has taken; None for what is small."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    async def take(self, size: int) -> None:
        """Take room for what is stored in `size` bytes, and for what is made of it, in place of what it has.

        Raises `LoadingBusy`.
        """
        self.release()
        if size > _SMALL_BYTES:
            self.share = await self._loading.take(self._owner, _FORMS * size)

    async def load(self, key: Hashable, work: Callable[[], Awaitable[_T]]) -> _T:
        """What `work` gives; requests of one caller with the same `key` at the same time share it."""
        key = self._owner, key
        self._keys.append(key)
        return await self._loading.load(key, work)

    def release(self) -> None:
        """Hold nothing more. Idempotent."""
        keys, self._keys = self._keys, []
        for key in keys:
            self._loading.drop(key)
        share, self.share = self.share, None
        if share is not None:
            share.release()
