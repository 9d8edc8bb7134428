"""What the admin API needs of a running gateway."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from sluicegate.admission import Standing
from sluicegate.config import Config
from sluicegate.ledger import Ledger
from sluicegate.routing import ModelTable
from sluicegate.telemetry import ConfigurationReport, Log

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

    async def standings(
        self, name: str, user: str | None, first: str, most: int
    ) -> list[tuple[str, list[Standing]]]:
        """Of whoever has this id, or else this name: the limits that hold for all keys, and those that hold
        for one, by their place in the order of all of them; at most `most` from `first` on. Those of `user`,
        where one is named, in place of all others. Nothing, where nobody is it.
        """
        ...

    @property
    def readiness(self) -> Mapping[str, str]:
        """`status` is `ready`, or says why it is not; other members say what is wrong besides."""
        ...

    @property
    def configuration(self) -> ConfigurationReport:
        """Which file is served."""
        ...

    async def decided(self, step: Callable[[], _T]) -> _T:
        """What `step` says on the thread that decides, whose state is its own. It must not wait."""
        ...

    def count_wrong_token(self) -> None:
        """Somebody has presented a token that is none."""
        ...

    async def exposition(self, accept: str) -> tuple[str, bytes]:
        """Metrics: their content type, and the text. `accept`: the scraper's header."""
        ...
