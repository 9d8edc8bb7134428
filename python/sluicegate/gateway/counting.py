"""Counters that several machines share: the event loop asks their server for the thread that decides."""

import asyncio
import contextlib
import time
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from sluicegate.admission import (
    MOST,
    SESSIONS,
    SETTLE,
    TAKE,
    Ask,
    Calendar,
    Changes,
    Place,
    SharedCounters,
    Total,
    used_by,
)
from sluicegate.ledger import Ledger, Whose
from sluicegate.storage import RedisFailed, RedisScript, RedisScripts, ScriptCall, StoreUnavailable
from sluicegate.telemetry import CountersMetrics, Log, where

# The scripts count what a gateway holds for 15 s after they last heard of it.
BEAT_SECONDS = 3.0
FEWER_SECONDS = 30.0
LOST_AFTER = 3
PROBE_SECONDS = 1.0
# How often the totals of days, weeks and months are raised to the ledger's.
RAISE_SECONDS = 5.0
RECALL_SECONDS = 2.0
CLOSE_SECONDS = 1.0

# Of one call: the server does nothing else meanwhile.
MOST_ASKS = 256
MOST_CHANGES = 1000
# What is owed while the server is away. Past it the oldest goes: it will not count for long.
MOST_OWED = 100_000
# Subjects that one query asks for.
MOST_SUBJECTS = 1000

# A request is asked for so often, where the counters are not there yet, or the session is not.
_TRIES = 3
# Totals are kept for so long after their window.
_GRACE_SECONDS = 3600


class _Batch(NamedTuple):
    """What was sent together."""

    number: int
    changes: Mapping[Place, int]
    asks: Sequence[Ask]


