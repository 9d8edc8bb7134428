"""What the ledger has of windows that are made, and of the totals that several machines share."""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from datetime import datetime, tzinfo
from functools import partial
from typing import Any, TypeVar

from sluicegate.admission import (
    Calendar,
    CounterKey,
    Recalled,
    Spending,
    Total,
    begins,
    owner_and_user,
    used_by,
)
from sluicegate.ledger import Ledger, Whose
from sluicegate.storage import StoreUnavailable
from sluicegate.telemetry import Log, where

# A request that waits for this has waited for its turn already, and is not to wait until it is given up.
SEED_SECONDS = 15.0
"""With the rest that the ledger has between two questions."""
RECALL_SECONDS = 2.0
# Subjects that one query asks for.
MOST_SUBJECTS = 1000

# Rows of the last hour are looked through from end to end. Whoever makes up users must not keep the database
# busy with that: it rests for so many times as long as it took.
_REST = 4
_LONGEST_REST_SECONDS = 5.0

Sums = dict[str, int]
"""By the keys of the totals at the server."""

_T = TypeVar("_T")


class LedgerTotals:
    """For the event loop, but for what says otherwise."""

    def __init__(
        self, ledger: Ledger, zone: tzinfo, post: Callable[[Callable[[], None]], None], log: Log
    ) -> None:
        """`post` has a step run by the thread that decides."""
        self._ledger = ledger
        self._zone = zone
        self._post = post
        self._log = log
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._lost = False
        """The ledger did not answer `recall`."""
        self._rested = 0.0
        """Until when no rows of the last hour are looked for, on the monotonic clock."""

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        self._loop = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def ask(self, totals: Mapping[str, Total], then: Callable[[Sums | None], None]) -> None:
        """Any thread. `then` is called later, by the thread that decides; None: the ledger cannot be read."""
        self._begin(lambda: self._sums(totals), RECALL_SECONDS, 0.0, then)

    def recall(
        self, keys: Collection[CounterKey], after: float, then: Callable[[Recalled | None], None]
    ) -> None:
        """Any thread. `then` is called with what was used of these windows, `after` so many seconds at least,
        as `ask` has it: one call at a time.
        """

        def told(found: Recalled | None) -> None:
            if found is None and not self._lost:
                self._log.warning("limits_not_recalled", reason="the ledger did not answer")
            elif found is not None and self._lost:
                self._log.info("limits_recalled")
            self._lost = found is None
            then(found)

        self._begin(lambda: self._recalled(keys), SEED_SECONDS, after, told)

    def _begin(
        self,
        asked: Callable[[], Coroutine[Any, Any, _T]],
        seconds: float,
        after: float,
        then: Callable[[_T | None], None],
    ) -> None:
        def begin() -> None:
            if self._loop is not None:
                task = self._loop.create_task(self._answer(asked, seconds, after, then))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

        if self._loop is not None:
            self._loop.call_soon_threadsafe(begin)

    async def _answer(
        self,
        asked: Callable[[], Coroutine[Any, Any, _T]],
        seconds: float,
        after: float,
        then: Callable[[_T | None], None],
    ) -> None:
        await asyncio.sleep(after)
        found: _T | None = None
        try:
            async with asyncio.timeout(seconds):
                await self._ledger.caught_up()
                found = await asked()
        except (TimeoutError, StoreUnavailable):
            pass  # The ledger's own task says so.
        except Exception as error:
            self._log.error("unhandled", at="limits", error=where(error))
        self._post(partial(then, found))

    async def _recalled(self, keys: Collection[CounterKey]) -> Recalled:
        """Raises `StoreUnavailable`."""
        models = {key.model for key in keys}
        wanted = frozenset(keys)
        now = time.time()
        found: dict[tuple[CounterKey, float], int] = {}

        def add(spent: Iterable[Spending]) -> None:
            for each in spent:
                for key, amount in used_by(each, models):
                    if key in wanted:
                        found[key, each.at] = amount + found.get((key, each.at), 0)

        for unit, begin in begins(self._zone, now).items():
            whose = _whose(key.subject for key in keys if key.window == unit)
            add(await self._ledger.spent_by({unit: begin}, whose))
        whose = _whose(key.subject for key in keys if key.window in ("minute", "hour"))
        if any(whose):
            await asyncio.sleep(self._rested - time.monotonic())
            began = time.monotonic()
            add(await self._ledger.spent_lately(whose, now))
            ended = time.monotonic()
            self._rested = ended + min(_REST * (ended - began), _LONGEST_REST_SECONDS)
        return found

    async def _sums(self, totals: Mapping[str, Total]) -> Sums:
        """Raises `StoreUnavailable`."""
        names = {(total.key, total.began): name for name, total in totals.items()}
        models = {total.key.model for total in totals.values()}
        whose: dict[tuple[Calendar, int], list[str]] = {}
        for key, began in names:
            if key.window in ("day", "week", "month"):
                whose.setdefault((key.window, began), []).append(key.subject)
        sums: Sums = {}
        for (unit, began), subjects in whose.items():
            began_on = {unit: datetime.fromtimestamp(began, self._zone).date()}
            for first in range(0, len(subjects), MOST_SUBJECTS):
                some = {*subjects[first : first + MOST_SUBJECTS]}
                for spent in await self._ledger.spent_by(began_on, _whose(some)):
                    for key, amount in used_by(spent, models):
                        name = names.get((key, began))
                        if name is not None and key.subject in some:
                            sums[name] = sums.get(name, 0) + amount
        return sums


def _whose(subjects: Iterable[str]) -> Whose:
    """Whose rows have the sums of these subjects."""
    found: dict[str, set[str]] = {"caller": set(), "key": set(), "team": set(), "user": set()}
    for subject in subjects:
        kind, _, id = subject.partition(":")
        found[kind].add(id)
    users = {owner_and_user(id) for id in found["user"]}
    return Whose(found["caller"], found["key"], found["team"], users)
