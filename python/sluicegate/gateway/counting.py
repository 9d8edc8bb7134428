"""Counters that several machines share: the thread that decides asks their server, and waits for nothing."""

import select
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import Any, Literal, NamedTuple

from sluicegate.admission import MOST, SESSIONS, SETTLE, TAKE, Ask, Changes, Place, SharedCounters, Total
from sluicegate.gateway.totals import LedgerTotals, Sums
from sluicegate.storage import RedisConnection, RedisConnector, RedisFailed, RedisScript, ScriptCall
from sluicegate.telemetry import CountersMetrics, Log, where

# The scripts count what a gateway holds for 15 s after they last heard of it.
BEAT_SECONDS = 3.0
FEWER_SECONDS = 30.0
LOST_AFTER = 3
PROBE_SECONDS = 1.0
# How often the totals of days, weeks and months are raised to the ledger's.
RAISE_SECONDS = 5.0
CLOSE_SECONDS = 1.0
# Of what is left to be sent where the system takes no more at once.
_SEND_SECONDS = 0.002

# That wait for their answers: the server does nothing else meanwhile, and remembers what became of each.
MOST_CALLS = 256
MOST_CHANGES = 1000
# What is owed while the server is away. Past it the oldest goes: it will not count for long.
MOST_OWED = 100_000

# A request is asked for so often, where the counters are not there yet, or the session is not.
_TRIES = 3
# Totals are kept for so long after their window.
_GRACE_SECONDS = 3600


class _Sent(NamedTuple):
    """A call that waits for its answer."""

    at: float
    kind: Literal["open", "settle", "take"]
    changes: Mapping[Place, int]
    ask: Ask | None


class _Unsure(NamedTuple):
    """Calls of a session that is over, which were never answered."""

    burst: int
    answered: int
    """Calls of the same burst before these."""
    calls: Sequence[_Sent]