class Counting:
    """For the event loop, but for what says otherwise.

    Calls are made within a session. One that fails ends it: the next session asks what was done in the one
    before, closes it, so that nothing of it is done later, and says anew what this gateway holds. So nothing
    is counted twice, and nothing is held for good, whenever the server stops to answer.
    """

    def __init__(
        self,
        counters: SharedCounters,
        scripts: RedisScripts,
        post: Callable[[Callable[[], None]], None],
        ledger: Ledger | None,
        log: Log,
        metrics: CountersMetrics,
    ) -> None:
        """`post` has a step run by the thread that decides."""
        self._counters = counters
        self._scripts = scripts
        self._post = post
        self._ledger = ledger
        self._log = log
        self._metrics = metrics
        self._take, self._settle = RedisScript(TAKE), RedisScript(SETTLE)
        counters.ask, counters.tell = self.ask, self.tell

        self._asks: deque[Ask] = deque()
        self._told: deque[Changes] = deque()
        self._owed: dict[Place, int] = {}
        """What the server has not been told."""
        self._raises: dict[Place, int] = {}
        """What totals are to be raised to."""
        self._held: dict[str, int] = {}
        """What runs here, by its counter."""
        self._missing: list[Ask] = []
        self._touched: dict[str, Total] = {}
        """Totals that were asked for lately."""

        self._process = uuid.uuid4().hex[:16]
        self._sessions = 0
        """Those that were opened."""
        self._open = False
        self._number = 0
        self._unsure: _Batch | None = None
        """What was sent, and not answered."""
        self._failures = 0
        self._probed = self._heard = self._last = self._many = 0.0
        """When the server was last asked, was last told that this gateway is there, last answered, and last
        knew of as many gateways as are believed to be there.
        """

        self._loop: asyncio.AbstractEventLoop | None = None
        self._wanted = asyncio.Event()
        self._woken = self._stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: asyncio.Task[None] | None = None
        self._recalling: asyncio.Task[None] | None = None

    # === for any thread ===

    def ask(self, ask: Ask) -> None:
        """Ask the server; what it says is posted."""
        self._asks.append(ask)
        self._wake()

    def tell(self, changes: Changes) -> None:
        """Tell the server, as soon as it is there."""
        self._told.append(changes)
        self._wake()

    def _wake(self) -> None:
        if not self._woken and self._loop is not None:
            self._woken = True
            self._loop.call_soon_threadsafe(self._wanted.set)

    # === life ===

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._running = self._begin(self._run())
        if self._ledger is not None:
            self._begin(self._keep_raising(self._ledger))

    async def close(self) -> None:
        """Tell the server the rest, for a while. For when no request runs any more."""
        self._stopping = True
        self._wanted.set()
        if self._running is not None:
            await asyncio.wait((self._running,), timeout=CLOSE_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._loop = None
        await self._scripts.close()

    def _begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # === asking ===

    async def _run(self) -> None:
        while True:
            await self._rest()
            self._woken = False
            self._wanted.clear()
            stopping = self._stopping
            asks = [self._asks.popleft() for _ in range(min(len(self._asks), MOST_ASKS))]
            lost = self._counters.lost
            try:
                self._note()
                if lost and not stopping and time.monotonic() - self._probed < PROBE_SECONDS:
                    self._fail(asks)
                    continue
                self._probed = time.monotonic()
                if not self._open:
                    await self._open_session()
                await self._exchange(asks)
            except RedisFailed as error:
                self._failed(str(error), asks)
            except Exception as error:
                # An answer that nobody would expect of these scripts.
                self._failed(where(error), asks)
            else:
                self._answered()
            if stopping and (self._failures or not (self._told or self._owed)):
                return

    async def _rest(self) -> None:
        """Until there is something to do."""
        if self._stopping or (
            (self._asks or self._told or self._owed or self._raises) and not self._counters.lost
        ):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PROBE_SECONDS if self._counters.lost else BEAT_SECONDS):
                await self._wanted.wait()

    async def _exchange(self, asks: Sequence[Ask]) -> None:
        """Send what waits, all at once, and hand the answers on."""
        changes = self._next_changes()
        self._number += 1
        head = (self._session, self._number)
        calls = []
        if changes or time.monotonic() - self._heard >= BEAT_SECONDS:
            calls.append(_settling(self._settle, head, "", changes))
        calls += [ScriptCall(self._take, (SESSIONS, *ask.keys), (*head, *ask.arguments)) for ask in asks]
        if not calls:
            return
        self._unsure = _Batch(self._number, changes, asks)
        began = time.monotonic()
        answers = await self._scripts.run(calls)
        self._metrics.called(time.monotonic() - began)
        self._unsure = None
        if len(calls) > len(asks):
            verdict, *rest = answers.pop(0)
            if verdict == b"gone":
                self._open = False
                self._owe(changes)
            else:
                self._hear(rest[1])
        self._hand_on(asks, answers)

    def _hand_on(self, asks: Sequence[Ask], answers: Sequence[Any]) -> None:
        found: list[Callable[[], None]] = []
        failed: list[Ask] = []
        for ask, (said, *rest) in zip(asks, answers, strict=True):
            verdict = said.decode()
            if verdict in ("gone", "missing"):
                ask.tries += 1
                if ask.tries > _TRIES:
                    failed.append(ask)
                elif verdict == "gone":
                    self._open = False
                    self._asks.appendleft(ask)
                else:
                    self._missing.append(ask)
                continue
            at, texts = float(rest[0]), rest[1:]
            self._touched |= ask.totals
            if verdict == "taken":
                for place, amount in ask.taken(at):
                    if place.kind == "held":
                        self._held[place.name] = self._held.get(place.name, 0) + amount
            found.append(partial(ask.answered, verdict, at, texts))
        if found:
            self._post(partial(self._each, found))
        self._fail(failed)
        if self._missing and self._recalling is None:
            self._recalling = self._begin(self._recall())

    def _fail(self, asks: Sequence[Ask]) -> None:
        if asks:
            self._post(partial(self._each, [ask.failed for ask in asks]))

    def _each(self, steps: Sequence[Callable[[], None]]) -> None:
        """On the thread that decides, which nothing here may end."""
        for step in steps:
            try:
                step()
            except Exception as error:
                self._log.error("unhandled", at="limits", error=where(error))

    # === what is owed ===

    def _note(self) -> None:
        """Add what was told to what is owed."""
        while self._told:
            for held in self._told.popleft():
                place, amount = Place.of(held), max(-MOST, min(held.amount, MOST))
                if place.kind == "held":
                    self._hold(place.name, amount)
                self._owe({place: amount})
        for place in list(islice(self._owed, max(0, len(self._owed) - MOST_OWED))):
            del self._owed[place]

    def _hold(self, name: str, amount: int) -> None:
        running = self._held.get(name, 0) + amount
        if running > 0:
            self._held[name] = running
        else:
            self._held.pop(name, None)

    def _owe(self, changes: Mapping[Place, int]) -> None:
        for place, amount in changes.items():
            if place.kind == "raise":
                self._raises[place] = max(amount, self._raises.get(place, 0))
                continue
            amount += self._owed.pop(place, 0)
            if amount:
                self._owed[place] = amount

    def _next_changes(self) -> dict[Place, int]:
        found: dict[Place, int] = {}
        for waiting in (self._raises, self._owed):
            for place in list(islice(waiting, MOST_CHANGES - len(found))):
                found[place] = waiting.pop(place)
        return found

    # === sessions ===

    @property
    def _session(self) -> str:
        return f"{self._process}:{self._sessions}"

    async def _open_session(self) -> None:
        follows, following = self._session, f"{self._process}:{self._sessions + 1}"
        [answer] = await self._scripts.run([_settling(self._settle, (following, 0), follows, {})])
        _, _, live, before = answer
        self._sessions += 1
        self._open = True
        unsure, self._unsure = self._unsure, None
        if unsure is not None:
            self._make_up(unsure, before.decode())
        lasted = self._counters.lost and self._ledger is not None
        self._owed = {
            place: amount
            for place, amount in self._owed.items()
            # What runs is said anew. What days have used meanwhile comes from the ledger, to which another
            # gateway may have raised it already.
            if not (place.kind == "held" or (lasted and place.kind == "total" and amount > 0))
        }
        self._owe({Place(name, "held", 0): running for name, running in self._held.items()})
        self._hear(live)

    def _make_up(self, unsure: _Batch, record: str) -> None:
        """Of `unsure`, the server has done what the session's record says, and will do no more."""
        beat, number, marks = [*record.removeprefix("closed ").split(" "), "", "", ""][:3]
        if number != str(unsure.number):
            marks = ""
        if "s" not in marks:
            self._owe(unsure.changes)
        for ask, mark in zip(unsure.asks, marks.replace("s", ""), strict=False):
            if mark == "t":
                # It was answered otherwise meanwhile.
                self._owe({place: -amount for place, amount in ask.taken(float(beat))})

    def _hear(self, live: int) -> None:
        self._heard = now = time.monotonic()
        self._metrics.gateways(live)
        # A server that was away does not know at once who is there.
        if live >= self._counters.gateways or now - self._many >= FEWER_SECONDS:
            self._counters.gateways = live
            self._many = now

    def _answered(self) -> None:
        self._failures = 0
        if self._counters.lost:
            self._counters.lost = False
            self._metrics.lost(False)
            self._log.info("counters_found", seconds=round(time.monotonic() - self._last, 1))
        self._last = time.monotonic()

    def _failed(self, reason: str, asks: Sequence[Ask]) -> None:
        self._open = False
        self._failures += 1
        self._metrics.failed()
        counters = self._counters
        if self._failures >= LOST_AFTER and not counters.lost:
            counters.lost = True
            self._metrics.lost(True)
            self._log.warning("counters_lost", reason=reason, limits=counters.when_lost)
        if counters.lost:
            asks = [*asks, *self._asks]
            self._asks.clear()
        self._fail(asks)

    # === the ledger ===

    async def _recall(self) -> None:
        """Have totals made that the server does not have, and ask for their requests again."""
        while self._missing:
            asks, self._missing = self._missing, []
            totals = {name: total for ask in asks for name, total in ask.totals.items()}
            # Where there is no ledger to be read, what this gateway knows is better than nothing.
            sums = {name: total.known for name, total in totals.items()}
            if self._ledger is not None:
                try:
                    sums = await self._sums(self._ledger, totals)
                except Exception as error:
                    self._log.warning("limits_not_recalled", reason=where(error))
            for name, total in totals.items():
                self._raise(name, total, sums.get(name, 0))
            self._asks.extendleft(reversed(asks))
            self._wanted.set()
        self._recalling = None

    async def _keep_raising(self, ledger: Ledger) -> None:
        """What was shipped to the ledger counts, whatever the server has lost."""
        while not self._stopping:
            await asyncio.sleep(RAISE_SECONDS)
            touched, self._touched = self._touched, {}
            try:
                for name, amount in (await self._sums(ledger, touched)).items():
                    self._raise(name, touched[name], amount)
                self._wanted.set()
            except (TimeoutError, StoreUnavailable):
                pass  # The ledger's own task says so.
            except Exception as error:
                self._log.error("unhandled", at="limits", error=where(error))

    def _raise(self, name: str, total: Total, amount: int) -> None:
        self._owe({Place(name, "raise", int(total.ends) + _GRACE_SECONDS): min(amount, 2**62)})

    async def _sums(self, ledger: Ledger, totals: Mapping[str, Total]) -> dict[str, int]:
        """What the ledger has of `totals`, by their keys. Raises `TimeoutError` and `StoreUnavailable`."""
        names = {(total.key, total.began): name for name, total in totals.items()}
        whose: dict[tuple[Calendar, int], list[str]] = {}
        for key, began in names:
            if key.window in ("day", "week", "month"):
                whose.setdefault((key.window, began), []).append(key.subject)
        sums: dict[str, int] = {}
        async with asyncio.timeout(RECALL_SECONDS):
            for (unit, began), subjects in whose.items():
                begins = {unit: datetime.fromtimestamp(began, self._counters.zone).date()}
                for first in range(0, len(subjects), MOST_SUBJECTS):
                    some = {*subjects[first : first + MOST_SUBJECTS]}
                    for spent in await ledger.spent_by(begins, _whose(some)):
                        for key, amount in used_by(spent):
                            name = names.get((key, began))
                            if name is not None and key.subject in some:
                                sums[name] = sums.get(name, 0) + amount
        return sums


def _settling(
    script: RedisScript, head: tuple[str, int], follows: str, changes: Mapping[Place, int]
) -> ScriptCall:
    arguments: list[str | int] = []
    for place, amount in changes.items():
        arguments += [place.kind, place.place, amount]
    return ScriptCall(script, (SESSIONS, *(place.name for place in changes)), (*head, follows, *arguments))


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
