"""Metrics: what is recorded is what is shown."""

import asyncio
import threading
from typing import Any

import pytest

from fakes.exposition import Samples
from sluicegate.telemetry import Metrics, RequestRecord, Try
from sluicegate.telemetry.metrics import INTER_TOKEN_BUCKETS


def record(**fields: Any) -> RequestRecord:
    base: dict[str, Any] = {
        "request_id": "r", "endpoint": "chat_completions", "status": 200, "result": "ok", "duration": 1.0,
        "model": "m", "upstream": "u", "attempts": 1,
    }  # fmt: skip
    return RequestRecord(**{**base, **fields})


def attempt(upstream: str, fault: str | None, status: int | None = None, reason: str | None = None) -> Try:
    return upstream, "m", fault, status, reason, 0.0, 0.1


async def scrape(metrics: Metrics) -> Samples:
    return Samples((await metrics.render())[1].decode())


WHERE = {"model": "m", "upstream": "u"}


async def test_requests_are_counted_by_status_and_result() -> None:
    metrics = Metrics()
    for _ in range(3):
        metrics.record(record())
    metrics.record(record(result="failed"))
    metrics.record(record(status=502, result="failed"))
    samples = await scrape(metrics)
    name = "sluicegate_requests_total"
    assert samples.value(name, status="200", result="ok", **WHERE) == 3
    assert samples.value(name, status="200", result="failed", **WHERE) == 1
    assert samples.value(name, status="502", result="failed", **WHERE) == 1


async def test_what_no_upstream_was_asked_about_lacks_no_price() -> None:
    metrics = Metrics()
    refused = RequestRecord("r", "chat_completions", 429, "refused", 0.1, model="m")
    assert refused.priced
    metrics.record(refused)
    assert (await scrape(metrics)).value("sluicegate_unpriced_requests_total") == 0


async def test_a_second_scrape_counts_nothing_twice() -> None:
    metrics = Metrics()
    metrics.record(record(input_tokens=5, cost="0.25", fault="reset"))
    first = (await metrics.render())[1]
    assert (await metrics.render())[1] == first
    metrics.record(record(input_tokens=5, cost="0.25", fault="reset"))
    samples = await scrape(metrics)
    assert samples.value("sluicegate_tokens_total", kind="input") == 10
    assert samples.value("sluicegate_cost_usd_total") == 0.5
    assert samples.value("sluicegate_faults_total", kind="reset", upstream="u") == 2


async def test_all_kinds_of_tokens_are_counted() -> None:
    metrics = Metrics()
    metrics.record(
        record(
            input_tokens=100,
            cached_input_tokens=40,
            cache_write_tokens=7,
            output_tokens=20,
            reasoning_tokens=9,
        )
    )
    samples = await scrape(metrics)
    counted = {
        kind: samples.value("sluicegate_tokens_total", kind=kind, **WHERE)
        for kind in ("input", "cached_input", "cache_write", "output", "reasoning")
    }
    assert counted == {"input": 100, "cached_input": 40, "cache_write": 7, "output": 20, "reasoning": 9}


async def test_a_histogram_is_what_observing_one_by_one_gives() -> None:
    values = [0.0, 0.001, 0.0011, 0.03, 0.05, 9.0, 10.0, 11.0, 5000.0]
    metrics = Metrics()
    for value in values:
        metrics.record(record(streamed=True, inter_token_latency=value))
    samples = await scrape(metrics)
    name = "sluicegate_inter_token_latency_seconds"
    for bound in INTER_TOKEN_BUCKETS:
        below = sum(value <= bound for value in values)
        assert samples.value(f"{name}_bucket", le=str(float(bound)), **WHERE) == below
    assert samples.value(f"{name}_bucket", le="+Inf", **WHERE) == len(values)
    assert samples.value(f"{name}_count", **WHERE) == len(values)
    assert samples.value(f"{name}_sum", **WHERE) == pytest.approx(sum(values))


async def test_times_of_streams_are_not_mixed_with_others() -> None:
    metrics = Metrics()
    metrics.record(record(time_to_first_token=1.0, streamed=False))
    assert (await scrape(metrics)).value("sluicegate_time_to_first_token_seconds_count", **WHERE) == 0


async def test_a_fault_that_another_upstream_made_good_is_counted() -> None:
    metrics = Metrics()
    metrics.record(record(tries=[attempt("a", "connect"), attempt("b", "reset"), attempt("u", None)]))
    samples = await scrape(metrics)
    assert samples.value("sluicegate_faults_total", upstream="a", kind="connect") == 1
    assert samples.value("sluicegate_faults_total", upstream="b", kind="reset") == 1
    assert samples.value("sluicegate_faults_total", upstream="u") is None


