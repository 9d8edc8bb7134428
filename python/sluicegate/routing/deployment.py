"""What is known of a deployment (one upstream and its name for a model): what it is for, and how it is doing.

What it has to do and how it does belongs to the deployment, whichever models it serves, and is kept by its
name while configurations come and go. Everything but the making is for the thread that decides.
"""

import math
import time
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakValueDictionary

from sluicegate._core import Route, Upstream

Clock = Callable[[], float]
"""Seconds, from any point in time on, never backwards."""

SIZES = (2_000, 16_000)
"""Input tokens: below the first an input is short, below the second middling, else long."""

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

    __slots__ = ("__weakref__", "bounds", "first_token", "name", "streams", "tokens")

    def __init__(self, name: str) -> None:
        self.name = name
        """`upstream/model`; of a wildcard with its `*`."""
        self.streams = 0
        """Requests that it was handed and that have not ended, streaming or not."""
        self.tokens = 0
        """Of their inputs, estimated."""
        self.first_token: list[Average | None] = [None] * (len(SIZES) + 1)
        """The average time to the first token of a stream, in seconds, by the size of its input (`SIZES`)."""
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


class Usable(NamedTuple):
    """Whether a deployment may be handed a request."""

    yes: bool
    why: str
    """Where it may not: `full`."""
    until: float
    """When that ends by itself, by the clock; infinite where it does not."""


USABLE = Usable(True, "", math.inf)
FULL = Usable(False, "full", math.inf)


class Fleet:
    """All deployments of a process, by name. `clock` is the one that everything about them goes by.

    A load lives as long as a model or a request refers to it: what a configuration leaves out and a later one
    has again goes on with its counts, if it still has something to do.
    """

    __slots__ = ("_loads", "changes", "clock")

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.clock = clock
        self.changes = 0
        """Grows where one of them becomes usable, or ceases to be: what was found out before is out of
        date."""
        self._loads: WeakValueDictionary[str, Load] = WeakValueDictionary()

    def load(self, name: str) -> Load:
        """The load of the deployment of that name."""
        found = self._loads.get(name)
        if found is None:
            found = self._loads[name] = Load(name)
        return found


class Deployment:
    """One upstream and its name for a model, as one model's configuration has it."""

    __slots__ = (
        "_drain", "_public", "_route", "_upstream", "load", "max_streams", "model", "name", "position",
        "tier", "weight",
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
    ) -> None:
        """`model`: the upstream's name of it; `public`: what the reply shows, None: the upstream's own
        name."""
        self.name = load.name
        self.model = model
        self.load = load
        """Shared by all models that this deployment serves."""
        self.position = position
        """In the model's configuration, from 0."""
        self.weight = weight
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
        most = self.max_streams
        return FULL if most is not None and self.load.streams >= most else USABLE
