"""What the admin API needs of a running gateway."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from sluicegate.admission import Caller, Standing
from sluicegate.config import Config
from sluicegate.ledger import Ledger
from sluicegate.routing import ModelTable
from sluicegate.telemetry import Log

_T = TypeVar("_T")


class Watched(Protocol):
    """A running gateway. Its methods are for the event loop."""

    @property
    def models(self) -> ModelTable:
        """What is served now."""
        ...

    @property
    def log(self) -> Log: ...

    @property
    def config(self) -> Config:
        """What is served now."""
        ...

    @property
    def ledger(self) -> Ledger | None:
        """None where none is kept."""
        ...

    def callers(self, name: str) -> list[Caller]:
        """Whoever has this id, or else this name: with each key that has limits of its own, and once for all
        other keys. Nobody, where there is no key.
        """
        ...

    def limits(self, callers: Iterable[Caller], user: str | None) -> list[Standing]:
        """How the limits of these callers stand, or else those of the one of the people behind them. For the
        thread that decides: see `decided`.
        """
        ...

    @property
    def readiness(self) -> str:
        """`ready`, or why it is not."""
        ...

    async def decided(self, step: Callable[[], _T]) -> _T:
        """What `step` says on the thread that decides, whose state is its own. It must not wait."""
        ...

    async def exposition(self, accept: str) -> tuple[str, bytes]:
        """Metrics: their content type, and the text. `accept`: the scraper's header."""
        ...
