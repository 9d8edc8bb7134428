"""Prometheus metrics of one process.

Recording a request is a few additions to plain numbers: prometheus-client's own counters take about 1 µs
each, and a request has ten of them. The numbers become metrics when somebody asks.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from threading import Lock

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from sluicegate.telemetry.configuration import ConfigurationReport
from sluicegate.telemetry.counters import CountersMetrics
from sluicegate.telemetry.keys import KeyMetrics
from sluicegate.telemetry.ledger import LedgerMetrics
from sluicegate.telemetry.record import RequestRecord, Try
from sluicegate.telemetry.stored import StoredMetrics

# From a cached reply of a small model to the default of the `total` deadline.
DURATION_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
FIRST_TOKEN_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 30, 60, 120)
# Up to the default of `bounds.client_stall_seconds`, and many such stalls in one reply.
CLIENT_BLOCKED_BUCKETS = (0.001, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 600)
INTER_TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 2.5, 10)

_TOKEN_KINDS = ("input", "cached_input", "cache_write", "output", "reasoning")
_WHERE = ("model", "upstream")

# The statuses that operators act upon, each a label of its own; others are told by their class, so that no
# upstream can make up labels.
_STATUSES = frozenset({400, 401, 402, 403, 404, 408, 413, 422, 429, 500, 502, 503, 504, 529})


def reason_label(attempt: Try | None) -> str:
    """The `reason` of a failed attempt, as a label: one of a bounded number."""
    if attempt is None:
        return ""
    _, _, kind, status, reason, *_ = attempt
    if kind == "status" and status is not None:
        return str(status) if status in _STATUSES else f"{status // 100}xx"
    return reason or ""


# What became of the attempt that a request ended with, by the request's result; any other: nobody waited.
_ATTEMPTS = {"ok": "served", "failed": "failed", "refused": "refused"}


class _Distribution:
    """What has been observed, by bucket."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._total += seconds

    def read(self) -> tuple[list[tuple[str, float]], float]:
        """(upper bound, observations up to it) of each bucket, and the sum."""
        below = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*map(str, map(float, self._bounds)), "+Inf"), self._counts, strict=True):
            below += count
            buckets.append((bound, below))
        return buckets, self._total


class _Place:
    """The numbers of one (model, upstream)."""

    __slots__ = (
        "cache_write", "cached_input", "client_blocked", "cost", "disconnects", "estimated", "first_token",
        "implausible", "input", "inter_token", "labels", "output", "reasoning", "unpriced",
    )  # fmt: skip

    def __init__(self, model: str, upstream: str) -> None:
        self.labels = (model, upstream)
        self.input = self.cached_input = self.cache_write = self.output = self.reasoning = 0
        self.cost = 0.0
        self.unpriced = self.estimated = self.implausible = self.disconnects = 0
        self.first_token = _Distribution(FIRST_TOKEN_BUCKETS)
        self.inter_token = _Distribution(INTER_TOKEN_BUCKETS)
        self.client_blocked = _Distribution(CLIENT_BLOCKED_BUCKETS)

    def tokens(self) -> tuple[int, ...]:
        """In the order of `_TOKEN_KINDS`."""
        return self.input, self.cached_input, self.cache_write, self.output, self.reasoning


class _Series:
    """The numbers of one (endpoint, model, upstream)."""

    __slots__ = ("duration", "labels", "place", "requests")

    def __init__(self, endpoint: str, place: _Place) -> None:
        self.labels = (endpoint, *place.labels)
        self.place = place
        self.requests: dict[tuple[int, str], int] = {}
        self.duration = _Distribution(DURATION_BUCKETS)


