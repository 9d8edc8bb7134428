"""What operators see: the structured log and the metrics."""

from sluicegate.telemetry.log import Log, where
from sluicegate.telemetry.metrics import Metrics
from sluicegate.telemetry.record import RequestRecord, Result
from sluicegate.telemetry.stored import StoredMetrics

__all__ = ["Log", "Metrics", "RequestRecord", "Result", "StoredMetrics", "where"]
