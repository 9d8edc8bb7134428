"""Counters that several machines share: scripts at a server of theirs hold requests against limits.

The windows here are what was last heard of those: they tell clients what is left, and while the server is
lost they are what this gateway goes by. They count in the server's time, as the scripts do.
"""

from collections.abc import Callable, Sequence
from datetime import tzinfo
from functools import partial
from importlib.resources import files
from typing import NamedTuple

from sluicegate._core import Demand, Lease, Limit, Limits
from sluicegate.admission.counters import Answer, Counters, Later
from sluicegate.admission.windows import CounterKey
from sluicegate.config import CountersLost

TAKE = files("sluicegate.admission").joinpath("take.lua").read_text()
SETTLE = files("sluicegate.admission").joinpath("settle.lua").read_text()

# One hash tag, so that a cluster keeps all keys at one place; and the version of what stands in them.
_PREFIX = "{sluicegate}:1:"
SESSIONS = f"{_PREFIX}sessions"

# Of one request: what an upstream makes up must not overflow the server's counters.
MOST = 2**52


class Held(NamedTuple):
    """What a request holds of one limit."""

    limit: Limit
    place: int
    """Where it was counted, as its window has it."""
    amount: int


Changes = Sequence[Held]
"""What is to be added where, or, below zero, taken away."""


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
        if window.slice is not None:
            kind = f"{window.slice:.0f}"
        elif key.window:
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


class Ask(Later):
    """A request on its way to the server. Made and answered by the thread that decides."""

    __slots__ = ("_counters", "_demand", "_limits", "_owner", "arguments", "totals", "tries")

    def __init__(self, owner: "SharedCounters", limits: Limits, demand: Demand) -> None:
        super().__init__()
        self._owner = owner
        self._limits = limits
        self._demand = demand
        self._counters: list[Counter] = []
        self.arguments: list[str] = []
        """Of `take`, from the first limit's on."""
        self.totals: dict[str, Total] = {}
        """By their keys at the server."""
        self.tries = 0
        """How often it was asked in vain. For whoever asks."""
        for limit in limits:
            resource, window = limit.resource, limit.window
            began, ends = window.span or (0, 0.0)
            counter = Counter.of(limit, began)
            if counter.kind == "total":
                self.totals[counter.name] = Total(limit.key, began, ends, window.used)
            amount = demand.of(limit)
            sure = demand.input if resource == "tokens" else amount
            numbers = (limit.amount, min(amount, MOST), min(sure, MOST))
            self._counters.append(counter)
            self.arguments += [counter.kind, resource, *map(str, numbers)]

    @property
    def keys(self) -> list[str]:
        """The counter of each limit."""
        return [counter.name for counter in self._counters]

    def taken(self, at: float, *, cut: bool = False) -> list[tuple[Place, int]]:
        """What the server has counted for it, if it let it in at this time of its own.

        `cut`: less of some cost, as less was left; how much it did not say. Then costs are left out.
        """
        found = []
        for (name, kind, began), limit in zip(self._counters, self._limits, strict=True):
            if cut and limit.resource == "cost":
                continue
            amount = min(self._demand.of(limit), MOST)
            place = began if kind in ("held", "total") else int(at / float(kind))
            if amount:
                found.append((Place(name, kind, place), amount))
        return found

    def answered(self, verdict: str, at: float, texts: Sequence[bytes]) -> None:
        """What the server says, at this time of its own: `taken` or `over`."""
        self._owner.clock.hear(at)
        held, over = [], []
        limits = zip(self._limits, self._counters, texts, strict=True)
        for position, (limit, counter, text) in enumerate(limits):
            mark, used, *slices = map(int, text.split())
            window, place = limit.window, counter.began
            self._owner.seeding.known(limit.key)
            if window.slice is not None:
                place = int(at / window.slice)
                window.load_slices(place, list(zip(slices[::2], slices[1::2], strict=True)))
            elif counter.kind == "total":
                window.load_total(place, used)
            elif verdict == "taken":
                window.add(mark)
            if verdict == "taken":
                held.append((place, mark))
            elif mark:
                over.append((position, used))
        if verdict == "taken":
            self.answer(self._limits.taken(self._demand, held, self._owner.told))
        else:
            self.answer(self._limits.refused(self._demand, over))

    def failed(self) -> None:
        """The server does not answer."""
        answer = self._owner.admit_alone(self._limits, self._demand)
        if isinstance(answer, Later):
            answer.then(self.answer)
        else:
            self.answer(answer)


class SharedCounters(Counters):
    """For the thread that decides, but for what says otherwise. Their clock is the server's."""

    def __init__(self, zone: tzinfo, when_lost: CountersLost) -> None:
        super().__init__(zone)
        self.when_lost = when_lost
        # While it is lost, the server is not asked.
        self.lost = False
        self.gateways = 1
        """How many share the counters, as far as is known. Any thread."""
        self.ask: Callable[[Ask], None] = lambda ask: ask.failed()
        """Asks the server: `ask.answered` or `ask.failed` is called later, by the thread that decides."""
        self.tell: Callable[[Changes], None] = lambda changes: None
        """Tells the server what was used."""

    def admit(self, limits: Limits, demand: Demand) -> Answer | Later:
        if self.lost:
            return self.admit_alone(limits, demand)
        ask = Ask(self, limits, demand)
        self.ask(ask)
        return ask

    def admit_alone(self, limits: Limits, demand: Demand) -> Answer | Later:
        """Without the server: as if every gateway did what this one does."""
        if self.when_lost == "refuse":
            return "unavailable"
        hold = partial(self._hold_alone, limits, demand)
        if self.when_lost == "allow":
            return hold()
        return self._when_known(limits, demand, hold, max(1, self.gateways))

    def _hold_alone(self, limits: Limits, demand: Demand) -> Answer:
        hold = limits.take if self.when_lost == "allow" else limits.admit
        answer = hold(demand, max(1, self.gateways), self.told)
        if isinstance(answer, Lease):
            self.told(answer.held)
        return answer

    def told(self, changes: Sequence[tuple[Limit, int, int]]) -> None:
        """These are the changes that the server is to be told."""
        self.tell([Held(*change) for change in changes])