class Metrics(Collector):
    """The metrics of one gateway. Any thread may record."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self.stored = StoredMetrics(self._registry)
        self.ledger = LedgerMetrics(self._registry)
        self._counters: CountersMetrics | None = None
        self.keys = KeyMetrics(self._registry)
        self.configuration = ConfigurationReport(self._registry)
        self._series: dict[tuple[str, str, str], _Series] = {}
        self._places: dict[tuple[str, str], _Place] = {}
        self._faults: dict[tuple[str, str, str], int] = {}
        self._attempts: dict[tuple[str, str, str], int] = {}
        self._streams: dict[str, int] = {}
        self._dropped = 0
        self._wrong_admin_tokens = 0
        self._unrecorded = 0
        # The deciding thread and the event loop record; while a scrape reads a number it does not change.
        self._lock = Lock()

    @property
    def counters(self) -> CountersMetrics:
        """Shown from the first time that they are asked for: most gateways have no such counters."""
        if self._counters is None:
            self._counters = CountersMetrics(self._registry)
        return self._counters

    def show(self, source: Collector) -> None:
        """Have a scrape ask `source`, too."""
        self._registry.register(source)

    def stream_started(self, model: str) -> None:
        """A streaming request of `model` is under way; `stream_ended` must follow. The deciding thread's."""
        self._streams[model] = self._streams.get(model, 0) + 1

    def stream_ended(self, model: str) -> None:
        self._streams[model] -= 1

    def record(self, record: RequestRecord) -> None:
        """Count a request that is over."""
        with self._lock:
            labels = (record.endpoint, record.model, record.upstream)
            series = self._series.get(labels)
            if series is None:
                series = self._add(*labels)
            place = series.place
            ended = (record.status, record.result)
            series.requests[ended] = series.requests.get(ended, 0) + 1
            if record.attempts:
                series.duration.observe(record.duration)
            if record.client_left:
                place.disconnects += 1
            if record.fault is not None:
                self._fault(record.upstream, record.fault, reason_label(record.last_failed))
            failed = record.failed_attempts
            for attempt in failed:
                self._fault(attempt[0], str(attempt[2]), reason_label(attempt))
                self._attempt(record.model, attempt[0], "failed")
            if record.attempts > len(failed):
                self._attempt(record.model, record.upstream, _ATTEMPTS.get(record.result, "left"))
            if record.streamed:
                if record.time_to_first_token is not None:
                    place.first_token.observe(record.time_to_first_token)
                if record.inter_token_latency is not None:
                    place.inter_token.observe(record.inter_token_latency)
                place.client_blocked.observe(record.client_blocked)
            place.input += record.input_tokens or 0
            place.cached_input += record.cached_input_tokens or 0
            place.cache_write += record.cache_write_tokens or 0
            place.output += record.output_tokens or 0
            place.reasoning += record.reasoning_tokens or 0
            cost = record.cost
            if cost is not None:
                place.cost += float(cost)
            if not record.priced:
                place.unpriced += 1
            if record.estimated:
                place.estimated += 1
            if record.implausible:
                place.implausible += 1

    def dropped_lines(self, total: int) -> None:
        """`total` log lines were lost so far."""
        self._dropped = total

    def unrecorded(self, requests: int) -> None:
        """So many more were refused that nothing else is known of. On the thread that decides."""
        self._unrecorded += requests

    def wrong_admin_token(self) -> None:
        """The admin API was asked with a token that is none. On the event loop."""
        self._wrong_admin_tokens += 1

    async def render(self, accept: str = "") -> tuple[str, bytes]:
        """(content type, exposition). `accept`: the scraper's `Accept` header."""
        encode, content_type = choose_encoder(accept)
        # Thousands of series take milliseconds: not on the loop.
        return content_type, await asyncio.to_thread(encode, self._registry)

    def collect(self) -> Iterator[Metric]:
        """For prometheus-client."""
        yield from self._requests_and_durations()
        yield from self._by_place()
        faults = CounterMetricFamily(
            "sluicegate_faults",
            "Faults by attempt, those that another upstream made good included. reason: the upstream's "
            "status, or why there was no connection (dns, refused, tls, ...); empty where the kind says all.",
            labels=("upstream", "kind", "reason"),
        )
        attempts = CounterMetricFamily(
            "sluicegate_attempts",
            "Attempts to have a request served. result: served, failed, refused (the client's fault) or left "
            "(nobody waited for its end).",
            labels=(*_WHERE, "result"),
        )
        with self._lock:
            counted = [*self._faults.items()]
            tried = [*self._attempts.items()]
        for labels, value in counted:
            faults.add_metric(labels, value)
        yield faults
        for labels, value in tried:
            attempts.add_metric(labels, value)
        yield attempts
        yield CounterMetricFamily(
            "sluicegate_log_lines_dropped", "Log lines that nobody read in time.", value=self._dropped
        )
        yield CounterMetricFamily(
            "sluicegate_admin_wrong_tokens",
            "Wrong tokens that the admin API was sent.",
            value=self._wrong_admin_tokens,
        )
        yield CounterMetricFamily(
            "sluicegate_requests_unrecorded",
            "Requests that were refused while decisions were far behind, of which nothing else is known.",
            value=self._unrecorded,
        )
        streams = GaugeMetricFamily("sluicegate_active_streams", "Streams under way.", labels=("model",))
        for model, count in [*self._streams.items()]:
            streams.add_metric((model,), count)
        yield streams

    def _requests_and_durations(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "sluicegate_requests",
            "Requests that are over. result: ok, failed (also under status 200), refused or client_left; "
            "of background responses also cancelled or interrupted.",
            labels=("endpoint", *_WHERE, "status", "result"),
        )
        durations = HistogramMetricFamily(
            "sluicegate_request_duration_seconds",
            "From the forwarding of a request to the end of its reply.",
            labels=("endpoint", *_WHERE),
        )
        for series in [*self._series.values()]:
            # One by one: whoever records waits for no more than that.
            with self._lock:
                ended = [*series.requests.items()]
                duration = series.duration.read()
            for (status, result), count in ended:
                requests.add_metric((*series.labels, str(status), result), count)
            durations.add_metric(series.labels, *duration)
        yield requests
        yield durations

    def _by_place(self) -> Iterator[Metric]:
        def counter(name: str, text: str, *more: str) -> CounterMetricFamily:
            return CounterMetricFamily(name, text, labels=(*_WHERE, *more))

        def histogram(name: str, text: str) -> HistogramMetricFamily:
            return HistogramMetricFamily(name, text, labels=_WHERE)

        tokens = counter(
            "sluicegate_tokens",
            "Tokens. input includes cached_input and cache_write, output includes reasoning.",
            "kind",
        )
        cost = counter("sluicegate_cost_usd", "Cost in USD.")
        unpriced = counter("sluicegate_unpriced_requests", "Requests with usage but without a price.")
        estimated = counter(
            "sluicegate_estimated_requests",
            "Requests whose upstream did not say all usage: output is counted by events, or input estimated.",
        )
        implausible = counter(
            "sluicegate_implausible_usage", "Requests whose upstream said counts that no request has."
        )
        disconnects = counter(
            "sluicegate_client_disconnects", "Clients that left before the end of the reply."
        )
        first_token = histogram(
            "sluicegate_time_to_first_token_seconds",
            "To the first text, reasoning or tool call of a stream; not to its first byte.",
        )
        inter_token = histogram(
            "sluicegate_inter_token_latency_seconds",
            "Mean gap between events that bore tokens, one observation a stream; without the time in which "
            "the client took nothing.",
        )
        client_blocked = histogram(
            "sluicegate_client_blocked_seconds",
            "How long a stream's upstream was not read because the client took nothing.",
        )
        for place in [*self._places.values()]:
            labels = place.labels
            with self._lock:
                counted = place.tokens()
                cost.add_metric(labels, place.cost)
                unpriced.add_metric(labels, place.unpriced)
                estimated.add_metric(labels, place.estimated)
                implausible.add_metric(labels, place.implausible)
                disconnects.add_metric(labels, place.disconnects)
                first_token.add_metric(labels, *place.first_token.read())
                inter_token.add_metric(labels, *place.inter_token.read())
                client_blocked.add_metric(labels, *place.client_blocked.read())
            for kind, count in zip(_TOKEN_KINDS, counted, strict=True):
                tokens.add_metric((*labels, kind), count)
        yield from (tokens, cost, unpriced, estimated, implausible, disconnects)
        yield from (first_token, inter_token, client_blocked)

    def _add(self, endpoint: str, model: str, upstream: str) -> _Series:
        where = (model, upstream)
        place = self._places.get(where)
        if place is None:
            place = self._places[where] = _Place(*where)
        series = self._series[(endpoint, *where)] = _Series(endpoint, place)
        return series

    def _attempt(self, model: str, upstream: str, result: str) -> None:
        labels = (model, upstream, result)
        self._attempts[labels] = self._attempts.get(labels, 0) + 1

    def _fault(self, upstream: str, kind: str, reason: str) -> None:
        labels = (upstream, kind, reason)
        self._faults[labels] = self._faults.get(labels, 0) + 1
