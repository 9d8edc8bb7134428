"""Metrics of the keys that are known."""

from prometheus_client import CollectorRegistry, Gauge


class KeyMetrics:
    """Callers and keys of the database. Any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._callers = Gauge(
            "sluicegate_stored_callers", "Callers of the database that are known.", registry=registry
        )
        self._keys = Gauge(
            "sluicegate_stored_keys",
            "Keys of the database that are known and not revoked.",
            registry=registry,
        )
        self._reachable = Gauge(
            "sluicegate_keys_database_up",
            "1 while the database of callers and keys answers; 0: what is known goes on.",
            registry=registry,
        )
        self._reachable.set(1)

    def known(self, callers: int, keys: int) -> None:
        self._callers.set(callers)
        self._keys.set(keys)

    def reachable(self, up: bool) -> None:
        self._reachable.set(int(up))
