"""What is known of a deployment (one upstream and its name for a model): what it is for, and how it is doing.

What it has to do and how it does belongs to the deployment, whichever models it serves, and is kept by its
name while configurations come and go. Everything but the making is for the thread that decides.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Collection
from random import Random
from weakref import WeakValueDictionary

from sluicegate._core import Fault, Outcome, Route, Upstream
from sluicegate.config import HealthConfig
from sluicegate.routing.health import FULL, TAKEN_OFF, Breaker, Health, Settings, State, Usable
from sluicegate.routing.retry import RetryBudget
from sluicegate.routing.verdict import Verdict, verdict_at_end, verdict_of

Clock = Callable[[], float]
"""Seconds, from any point in time on, never backwards."""

Told = Callable[[str, State, str, float], None]
"""Whose state has changed, to what, why, and for how many seconds."""


def unheard(name: str, state: State, reason: str, seconds: float) -> None:
    """Nobody is told."""


SIZES = (2_000, 16_000)
"""Input tokens: below the first an input is short, below the second middling, else long."""

FAULTS_KEPT = 16
"""Of each deployment, the newest."""

DECAY_SECONDS = 30.0
"""After so long a sample weighs 1/e of what it did."""


class Average:
    """A mean of samples that counts later ones more, by the time that lies between them."""

    __slots__ = ("_weight", "at", "value")

    def __init__(self, value: float, at: float) -> None:
        self.value = value
        self.at = at
        self._weight = 1.0

    def add(self, value: float, at: float) -> None:
        """One more sample, at that time."""
        kept = self._weight * math.exp((self.at - at) / DECAY_SECONDS)
        self._weight = kept + 1.0
        self.value += (value - self.value) / self._weight
        self.at = at


class Load:
    """What one deployment has to do, and how long its replies took. Kept over changes of the
    configuration."""

    __slots__ = (
        "__weakref__", "bounds", "faults", "first_token", "health", "name", "streams", "taken_off", "tokens",
    )  # fmt: skip

    def __init__(self, name: str, health: Health) -> None:
        self.name = name
        """`upstream/model`; of a wildcard with its `*`."""
        self.health = health
        """What its attempts have shown; another one where its upstream has become another."""
        self.streams = 0
        """Requests that it was handed and that have not ended, streaming or not."""
        self.tokens = 0
        """Of their inputs, estimated."""
        self.first_token: list[Average | None] = [None] * (len(SIZES) + 1)
        """The average time to the first token of a stream, in seconds, by the size of its input (`SIZES`)."""
        self.faults: deque[tuple[float, str]] = deque(maxlen=FAULTS_KEPT)
        """The last attempts that failed: when, in seconds since 1970, and why."""
        self.taken_off = False
        """By an operator, until one puts it back."""
        self.bounds: frozenset[int] = frozenset()
        """The numbers of streams at which it is full, for one model or another."""

    def served(self, tokens: int, first_token: float, now: float) -> None:
        """A stream with an input of about so many tokens had its first token after `first_token` seconds."""
        size = size_of(tokens)
        average = self.first_token[size]
        if average is None:
            self.first_token[size] = Average(first_token, now)
        else:
            average.add(first_token, now)


def tokens_of(size: int) -> int:
    """About how many tokens a request's body of `size` bytes has: an estimate, to compare requests by."""
    # JSON of English text.
    return size // 4


def size_of(tokens: int) -> int:
    """The class of an input of so many tokens: its position in `Load.first_token`."""
    return 0 if tokens < SIZES[0] else 1 if tokens < SIZES[1] else 2


