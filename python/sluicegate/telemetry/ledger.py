"""Metrics of the ledger."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class LedgerMetrics:
    """Any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._rows = Counter(
            "sluicegate_ledger_rows", "Rows that were put into the ledger.", registry=registry
        )
        self._failures = Counter(
            "sluicegate_ledger_failures",
            "Times that rows could not be put into the ledger's database.",
            registry=registry,
        )
        self._no_room = Counter(
            "sluicegate_ledger_no_room",
            "Requests for which the journal had no room: refused, or served without a row.",
            registry=registry,
        )
        self._not_synced = Counter(
            "sluicegate_ledger_sync_failures",
            "Times that the journal could not be written to the disk, and requests that were refused for it.",
            registry=registry,
        )
        self._waiting = Gauge(
            "sluicegate_ledger_waiting",
            "Requests that have ended and wait to be put into the ledger.",
            registry=registry,
        )

    def shipped(self, rows: int) -> None:
        self._rows.inc(rows)

    def failed(self) -> None:
        self._failures.inc()

    def no_room(self) -> None:
        self._no_room.inc()

    def not_synced(self) -> None:
        self._not_synced.inc()

    def waiting(self, entries: int) -> None:
        self._waiting.set(entries)
