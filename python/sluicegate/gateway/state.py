"""What all endpoints of one gateway share."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sluicegate._core import Relay
from sluicegate.config import Config
from sluicegate.gateway.keys import Keyring
from sluicegate.pricing import PricePolicy
from sluicegate.responses import ResponseStore
from sluicegate.routing import ModelTable, Policy
from sluicegate.telemetry import Log, Metrics


@dataclass(slots=True)
class State:
    """One gateway in one process. For the event loop's thread, but for what says otherwise."""

    config: Config
    keys: Keyring
    models: ModelTable
    policy: Policy
    prices: PricePolicy
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
    forwards_authorization: Mapping[str, bool] = field(init=False)
    """By upstream."""
    reported: set[tuple[str, ...]] = field(default_factory=set)
    """What is said once in a process's life, not once a request. Any thread."""

    _loop: asyncio.AbstractEventLoop | None = None

    def __post_init__(self) -> None:
        self.serve(self.config, self.keys, self.models, self.prices)

    def serve(self, config: Config, keys: Keyring, models: ModelTable, prices: PricePolicy) -> None:
        """What holds for requests from now on; those under way have what they need."""
        self.config, self.keys, self.models, self.prices = config, keys, models, prices
        self.forwards_authorization = {
            name: upstream.forward_authorization for name, upstream in config.upstreams.items()
        }

    def running_loop(self) -> asyncio.AbstractEventLoop:
        """The loop that all requests of this process run on."""
        # asyncio's own lookup asks the system for the process's number each time.
        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.get_running_loop()
        return self._loop

    def running_relay(self) -> Relay:
        if self.relay is None:
            self.relay = self.start_relay()
        return self.relay

    def opened(self) -> None:
        self.open += 1

    def closed(self) -> None:
        self.open -= 1
        if self.idle is not None and not self.open:
            self.idle.set()

    def warn_once(self, event: str, **fields: str) -> None:
        """Log a warning the first time it is met with these fields. Any thread."""
        about = (event, *fields.values())
        if about not in self.reported:
            self.reported.add(about)
            self.log.warning(event, **fields)
