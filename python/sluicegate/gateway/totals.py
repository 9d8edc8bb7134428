"""What the ledger has of the totals that several machines count together."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, tzinfo
from functools import partial

from sluicegate.admission import Calendar, Total, used_by
from sluicegate.ledger import Ledger, Whose
from sluicegate.storage import StoreUnavailable
from sluicegate.telemetry import Log, where

RECALL_SECONDS = 2.0
# Subjects that one query asks for.
MOST_SUBJECTS = 1000

Sums = dict[str, int]
"""By the keys of the totals at the server."""


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

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        self._loop = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def ask(self, totals: Mapping[str, Total], then: Callable[[Sums | None], None]) -> None:
        """Any thread. `then` is called later, by the thread that decides; None: the ledger cannot be read."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._begin, totals, then)

    def _begin(self, totals: Mapping[str, Total], then: Callable[[Sums | None], None]) -> None:
        if self._loop is not None:
            task = self._loop.create_task(self._answer(totals, then))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, totals: Mapping[str, Total], then: Callable[[Sums | None], None]) -> None:
        sums: Sums | None = None
        try:
            async with asyncio.timeout(RECALL_SECONDS):
                sums = await self._sums(totals)
        except (TimeoutError, StoreUnavailable):
            pass  # The ledger's own task says so.
        except Exception as error:
            self._log.error("unhandled", at="limits", error=where(error))
        self._post(partial(then, sums))

    async def _sums(self, totals: Mapping[str, Total]) -> Sums:
        """Raises `StoreUnavailable`."""
        names = {(total.key, total.began): name for name, total in totals.items()}
        whose: dict[tuple[Calendar, int], list[str]] = {}
        for key, began in names:
            if key.window in ("day", "week", "month"):
                whose.setdefault((key.window, began), []).append(key.subject)
        sums: Sums = {}
        for (unit, began), subjects in whose.items():
            begins = {unit: datetime.fromtimestamp(began, self._zone).date()}
            for first in range(0, len(subjects), MOST_SUBJECTS):
                some = {*subjects[first : first + MOST_SUBJECTS]}
                for spent in await self._ledger.spent_by(begins, _whose(some)):
                    for key, amount in used_by(spent):
                        name = names.get((key, began))
                        if name is not None and key.subject in some:
                            sums[name] = sums.get(name, 0) + amount
        return sums


def _whose(subjects: Iterable[str]) -> Whose:
    """Whose rows have the sums of these subjects; where a name has colons in it, those of others, too."""
    found: dict[str, set[str]] = {"caller": set(), "key": set(), "team": set(), "user": set()}
    for subject in subjects:
        kind, _, id = subject.partition(":")
        found[kind].add(id)
    users = set()
    for user in found["user"]:
        parts = user.split(":")
        users |= {(":".join(parts[:at]), ":".join(parts[at:])) for at in range(2, min(len(parts), 6))}
    return Whose(found["caller"], found["key"], found["team"], users)
