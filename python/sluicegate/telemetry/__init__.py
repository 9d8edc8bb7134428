"""What operators see: the structured log and the metrics."""

from sluicegate.telemetry.configuration import ConfigurationReport
from sluicegate.telemetry.counters import CountersMetrics
from sluicegate.telemetry.keys import KeyMetrics
from sluicegate.telemetry.ledger import LedgerMetrics
from sluicegate.telemetry.log import Log, where
from sluicegate.telemetry.metrics import Metrics
from sluicegate.telemetry.record import RequestRecord, Result, Try
from sluicegate.telemetry.recorder import Recorder, Sink
from sluicegate.telemetry.stored import StoredMetrics

__all__ = [
    "ConfigurationReport",
    "CountersMetrics",
    "KeyMetrics",
    "LedgerMetrics",
    "Log",
    "Metrics",
    "Recorder",
    "RequestRecord",
    "Result",
    "Sink",
    "StoredMetrics",
    "Try",
    "where",
]
