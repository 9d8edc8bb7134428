"""Which configuration is served, and whether a later one could not be: for metrics and whoever asks."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

MOST_FAULTS = 100
"""Of a file that cannot be served, those that are kept; the log has all."""


@dataclass(frozen=True, slots=True)
class ReloadFailure:
    """The file says something else by now, which cannot be served."""

    at: float
    """When it was read, in seconds since 1970."""
    faults: tuple[str, ...]


class ConfigurationReport(Collector):
    """What a process serves. One thread writes, any may read."""

    def __init__(self, registry: CollectorRegistry, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self.path: str | None = None
        """Of its file; None where there is none that is read again."""
        self.hash: str | None = None
        """The beginning of the SHA-256 of the file as it is served, in hex; None where that is not known."""
        self.since = wall()
        """Since when it is served, in seconds since 1970."""
        self.failure: ReloadFailure | None = None
        """Why the file that is there now is not served; None where it is."""
        self._results: dict[Literal["ok", "failed"], int] = {"ok": 0, "failed": 0}
        registry.register(self)

    def begun(self, path: str, hash: str | None) -> None:
        """The process has begun with the file at `path`."""
        self.path, self.hash = path, hash

    def served(self, hash: str) -> None:
        """What the file says is served from now on."""
        self.hash, self.since, self.failure = hash, self._wall(), None
        self._results["ok"] += 1

    def failed(self, faults: Sequence[str]) -> None:
        """What the file says cannot be served: what was served before still is."""
        self.failure = ReloadFailure(self._wall(), tuple(faults[:MOST_FAULTS]))
        self._results["failed"] += 1

    def collect(self) -> Iterator[Metric]:
        """For prometheus-client."""
        stale = GaugeMetricFamily(
            "sluicegate_configuration_stale",
            "1 while the configuration's file says something that cannot be served: an earlier one is.",
        )
        stale.add_metric((), 0 if self.failure is None else 1)
        since = GaugeMetricFamily(
            "sluicegate_configuration_since_seconds",
            "Since when the configuration is served, in seconds since 1970. hash: of its file.",
            labels=("hash",),
        )
        since.add_metric((self.hash or "",), self.since)
        reloads = CounterMetricFamily(
            "sluicegate_reloads",
            "How often the configuration's file was read again. result: ok or failed.",
            labels=("result",),
        )
        for result, count in self._results.items():
            reloads.add_metric((result,), count)
        yield from (stale, since, reloads)
