"""Metrics of the counters that several machines share."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

CALL_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)


class CountersMetrics:
    """For the thread that decides."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lost = Gauge(
            "sluicegate_counters_lost",
            "1 while the server of `storage.counters` does not answer, and `counters_lost` holds.",
            registry=registry,
        )
        self._gateways = Gauge(
            "sluicegate_counters_gateways", "Gateways that count limits together.", registry=registry
        )
        self._failures = Counter(
            "sluicegate_counters_failures",
            "Calls of the server of `storage.counters` that failed, or took too long.",
            registry=registry,
        )
        self._seconds = Histogram(
            "sluicegate_counters_call_seconds",
            "How long calls of the server of `storage.counters` took, each by itself.",
            buckets=CALL_BUCKETS,
            registry=registry,
        )

    def called(self, seconds: float) -> None:
        self._seconds.observe(seconds)

    def failed(self) -> None:
        self._failures.inc()

    def lost(self, is_lost: bool) -> None:
        self._lost.set(is_lost)

    def gateways(self, count: int) -> None:
        self._gateways.set(count)
