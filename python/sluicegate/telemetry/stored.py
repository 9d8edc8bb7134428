"""Metrics of stored and background responses."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class StoredMetrics:
    """All methods are for the event loop's thread. They are called once a response, not once a chunk."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._ended = Counter(
            "sluicegate_stored_responses",
            "Responses that were kept, by how they ended. kind: background or live.",
            ("kind", "status"),
            registry=registry,
        )
        self._refused = Counter(
            "sluicegate_background_refused",
            "Background responses that were not taken on: queue_full, store_busy or store_failed.",
            ("reason",),
            registry=registry,
        )
        self._failures = Counter(
            "sluicegate_response_store_failures",
            "Operations of the store of responses that failed.",
            ("operation",),
            registry=registry,
        )
        self._evicted = Counter(
            "sluicegate_stored_responses_evicted",
            "Responses that were deleted before their time, since more was kept than `responses.max_bytes`.",
            registry=registry,
        )
        # Of the whole store, whichever process works on it.
        self._queued = Gauge(
            "sluicegate_background_queued",
            "Background responses that wait.",
            registry=registry,
        )
        self._oldest = Gauge(
            "sluicegate_background_oldest_queued_seconds",
            "How long the oldest of them has waited.",
            registry=registry,
        )
        self._running = Gauge(
            "sluicegate_background_running",
            "Background responses under way.",
            registry=registry,
        )

    def ended(self, kind: str, status: str) -> None:
        self._ended.labels(kind, status).inc()

    def refused(self, reason: str) -> None:
        self._refused.labels(reason).inc()

    def failed(self, operation: str) -> None:
        self._failures.labels(operation).inc()

    def evicted(self, count: int) -> None:
        self._evicted.inc(count)

    def backlog(self, queued: int, running: int, oldest_seconds: float) -> None:
        """What waits and what runs, in all processes over one store."""
        self._queued.set(queued)
        self._running.set(running)
        self._oldest.set(oldest_seconds)