class Fleet:
    """All deployments of a process, by name. `clock` is the one that everything about them goes by.

    A load lives as long as a model or a request refers to it: what a configuration leaves out and a later one
    has again goes on with its counts, if it still has something to do.
    """

    __slots__ = (
        "_budgets", "_loads", "_reaches", "_settings", "_told", "changes", "clock", "random", "wall",
    )  # fmt: skip

    def __init__(
        self,
        clock: Clock = time.monotonic,
        *,
        wall: Clock = time.time,
        told: Told = unheard,
        random: Random | None = None,
    ) -> None:
        """`wall`: the time of day. `told`: of what is left alone, or usable again; it must not block."""
        self.clock = clock
        self.wall = wall
        # Nothing secret depends on how long a pause is.
        self.random = random or Random()  # noqa: S311
        self._told = told
        self._settings: Settings = HealthConfig()
        self.changes = 0
        """Grows where one of them becomes usable, or ceases to be: what was found out before is out of
        date."""
        self._loads: WeakValueDictionary[str, Load] = WeakValueDictionary()
        self._reaches: WeakValueDictionary[str, Breaker] = WeakValueDictionary()
        self._budgets: WeakValueDictionary[str, RetryBudget] = WeakValueDictionary()

    def load(self, name: str) -> Load:
        """The load of the deployment of that name: `upstream/model`."""
        found = self._loads.get(name)
        if found is None:
            found = self._loads[name] = Load(name, self._health(name))
        return found

    def reach(self, upstream: str) -> Breaker:
        """Whether the upstream of that name can be reached."""
        found = self._reaches.get(upstream)
        if found is None:
            found = self._reaches[upstream] = self._breaker(upstream)
        return found

    def budget(self, model: str, share: float) -> RetryBudget:
        """What the model may spend on further tries; `share`: of one, for each request."""
        found = self._budgets.get(model)
        if found is None:
            found = self._budgets[model] = RetryBudget(share)
        else:
            found.adopt(share)
        return found

    def adopt(self, settings: Settings, others: Collection[str] = ()) -> None:
        """Go by these settings from now on. `others`: upstreams that are not what they were. Any thread."""
        self._settings = settings
        for upstream in others:
            self._reaches.pop(upstream, None)
        # In one step: the thread that decides may add one meanwhile.
        for load in (reference() for reference in self._loads.valuerefs()):
            if load is None:
                continue
            if _upstream_of(load.name) in others:
                load.health = self._health(load.name)
            load.health.own.adopt(settings)
            load.health.reach.adopt(settings)

    def take_off(self, load: Load) -> None:
        """Hand it no more requests, whatever else there is, until it is put back. What is under way goes
        on."""
        load.taken_off = True
        self.moved()

    def put_back(self, load: Load) -> None:
        """Hand it requests again, whatever it was left alone for."""
        load.taken_off = False
        load.health.restore(self.clock())
        self.moved()

    def moved(self) -> None:
        self.changes += 1

    def changed(self, name: str, state: State, reason: str, seconds: float) -> None:
        self._told(name, state, reason, seconds)

    def _health(self, name: str) -> Health:
        return Health(self._breaker(name), self.reach(_upstream_of(name)), self)

    def _breaker(self, name: str) -> Breaker:
        return Breaker(name, self._settings, self.random, self)


def _upstream_of(name: str) -> str:
    # An upstream's name has no slash.
    return name.partition("/")[0]


class Deployment:
    """One upstream and its name for a model, as one model's configuration has it."""

    __slots__ = (
        "_drain", "_public", "_route", "_upstream", "full_weight", "load", "max_streams", "model", "name",
        "own_account", "own_model", "position", "tier", "weight",
    )  # fmt: skip

    def __init__(
        self,
        upstream: Upstream,
        model: str,
        load: Load,
        *,
        position: int = 0,
        weight: float = 1.0,
        tier: int = 0,
        max_streams: int | None = None,
        public: str | None = None,
        drain: bool = False,
        own_account: bool = True,
        own_model: bool | None = None,
    ) -> None:
        """`model`: the upstream's name of it; `public`: what the reply shows, None: the upstream's own
        name."""
        self.name = load.name
        self.model = model
        self.load = load
        """Shared by all models that this deployment serves."""
        self.position = position
        """In the model's configuration, from 0."""
        self.full_weight = weight
        """As configured."""
        self.weight = weight
        """What part of the requests it should have now: less than `full_weight` for a while after it was left
        alone."""
        self.own_account = own_account
        """It is sent the gateway's credentials, not the client's."""
        self.own_model = "*" not in load.name if own_model is None else own_model
        """The upstream's name of the model is the configuration's, not made of the client's."""
        self.tier = tier
        self.max_streams = max_streams
        self._upstream = upstream
        self._public = public
        self._drain = drain
        self._route = None if "*" in model else Route(upstream, model, reply_model=public, drain=drain)

    def __repr__(self) -> str:
        return f"<Deployment {self.name}>"

    @property
    def upstream(self) -> str:
        """The upstream's name."""
        return self._upstream.name

    @property
    def shows_upstream_model(self) -> bool:
        """Whether clients may know the upstream's name of the model."""
        return self._public is None

    def route(self, asked: str, star: str) -> Route:
        """The way to it for a client that asked for `asked`; `star`: what a wildcard's `*` stands for."""
        route, public = self._route, self._public
        if route is not None and (public is None or public == asked):
            return route
        model = self.model.replace("*", star)
        return Route(self._upstream, model, reply_model=None if public is None else asked, drain=self._drain)

    def usable(self, now: float) -> Usable:
        """Whether it may be handed a request now."""
        if self.load.taken_off:
            return TAKEN_OFF
        most = self.max_streams
        if most is not None and self.load.streams >= most:
            return FULL
        return self.load.health.usable(now)

    def state(self, now: float) -> State:
        """What it is, but for being full; from any thread."""
        return State.TAKEN_OFF if self.load.taken_off else self.load.health.state(now)

    def verdict(self, fault: Fault, wall: float) -> Verdict:
        """What an attempt that failed with `fault` says of it."""
        return verdict_of(fault, wall, own_account=self.own_account, own_model=self.own_model)

    def verdict_at_end(self, outcome: Outcome, wall: float) -> Verdict:
        """What the attempt says of it that a request ended with."""
        return verdict_at_end(outcome, wall, own_account=self.own_account, own_model=self.own_model)