async def test_each_attempt_is_counted_by_what_became_of_it() -> None:
    metrics = Metrics()
    metrics.record(record(tries=[attempt("a", "connect"), attempt("u", None)], attempts=2))
    metrics.record(record(result="refused", tries=[attempt("u", "status", 400)], fault="status"))
    metrics.record(
        record(
            result="failed", tries=[attempt("a", "reset"), attempt("u", "reset")], attempts=2, fault="reset"
        )
    )
    metrics.record(record(result="client_left", tries=[attempt("u", None)], client_left=True))
    # It left before the next attempt.
    metrics.record(record(result="client_left", tries=[attempt("u", "empty")], client_left=True))
    samples = await scrape(metrics)

    def counted(upstream: str, result: str) -> float | None:
        return samples.value("sluicegate_attempts_total", upstream=upstream, result=result)

    assert counted("a", "failed") == 2
    assert [counted("u", result) for result in ("served", "refused", "failed", "left")] == [1, 1, 2, 1]


async def test_the_fault_that_ended_a_request_is_counted_once() -> None:
    metrics = Metrics()
    metrics.record(record(tries=[attempt("a", "connect"), attempt("u", "reset")], fault="reset"))
    metrics.record(record(tries=[attempt("u", "reset")], fault="reset"))
    # After the reply had begun, so that the attempt did not fail.
    metrics.record(record(tries=[attempt("u", None)], fault="reset"))
    # The client left before the next attempt.
    metrics.record(record(tries=[attempt("u", "empty")], client_left=True))
    samples = await scrape(metrics)
    assert samples.value("sluicegate_faults_total", upstream="a", kind="connect") == 1
    assert samples.value("sluicegate_faults_total", upstream="u", kind="reset") == 3
    assert samples.value("sluicegate_faults_total", upstream="u", kind="empty") == 1


async def test_a_fault_is_told_by_its_status_or_its_reason() -> None:
    metrics = Metrics()
    for status in (401, 429, 500, 418, 599):
        metrics.record(record(tries=[attempt("u", "status", status)], fault="status"))
    for reason in ("dns", "refused"):
        metrics.record(record(tries=[attempt("u", "connect", None, reason), attempt("v", None)]))
    metrics.record(record(tries=[attempt("u", "empty", 200)], fault="empty"))
    samples = await scrape(metrics)
    name = "sluicegate_faults_total"
    for reason in ("401", "429", "500", "4xx", "5xx"):
        assert samples.value(name, upstream="u", kind="status", reason=reason) == 1, reason
    for reason in ("dns", "refused"):
        assert samples.value(name, upstream="u", kind="connect", reason=reason) == 1, reason
    assert samples.value(name, upstream="u", kind="empty", reason="") == 1


async def test_an_upstream_cannot_make_up_labels() -> None:
    metrics = Metrics()
    for status in range(100, 1000):
        metrics.record(record(tries=[attempt("u", "status", status)], fault="status"))
    assert (await scrape(metrics)).text.count("sluicegate_faults_total{") < 30


async def test_what_several_threads_record_adds_up() -> None:
    metrics = Metrics()

    def work() -> None:
        for _ in range(2000):
            metrics.record(record(input_tokens=1, fault="reset"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    # A scrape in between changes nothing.
    await scrape(metrics)
    for thread in threads:
        await asyncio.to_thread(thread.join, 30)
    samples = await scrape(metrics)
    assert samples.value("sluicegate_requests_total", **WHERE) == 8000
    assert samples.value("sluicegate_tokens_total", kind="input", **WHERE) == 8000
    assert samples.value("sluicegate_request_duration_seconds_count", **WHERE) == 8000
    assert samples.value("sluicegate_faults_total", kind="reset", upstream="u") == 8000


async def test_endpoints_share_the_tokens_of_a_model_and_not_its_requests() -> None:
    metrics = Metrics()
    for endpoint in ("chat_completions", "responses", "responses"):
        metrics.record(record(endpoint=endpoint, output_tokens=10))
    samples = await scrape(metrics)
    assert samples.value("sluicegate_tokens_total", kind="output", **WHERE) == 30
    assert samples.value("sluicegate_requests_total", endpoint="responses", **WHERE) == 2
    assert samples.value("sluicegate_request_duration_seconds_count", endpoint="responses") == 2


async def test_streams_under_way() -> None:
    metrics = Metrics()
    metrics.stream_started("m")
    metrics.stream_started("m")
    metrics.stream_ended("m")
    assert (await scrape(metrics)).value("sluicegate_active_streams", model="m") == 1


async def test_dropped_lines_are_counted_once() -> None:
    metrics = Metrics()
    metrics.dropped_lines(3)
    metrics.dropped_lines(3)
    metrics.dropped_lines(5)
    assert (await scrape(metrics)).value("sluicegate_log_lines_dropped_total") == 5


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain"),
        ("text/plain;version=0.0.4", "text/plain"),
        ("application/openmetrics-text;version=1.0.0", "application/openmetrics-text"),
    ],
)
async def test_the_scraper_gets_the_format_it_accepts(accept: str, content_type: str) -> None:
    metrics = Metrics()
    metrics.record(record())
    given, body = await metrics.render(accept)
    assert given.startswith(content_type)
    assert body.decode().endswith("# EOF\n") is ("openmetrics" in content_type)
