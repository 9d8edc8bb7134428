"""Prometheus metrics, right with any number of workers.

Recording a request is a few additions to plain numbers. Twice a second and at each scrape they are moved
into prometheus-client's values, which in multiprocess mode live in files that every worker reads. Updating
one of those takes 1 to 3 µs, and a request has about ten: this way many requests share one update.

Multiprocess mode is prometheus-client's own: `PROMETHEUS_MULTIPROC_DIR` must be set before its first import.
"""

import asyncio
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from sluicegate.telemetry.record import RequestRecord
from sluicegate.telemetry.stored import StoredMetrics

FLUSH_SECONDS = 0.5

# From a cached reply of a small model to the default of the `total` deadline.
DURATION_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
FIRST_TOKEN_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 30, 60, 120)
INTER_TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 2.5, 10)


class _MergedHistogram(Histogram):
    """A histogram that takes many observations at once.

    prometheus-client has no public way to do that; `_buckets` and `_sum` are what `observe` itself writes to.
    """

    def merge(self, counts: Sequence[int], total: float) -> None:
        for bucket, count in zip(self._buckets, counts, strict=True):
            if count:
                bucket.inc(count)
        self._sum.inc(total)


class _Distribution:
    """Observations that wait to be merged."""

    __slots__ = ("_bounds", "_counts", "_target", "_total")

    def __init__(self, bounds: Sequence[float], target: Callable[[Sequence[int], float], None]) -> None:
        self._bounds = bounds
        self._target = target
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._total += seconds

    def flush(self) -> None:
        if any(self._counts):
            counts, total = self._counts, self._total
            self._counts, self._total = [0] * len(counts), 0.0
            self._target(counts, total)


class _Sum:
    """An amount that waits to be added to a counter."""

    __slots__ = ("_target", "value")

    def __init__(self, target: Callable[[float], None]) -> None:
        self.value = 0.0
        self._target = target

    def flush(self) -> None:
        if self.value:
            value, self.value = self.value, 0.0
            self._target(value)


_TOKEN_KINDS = ("input", "cached_input", "cache_write", "output", "reasoning")


class _Series:
    """Everything with one (endpoint, model, upstream): its labels are looked up once."""

    __slots__ = (
        "_labels", "_requests", "cache_write", "cached_input", "cost", "disconnects", "duration", "estimated",
        "first_token", "input", "inter_token", "output", "reasoning", "statuses", "unpriced",
    )  # fmt: skip

    def __init__(self, metrics: "Metrics", endpoint: str, model: str, upstream: str) -> None:
        self._labels = (endpoint, model, upstream)
        self._requests = metrics._requests
        self.statuses: dict[tuple[int, str], _Sum] = {}
        where = (model, upstream)
        self.input, self.cached_input, self.cache_write, self.output, self.reasoning = (
            _Sum(metrics._tokens.labels(*where, kind).inc) for kind in _TOKEN_KINDS
        )
        self.cost = _Sum(metrics._cost.labels(*where).inc)
        self.unpriced = _Sum(metrics._unpriced.labels(*where).inc)
        self.estimated = _Sum(metrics._estimated.labels(*where).inc)
        self.disconnects = _Sum(metrics._disconnects.labels(*where).inc)
        self.duration = _Distribution(DURATION_BUCKETS, metrics._duration.labels(*self._labels).merge)
        self.first_token = _Distribution(FIRST_TOKEN_BUCKETS, metrics._first_token.labels(*where).merge)
        self.inter_token = _Distribution(INTER_TOKEN_BUCKETS, metrics._inter_token.labels(*where).merge)

    def requests(self, status: int, result: str) -> _Sum:
        waiting = self.statuses.get((status, result))
        if waiting is None:
            counter = self._requests.labels(*self._labels, str(status), result)
            waiting = self.statuses[status, result] = _Sum(counter.inc)
        return waiting

    def flush(self) -> None:
        for waiting in self.statuses.values():
            waiting.flush()
        for waiting in (
            self.input, self.cached_input, self.cache_write, self.output, self.reasoning,
            self.cost, self.unpriced, self.estimated, self.disconnects,
        ):  # fmt: skip
            waiting.flush()
        for distribution in (self.duration, self.first_token, self.inter_token):
            distribution.flush()


