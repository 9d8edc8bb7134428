"""What all endpoints of one gateway share."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock, get_ident

from sluicegate._core import Relay
from sluicegate.config import Config
from sluicegate.gateway.keys import Keyring
from sluicegate.gateway.threads import ONTO_LOOP
from sluicegate.pricing import PricePolicy
from sluicegate.responses import ResponseStore
from sluicegate.routing import ModelTable, Policy
from sluicegate.telemetry import Log, Metrics


@dataclass(frozen=True, slots=True)
class Serving:
    """What requests are served by: one configuration, for the whole of a request."""

    config: Config
    keys: Keyring
    models: ModelTable
    prices: PricePolicy
    forwards_authorization: Mapping[str, bool] = field(init=False)
    """By upstream."""

    def __post_init__(self) -> None:
        upstreams = self.config.upstreams.items()
        forwards = {name: upstream.forward_authorization for name, upstream in upstreams}
        object.__setattr__(self, "forwards_authorization", forwards)


@dataclass(slots=True)
class State:
    """One gateway in one process. For the event loop's thread, but for what says otherwise."""

    serving: Serving
    """Of requests that come from now on. Any thread."""
    policy: Policy
    """Any thread."""
    log: Log
    """Any thread."""
    metrics: Metrics
    responses: ResponseStore
    start_relay: Callable[[], Relay]
    relay: Relay | None = None
    """Made on first use: its thread must belong to the worker, not to the process that starts it."""
    draining: bool = False
    open: int = 0
    """Requests that are not recorded yet."""
    idle: asyncio.Event | None = None
    """Set when `open` falls to 0, while somebody waits for that."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    """Deliveries under way."""
    reported: set[tuple[str, ...]] = field(default_factory=set)
    """What is said once in a process's life, not once a request. Any thread."""

    _loop: asyncio.AbstractEventLoop | None = None
    _loop_thread: int = 0
    _opening: Lock = field(default_factory=Lock)

    @property
    def config(self) -> Config:
        return self.serving.config

    @property
    def keys(self) -> Keyring:
        return self.serving.keys

    @property
    def models(self) -> ModelTable:
        return self.serving.models

    @property
    def forwards_authorization(self) -> Mapping[str, bool]:
        return self.serving.forwards_authorization

    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of this process's requests. First called on it; then any thread."""
        # asyncio's own lookup asks the system for the process's number each time.
        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.get_running_loop()
            self._loop_thread = get_ident()
            self.metrics.flush_on(self._loop)
        return self._loop

    async def onto_loop(self) -> None:
        """Go on on the event loop."""
        if self._loop_thread and get_ident() != self._loop_thread:
            await ONTO_LOOP

    def running_relay(self) -> Relay:
        if self.relay is None:
            self.relay = self.start_relay()
        return self.relay

    def opened(self) -> None:
        """A request has been forwarded. Any thread."""
        with self._opening:
            self.open += 1

    def closed(self) -> None:
        """It has been recorded. Any thread."""
        with self._opening:
            self.open -= 1
            idle = None if self.open else self.idle
        if idle is not None:
            # RuntimeError: the loop is closed, and nobody waits any more.
            with contextlib.suppress(RuntimeError):
                self.loop().call_soon_threadsafe(idle.set)

    def warn_once(self, event: str, **fields: str) -> None:
        """Log a warning the first time it is met with these fields. Any thread."""
        about = (event, *fields.values())
        if about not in self.reported:
            self.reported.add(about)
            self.log.warning(event, **fields)
