"""Counters that several machines share: scripts at a server of theirs hold requests against limits.

The windows here are what was last heard of those: they tell clients what is left, and while the server is
lost they are what this gateway goes by. They count in the server's time, as the scripts do.
"""

import time
from collections.abc import Callable, Sequence
from datetime import tzinfo
from importlib.resources import files
from typing import NamedTuple

from sluicegate.admission.counters import Counters, Then
from sluicegate.admission.limits import Changes, Demand, Excess, Held, Lease, Limit, admit, refused, take
from sluicegate.admission.windows import CalendarWindow, CounterKey, Moment, SlidingWindow
from sluicegate.config import CountersLost

TAKE = files("sluicegate.admission").joinpath("take.lua").read_text()
SETTLE = files("sluicegate.admission").joinpath("settle.lua").read_text()

# One hash tag, so that a cluster keeps all keys at one place; and the version of what stands in them.
_PREFIX = "{sluicegate}:1:"
SESSIONS = f"{_PREFIX}sessions"

# Of one request: what an upstream makes up must not overflow the server's counters.
MOST = 2**52


class Counter(NamedTuple):
    """What a limit counts, at the server."""

    name: str
    """The key."""
    kind: str
    """`held`, `total`, or the seconds of a slice."""
    began: int = 0
    """Of a total: seconds since 1970, UTC."""

    @classmethod
    def of(cls, limit: Limit, began: int) -> "Counter":
        """`began`: of a calendar window; of others it says nothing."""
        key, window = limit.key, limit.window
        kind, since = "held", ""
        if isinstance(window, SlidingWindow):
            kind = f"{window.seconds:.0f}"
        elif isinstance(window, CalendarWindow):
            kind, since = "total", str(began)
        # Names that others choose stand last, and after their length: no two counters have one key.
        name = f"{key.resource}:{key.window}:{since}:{len(key.model)}:{key.model}:{key.subject}"
        return cls(_PREFIX + name, kind, began)


class Place(NamedTuple):
    """Where `settle` changes something."""

    name: str
    kind: str
    place: int

    @classmethod
    def of(cls, held: Held) -> "Place":
        """Where `held` is counted."""
        name, kind, _ = Counter.of(held.limit, held.place)
        return cls(name, kind, held.place)


class Total(NamedTuple):
    """The counter of a day, a week or a month, whose sum the ledger has, too."""

    key: CounterKey
    began: int
    """Seconds since 1970, UTC; so is `ends`."""
    ends: float
    known: int
    """What this gateway knows to be used."""


class Ask:
    """A request on its way to the server. Made and answered by the thread that decides."""

    __slots__ = ("_counters", "_demand", "_limits", "_owner", "_then", "arguments", "totals", "tries")

    def __init__(
        self, owner: "SharedCounters", limits: Sequence[Limit], demand: Demand, then: Then, clock: Moment
    ) -> None:
        self._owner = owner
        self._limits = limits
        self._demand = demand
        self._then = then
        self._counters: list[Counter] = []
        self.arguments: list[str] = []
        """Of `take`, from the first limit's on."""
        self.totals: dict[str, Total] = {}
        """By their keys at the server."""
        self.tries = 0
        """How often it was asked in vain. For whoever asks."""
        for limit in limits:
            resource, window = limit.resource, limit.window
            window.advance(clock)
            calendar = window if isinstance(window, CalendarWindow) else None
            counter = Counter.of(limit, 0 if calendar is None else calendar.began)
            if calendar is not None:
                total = Total(limit.key, calendar.began, calendar.ends, calendar.used)
                self.totals[counter.name] = total
            amount = demand.of(resource)
            sure = demand.input if resource == "tokens" else amount
            numbers = (limit.amount, min(amount, MOST), min(sure, MOST))
            self._counters.append(counter)
            self.arguments += [counter.kind, resource, *map(str, numbers)]

    @property
    def keys(self) -> list[str]:
        """The counter of each limit."""
        return [counter.name for counter in self._counters]

    def taken(self, at: float) -> list[tuple[Place, int]]:
        """What the server has counted for it, if it let it in at this time of its own."""
        found = []
        for (name, kind, began), limit in zip(self._counters, self._limits, strict=True):
            amount = min(self._demand.of(limit.resource), MOST)
            place = began if kind in ("held", "total") else int(at / float(kind))
            if amount:
                found.append((Place(name, kind, place), amount))
        return found

    def answered(self, verdict: str, at: float, texts: Sequence[bytes]) -> None:
        """What the server says, at this time of its own: `taken` or `over`."""
        clock = self._owner.heard(at)
        held, over = [], []
        for limit, counter, text in zip(self._limits, self._counters, texts, strict=True):
            mark, used, *slices = map(int, text.split())
            window, place = limit.window, counter.began
            if isinstance(window, SlidingWindow):
                place = int(at / window.seconds)
                window.load(place, dict(zip(slices[::2], slices[1::2], strict=True)))
            elif isinstance(window, CalendarWindow):
                window.load(place, used)
            elif verdict == "taken":
                window.add(mark)
            if verdict == "taken":
                held.append(Held(limit, place, mark))
            elif mark:
                over.append((limit, used))
        if verdict == "taken":
            self._then(Lease(self._limits, held, clock, now=self._owner.now, tell=self._owner.tell))
        else:
            self._then(refused(self._limits, over, self._demand, clock))

    def failed(self) -> None:
        """The server does not answer."""
        self._owner.admit_alone(self._limits, self._demand, self._then)


class SharedCounters(Counters):
    """For the thread that decides, but for what says otherwise."""

    def __init__(self, zone: tzinfo, when_lost: CountersLost) -> None:
        super().__init__(zone)
        self.when_lost = when_lost
        # Until the server says what time it is.
        self._ahead = time.time() - time.monotonic()
        # While it is lost, the server is not asked.
        self.lost = False
        self.gateways = 1
        """How many share the counters, as far as is known. Any thread."""
        self.ask: Callable[[Ask], None] = lambda ask: ask.failed()
        """Asks the server: `ask.answered` or `ask.failed` is called later, by the thread that decides."""
        self.tell: Callable[[Changes], None] = lambda changes: None
        """Tells the server what was used."""

    def now(self) -> Moment:
        """The server's time, as far as it is known."""
        at = time.monotonic() + self._ahead
        return Moment(at, at)

    def heard(self, at: float) -> Moment:
        """The server's time is `at`."""
        self._ahead = at - time.monotonic()
        return Moment(at, at)

    def admit(self, limits: Sequence[Limit], demand: Demand, then: Then) -> None:
        if self.lost:
            self.admit_alone(limits, demand, then)
        else:
            self.ask(Ask(self, limits, demand, then, self.now()))

    def admit_alone(self, limits: Sequence[Limit], demand: Demand, then: Then) -> None:
        """Without the server: as if every gateway did what this one does."""
        if self.when_lost == "refuse":
            then("unavailable")
            return
        clock = self.now()
        times = max(1, self.gateways)
        if self.when_lost == "allow":
            for limit in limits:
                limit.window.advance(clock)
            found: Changes | Excess = take(limits, demand, times)
        else:
            found = admit(limits, demand, clock, times)
        if isinstance(found, Excess):
            then(found)
            return
        self.tell(found)
        then(Lease(limits, found, clock, times=times, now=self.now, tell=self.tell))