class Counting:
    """For the thread that decides, but for what says otherwise. No method waits but `close`.

    Calls are made within a session, and as soon as they are wanted: those that wait for their answers at the
    same time are a burst, of which the server remembers in their order what became of them. A call that fails
    ends the session: the next one asks what was done in the one before, closes it, so that nothing of it is
    done later, and says anew what this gateway holds. So nothing is counted twice, and nothing is held for
    good, whenever the server stops to answer.
    """

    def __init__(
        self,
        counters: SharedCounters,
        connector: RedisConnector,
        totals: LedgerTotals | None,
        log: Log,
        metrics: CountersMetrics,
    ) -> None:
        self._counters = counters
        self._connector = connector
        self._totals = totals
        self._log = log
        self._metrics = metrics
        self._take, self._settle = RedisScript(TAKE), RedisScript(SETTLE)

        self._asks: deque[Ask] = deque()
        self._told: deque[Changes] = deque()
        counters.ask, counters.tell = self._asks.append, self._told.append
        self._owed: dict[Place, int] = {}
        """What the server has not been told."""
        self._raises: dict[Place, int] = {}
        """What totals are to be raised to."""
        self._held: dict[str, int] = {}
        """What runs here, by its counter."""
        self._missing: list[Ask] = []
        self._recalling = False
        self._touched: dict[str, Total] = {}
        """Totals that were asked for lately."""
        self._raised = time.monotonic()

        self._connecting: Future[RedisConnection] | None = None
        self._connection: RedisConnection | None = None
        self._began = self._patience = 0.0
        """When a connection was begun, and when it is given up."""
        self._process = uuid.uuid4().hex[:16]
        self._sessions = 0
        """Those that were opened."""
        self._open = False
        self._burst = self._answered = 0
        """Its number, and how many of its calls were done."""
        self._sent: deque[_Sent] = deque()
        self._unsure: _Unsure | None = None
        self._failures = 0
        self._beat = self._many = 0.0
        """When the server was last told that this gateway is there, and last knew of as many gateways as are
        believed to be there.
        """
        self._last = time.monotonic()
        """When the server last answered; before it ever has, when it was first to be asked."""
        self._stopping = False
        self.start(lambda: None, lambda fd: None, lambda fd: None)

    # === for whoever runs the thread that decides ===

    def start(
        self, wake: Callable[[], None], watch: Callable[[int], object], unwatch: Callable[[int], object]
    ) -> None:
        """`wake` has `receive` and `send` called soon, from any thread; so has `watch`, whenever this file
        descriptor is readable, until `unwatch`.
        """
        self._wake = wake
        self._watch = watch
        self._unwatch = unwatch

    @property
    def wait(self) -> float:
        """Seconds after which `receive` and `send` are to be called, whatever happens."""
        now = time.monotonic()
        if self._connecting is not None:
            until = self._patience
        elif self._connection is None:
            until = self._began + PROBE_SECONDS if self._counters.lost else self._next_beat(now)
        elif self._connection.is_sending:
            until = now + _SEND_SECONDS
        elif self._sent:
            until = self._sent[0].at + self._connector.deadline
        else:
            until = self._next_beat(now)
        return max(0.0, until - now)

    def receive(self) -> None:
        """Hand on what the server has answered."""
        connection = self._connection
        if connection is None:
            return
        try:
            for answer in connection.receive():
                # It stays where it is until it is understood.
                self._understand(self._sent[0], answer)
        except RedisFailed as error:
            self._failed(str(error))
        except Exception as error:
            # An answer that nobody would expect of these scripts.
            self._failed(where(error))
        else:
            if self._sent and time.monotonic() - self._sent[0].at >= self._connector.deadline:
                self._failed(f"it did not answer within {self._connector.deadline} s")

    def send(self) -> None:
        """Ask and tell the server what waits for that, with one write."""
        try:
            self._note()
            self._recall()
            if self._connection is None:
                self._connect()
            if self._connection is not None:
                self._send(self._connection)
        except RedisFailed as error:
            self._failed(str(error))
        except Exception as error:
            self._failed(where(error))

    def stop(self) -> None:
        """Nobody watches any more, and nothing is decided."""
        if self._connection is not None:
            self._unwatch(self._connection.fileno())
        self.start(lambda: None, lambda fd: None, lambda fd: None)

    def close(self) -> None:
        """Tell the server the rest, for a while. For any thread that may wait, after `stop`."""
        self._stopping = True
        failures, until = self._failures, time.monotonic() + CLOSE_SECONDS
        while (
            (self._told or self._owed or self._sent)
            and self._failures == failures
            and time.monotonic() < until
        ):
            self.receive()
            self.send()
            poll = select.poll()
            if self._connection is not None:
                poll.register(self._connection, select.POLLIN)
            poll.poll(_SEND_SECONDS * 1000)
        self._disconnect()

    # === connections ===

    def _connect(self) -> None:
        """Have one made, and take it when it is there."""
        now = time.monotonic()
        connecting = self._connecting
        if connecting is None:
            if self._counters.lost and not self._stopping and now - self._began < PROBE_SECONDS:
                self._fail_asks()
            elif self._next_beat(now) <= now:
                self._began, self._patience = now, now + self._connector.deadline
                self._connecting = Future()
                connect = partial(_connect, self._connector, self._connecting, self._wake)
                threading.Thread(target=connect, name="sluicegate-redis", daemon=True).start()
        elif connecting.done():
            self._connecting = None
            self._connection = connecting.result()
            self._watch(self._connection.fileno())
        elif now >= self._patience:
            # The name is still being looked up: no other is tried beside it.
            self._patience = now + (PROBE_SECONDS if self._counters.lost else self._connector.deadline)
            raise RedisFailed(f"it did not answer within {self._connector.deadline} s")

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._unwatch(connection.fileno())
            connection.close()

    def _next_beat(self, now: float) -> float:
        """When the server has to be asked or told something."""
        return now if self._asks or self._owed or self._raises else self._beat + BEAT_SECONDS

    # === calls ===

    def _send(self, connection: RedisConnection) -> None:
        now = time.monotonic()
        if not self._open:
            # What is under way has to be heard before the session is over.
            if not self._sent:
                self._open_session(connection)
            return
        if not self._sent:
            self._burst += 1
            self._answered = 0
        room = MOST_CALLS - self._answered - len(self._sent)
        if room <= 0 or self._next_beat(now) > now:
            return
        session = f"{self._process}:{self._sessions}"
        calls = []
        changes = self._next_changes()
        if changes or self._beat + BEAT_SECONDS <= now:
            self._beat = now
            calls.append(_settling(self._settle, (session, self._burst), "", changes))
            self._sent.append(_Sent(now, "settle", changes, None))
        for _ in range(min(room - len(calls), len(self._asks))):
            ask = self._asks.popleft()
            arguments = [session, str(self._burst), *ask.arguments]
            calls.append(ScriptCall(self._take, (SESSIONS, *ask.keys), arguments))
            self._sent.append(_Sent(now, "take", {}, ask))
        if calls:
            connection.send(calls)

    def _understand(self, sent: _Sent, answer: Any) -> None:
        said, *rest = answer
        verdict = said.decode()
        took = time.monotonic() - sent.at
        if sent.kind == "open":
            self._sent.popleft()
            self._opened(rest[1], rest[2].decode())
        elif verdict == "gone":
            self._sent.popleft()
            self._gone(sent)
        elif sent.ask is None:
            live = int(rest[1])
            self._sent.popleft()
            self._answered += 1
            self._hear(live)
        else:
            at, texts = float(rest[0]), rest[1:]
            self._sent.popleft()
            self._answered += 1
            self._hand_on(sent.ask, verdict, at, texts)
        self._heard()
        self._metrics.called(took)

    def _hand_on(self, ask: Ask, verdict: str, at: float, texts: Sequence[bytes]) -> None:
        if verdict == "missing":
            if self._is_too_often(ask):
                self._each([ask.failed])
            else:
                self._missing.append(ask)
            return
        # First of all: the request waits for it.
        self._each([partial(ask.answered, verdict, at, texts)])
        self._touched |= ask.totals
        if verdict == "taken":
            for place, amount in ask.taken(at):
                if place.kind == "held":
                    self._held[place.name] = self._held.get(place.name, 0) + amount

    def _gone(self, sent: _Sent) -> None:
        """The server knows nothing of the session, and has done nothing of this call."""
        self._open = False
        self._owe(sent.changes)
        if sent.ask is not None:
            if self._is_too_often(sent.ask):
                self._each([sent.ask.failed])
            else:
                self._asks.append(sent.ask)

    def _is_too_often(self, ask: Ask) -> bool:
        ask.tries += 1
        return ask.tries > _TRIES

    def _fail_asks(self, sent: Sequence[_Sent] = ()) -> None:
        """Those that were `sent`, and those that wait."""
        asks = [call.ask for call in sent if call.ask is not None] + list(self._asks)
        self._asks.clear()
        self._each([ask.failed for ask in asks])

    def _each(self, steps: Sequence[Callable[[], None]]) -> None:
        """Nothing that a request breaks concerns another."""
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

    def _open_session(self, connection: RedisConnection) -> None:
        follows, following = (f"{self._process}:{self._sessions + more}" for more in (0, 1))
        self._sent.append(_Sent(time.monotonic(), "open", {}, None))
        connection.send([_settling(self._settle, (following, 0), follows, {})])

    def _opened(self, live: int, before: str) -> None:
        self._sessions += 1
        self._open = True
        unsure, self._unsure = self._unsure, None
        if unsure is not None:
            self._make_up(unsure, before)
        lasted = self._counters.lost and self._totals is not None
        self._owed = {
            place: amount
            for place, amount in self._owed.items()
            # What runs is said anew. What days have used meanwhile comes from the ledger, to which another
            # gateway may have raised it already.
            if not (place.kind == "held" or (lasted and place.kind == "total" and amount > 0))
        }
        self._owe({Place(name, "held", 0): running for name, running in self._held.items()})
        self._hear(live)

    def _make_up(self, unsure: _Unsure, record: str) -> None:
        """Of `unsure`, the server has done what the session's record says, and will do no more."""
        beat, burst, marks = [*record.removeprefix("closed ").split(" "), "", "", ""][:3]
        done = marks[unsure.answered :] if burst == str(unsure.burst) else ""
        for number, call in enumerate(unsure.calls):
            if number >= len(done):
                self._owe(call.changes)
            elif done[number] in "tc" and call.ask is not None:
                # It was answered otherwise meanwhile. What little was left of a budget is not given back:
                # nobody knows how much it was, and less is spent so, never more.
                taken = call.ask.taken(float(beat), cut=done[number] == "c")
                self._owe({place: -amount for place, amount in taken})

    def _hear(self, live: int) -> None:
        now = time.monotonic()
        self._metrics.gateways(live)
        # A server that was away does not know at once who is there.
        if live >= self._counters.gateways or now - self._many >= FEWER_SECONDS:
            self._counters.gateways = live
            self._many = now

    def _heard(self) -> None:
        self._failures = 0
        if self._counters.lost:
            self._counters.lost = False
            self._metrics.lost(False)
            self._log.info("counters_found", seconds=round(time.monotonic() - self._last, 1))
        self._last = time.monotonic()

    def _failed(self, reason: str) -> None:
        self._disconnect()
        self._open = False
        self._failures += 1
        self._metrics.failed()
        counters = self._counters
        if self._failures >= LOST_AFTER and not counters.lost:
            counters.lost = True
            self._metrics.lost(True)
            self._log.warning("counters_lost", reason=reason, limits=counters.when_lost)
        sent = [call for call in self._sent if call.kind != "open"]
        self._sent.clear()
        if sent:
            self._unsure = _Unsure(self._burst, self._answered, sent)
        self._fail_asks(sent)

    # === the ledger ===

    def _recall(self) -> None:
        """Have totals made that the server does not have; and from time to time raise those that are used to
        what was shipped to the ledger, whatever the server has lost.
        """
        if self._missing and not self._recalling:
            asks, self._missing = self._missing, []
            totals = {name: total for ask in asks for name, total in ask.totals.items()}
            self._recalling = True
            if self._totals is None:
                self._recalled(asks, totals, None)
            else:
                self._totals.ask(totals, partial(self._recalled, asks, totals))
        if self._totals is not None and time.monotonic() - self._raised >= RAISE_SECONDS:
            self._raised = time.monotonic()
            touched, self._touched = self._touched, {}
            if touched:
                self._totals.ask(touched, partial(self._raise, touched))

    def _recalled(self, asks: Sequence[Ask], totals: Mapping[str, Total], sums: Sums | None) -> None:
        """Ask for their requests again."""
        self._recalling = False
        if sums is None and self._totals is not None:
            self._log.warning("limits_not_recalled", reason="the ledger did not answer")
        amounts = {}
        for name, total in totals.items():
            # Of users the ledger has no sums by model. What this gateway knows is better than nothing.
            untold = total.key.model and total.key.subject.startswith("user:")
            amounts[name] = total.known if sums is None or untold else sums.get(name, 0)
        self._raise(totals, amounts)
        if self._counters.lost:
            self._each([ask.failed for ask in asks])
        else:
            self._asks.extend(asks)

    def _raise(self, totals: Mapping[str, Total], sums: Sums | None) -> None:
        for name, amount in (sums or {}).items():
            place = Place(name, "raise", int(totals[name].ends) + _GRACE_SECONDS)
            self._owe({place: min(amount, 2**62)})


def _connect(connector: RedisConnector, made: "Future[RedisConnection]", wake: Callable[[], None]) -> None:
    """On a thread that may wait."""
    try:
        made.set_result(connector.connect(SESSIONS))
    except BaseException as error:
        made.set_exception(error)
    wake()


def _settling(
    script: RedisScript, head: tuple[str, int], follows: str, changes: Mapping[Place, int]
) -> ScriptCall:
    arguments: list[str | int] = []
    for place, amount in changes.items():
        arguments += [place.kind, place.place, amount]
    return ScriptCall(script, (SESSIONS, *(place.name for place in changes)), (*head, follows, *arguments))