class Metrics:
    """The metrics of one gateway. Any thread may record; the rest is for the event loop's."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter(
            "sluicegate_requests",
            "Requests that are over. result: ok, failed (also under status 200), refused or client_left.",
            ("endpoint", "model", "upstream", "status", "result"),
            registry=registry,
        )
        where = ("model", "upstream")
        self._tokens = Counter(
            "sluicegate_tokens",
            "Tokens. input includes cached_input and cache_write, output includes reasoning.",
            (*where, "kind"),
            registry=registry,
        )
        self._cost = Counter("sluicegate_cost_usd", "Cost in USD.", where, registry=registry)
        self._unpriced = Counter(
            "sluicegate_unpriced_requests",
            "Requests with usage but without a price.",
            where,
            registry=registry,
        )
        self._estimated = Counter(
            "sluicegate_estimated_requests",
            "Requests whose reply ended before its usage: output tokens are counted from events.",
            where,
            registry=registry,
        )
        self._disconnects = Counter(
            "sluicegate_client_disconnects",
            "Clients that left before the end of the reply.",
            where,
            registry=registry,
        )
        self._faults = Counter(
            "sluicegate_faults",
            "Faults by attempt, those that another upstream made good included.",
            ("upstream", "kind"),
            registry=registry,
        )
        self._dropped = Counter(
            "sluicegate_log_lines_dropped", "Log lines that nobody read in time.", registry=registry
        )
        self._duration = _MergedHistogram(
            "sluicegate_request_duration_seconds",
            "From the forwarding of a request to the end of its reply.",
            ("endpoint", *where),
            buckets=DURATION_BUCKETS,
            registry=registry,
        )
        self._first_token = _MergedHistogram(
            "sluicegate_time_to_first_token_seconds",
            "To the first text, reasoning or tool call of a stream; not to its first byte.",
            where,
            buckets=FIRST_TOKEN_BUCKETS,
            registry=registry,
        )
        self._inter_token = _MergedHistogram(
            "sluicegate_inter_token_latency_seconds",
            "Mean gap between events that bore tokens, one observation a stream.",
            where,
            buckets=INTER_TOKEN_BUCKETS,
            registry=registry,
        )
        self._active = Gauge(
            "sluicegate_active_streams",
            "Streams under way.",
            ("model",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.stored = StoredMetrics(registry)
        self._series: dict[tuple[str, str, str], _Series] = {}
        self._dirty: set[_Series] = set()
        self._waiting_faults: dict[tuple[str, str], _Sum] = {}
        self._streams: dict[str, Gauge] = {}
        self._flush_planned = False
        self._known_dropped = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._recording = Lock()

    def flush_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Flush on `loop` from now on. Without one each record is flushed at once."""
        self._loop = loop

    def stream_started(self, model: str) -> None:
        """A streaming request of `model` is under way; `stream_ended` must follow."""
        gauge = self._streams.get(model)
        if gauge is None:
            gauge = self._streams[model] = self._active.labels(model)
        gauge.inc()

    def stream_ended(self, model: str) -> None:
        self._streams[model].dec()

    def record(self, record: RequestRecord) -> None:
        """Count a request that is over."""
        with self._recording:
            self._count(record)
            plan, self._flush_planned = not self._flush_planned, True
        if plan:
            self._plan_flush()

    def _count(self, record: RequestRecord) -> None:
        labels = (record.endpoint, record.model, record.upstream)
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = _Series(self, *labels)
        series.requests(record.status, record.result).value += 1
        if record.attempts:
            series.duration.observe(record.duration)
        if record.client_left:
            series.disconnects.value += 1
        if record.failed_attempts:
            for upstream, kind in record.failed_attempts:
                self._fault(upstream, kind)
        if record.fault is not None:
            self._fault(record.upstream, record.fault)
        if record.streamed:
            if record.time_to_first_token is not None:
                series.first_token.observe(record.time_to_first_token)
            if record.inter_token_latency is not None:
                series.inter_token.observe(record.inter_token_latency)
        if record.input_tokens:
            series.input.value += record.input_tokens
        if record.cached_input_tokens:
            series.cached_input.value += record.cached_input_tokens
        if record.cache_write_tokens:
            series.cache_write.value += record.cache_write_tokens
        if record.output_tokens:
            series.output.value += record.output_tokens
        if record.reasoning_tokens:
            series.reasoning.value += record.reasoning_tokens
        if record.cost is not None:
            series.cost.value += float(record.cost)
        if not record.priced:
            series.unpriced.value += 1
        if record.estimated:
            series.estimated.value += 1
        self._dirty.add(series)

    def dropped_lines(self, total: int) -> None:
        """`total` log lines were lost in this process so far."""
        if total > self._known_dropped:
            self._dropped.inc(total - self._known_dropped)
            self._known_dropped = total

    def flush(self) -> None:
        """Move what waits into prometheus-client's values, where other workers see it."""
        with self._recording:
            self._flush_planned = False
            dirty, self._dirty = self._dirty, set()
            for waiting in self._waiting_faults.values():
                waiting.flush()
        for series in dirty:
            # One by one: whoever records waits for no more than that.
            with self._recording:
                series.flush()

    async def render(self, accept: str = "") -> tuple[str, bytes]:
        """(content type, exposition) of all workers. `accept`: the scraper's `Accept` header."""
        self.flush()
        encode, content_type = choose_encoder(accept)
        # Reading every worker's files may take milliseconds: not on the loop.
        return content_type, await asyncio.to_thread(lambda: encode(self._all_workers()))

    def _all_workers(self) -> CollectorRegistry:
        directory = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        if not directory:
            return self._registry
        forget_dead(directory)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=directory)  # type: ignore[no-untyped-call]
        return registry

    def _fault(self, upstream: str, kind: str) -> None:
        waiting = self._waiting_faults.get((upstream, kind))
        if waiting is None:
            waiting = self._waiting_faults[upstream, kind] = _Sum(self._faults.labels(upstream, kind).inc)
        waiting.value += 1

    def _plan_flush(self) -> None:
        loop = self._loop
        try:
            if loop is not None:
                loop.call_soon_threadsafe(loop.call_later, FLUSH_SECONDS, self.flush)
                return
        except RuntimeError:  # The loop is closed.
            pass
        self.flush()


def forget_dead(directory: str) -> None:
    """Take the live gauges of workers that died (not of those that ended) out of the sum."""
    for pid in _pids(Path(directory).glob("gauge_live*_*.db")):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            mark_process_dead(pid, directory)  # type: ignore[no-untyped-call]
        except PermissionError:
            pass


def _pids(files: Iterable[Path]) -> set[int]:
    texts = (file.stem.rpartition("_")[2] for file in files)
    return {int(text) for text in texts if text.isdigit()}
