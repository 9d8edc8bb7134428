"""What all parts of one gateway share."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sluicegate._core import Decisions, Estimates, Front
from sluicegate.admission import Counters
from sluicegate.config import Config
from sluicegate.gateway.admission import Admission
from sluicegate.gateway.known_prices import KnownPrices
from sluicegate.gateway.notices import Notices
from sluicegate.gateway.prices import Prices
from sluicegate.ledger import Ledger
from sluicegate.responses import ResponseStore
from sluicegate.routing import ModelTable
from sluicegate.telemetry import Log, Metrics, Recorder


@dataclass(frozen=True, slots=True)
class Serving:
    """What requests are served by: one configuration, for the whole of a request."""

    config: Config
    admission: Admission
    models: ModelTable
    prices: Prices
    forwards_authorization: Mapping[str, bool] = field(init=False)
    """By upstream."""
    counting: frozenset[str] = field(init=False)
    """The upstreams that are asked how many tokens an input has."""
    estimating: frozenset[str] = field(init=False)
    """The upstreams for which the gateway estimates how many tokens an input has."""

    def __post_init__(self) -> None:
        upstreams = self.config.upstreams.items()
        forwards = {name: upstream.forward_authorization for name, upstream in upstreams}
        object.__setattr__(self, "forwards_authorization", forwards)
        counting = {name: upstream.counts_tokens for name, upstream in upstreams}
        forwarding = frozenset(name for name, counts in counting.items() if counts == "forward")
        object.__setattr__(self, "counting", forwarding)
        estimating = frozenset(name for name, counts in counting.items() if counts == "estimate")
        object.__setattr__(self, "estimating", estimating)


@dataclass(slots=True)
class State:
    """One gateway. The event loop's thread writes; the one that decides reads what says so."""

    serving: Serving
    """Of requests that come from now on. Any thread."""
    counters: Counters
    """What limits count. For the thread that decides."""
    estimates: Estimates
    """For the thread that decides."""
    known_prices: KnownPrices
    """Any thread."""
    log: Log
    """Any thread."""
    metrics: Metrics
    recorder: Recorder
    """Any thread."""
    notices: Notices
    """Any thread."""
    responses: ResponseStore
    ledger: Ledger | None
    """None where none is kept."""
    start_engines: Callable[[Config], tuple[Decisions, Front]]
    front: Front | None = None
    """Made at the start: its threads must belong to the process that serves."""
    leaving: bool = False
    """It is told to stop, and accepts for a while what balancers still send."""
    draining: bool = False
    dead: bool = False
    """An engine, or the thread that decides, has died."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    """What requests wait for on the loop: it keeps only weak references to its tasks itself."""

    @property
    def config(self) -> Config:
        return self.serving.config

    @property
    def models(self) -> ModelTable:
        return self.serving.models
