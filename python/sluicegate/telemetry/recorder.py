"""Passing the record of a finished request to the log, the metrics and other sinks."""

from collections.abc import Callable, Sequence

from sluicegate.telemetry.log import Log, where
from sluicegate.telemetry.record import RequestRecord

Sink = Callable[[RequestRecord], None]
"""Takes a record into memory: any thread, at once. What it raises is logged, and concerns no other sink."""


class Recorder:
    """Where each request's one record goes. Any thread."""

    __slots__ = ("_log", "_sinks")

    def __init__(self, sinks: Sequence[Sink], log: Log) -> None:
        self._sinks = tuple(sinks)
        self._log = log

    def record(self, record: RequestRecord) -> None:
        """Once a request, when it is over. Never raises."""
        for sink in self._sinks:
            try:
                sink(record)
            except Exception as error:
                self._log.error("record_lost", request_id=record.request_id, error=where(error))
