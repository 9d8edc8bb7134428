"""Metrics: right in one process and in several."""

import asyncio
import subprocess
import sys
import textwrap
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from fakes.exposition import Samples
from sluicegate.telemetry import Metrics, RequestRecord
from sluicegate.telemetry.metrics import INTER_TOKEN_BUCKETS, forget_dead


def record(**fields: Any) -> RequestRecord:
    base: dict[str, Any] = {
        "request_id": "r", "endpoint": "chat_completions", "status": 200, "result": "ok", "duration": 1.0,
        "model": "m", "upstream": "u", "attempts": 1,
    }  # fmt: skip
    return RequestRecord(**{**base, **fields})


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


async def test_a_second_scrape_counts_nothing_twice() -> None:
    metrics = Metrics()
    metrics.record(record(input_tokens=5, cost=Decimal("0.25"), fault="reset"))
    first = (await metrics.render())[1]
    assert (await metrics.render())[1] == first
    metrics.record(record(input_tokens=5, cost=Decimal("0.25"), fault="reset"))
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
    metrics.record(record(failed_attempts=(("a", "connect"), ("b", "reset"))))
    samples = await scrape(metrics)
    assert samples.value("sluicegate_faults_total", upstream="a", kind="connect") == 1
    assert samples.value("sluicegate_faults_total", upstream="b", kind="reset") == 1
    assert samples.value("sluicegate_faults_total", upstream="u") is None


async def test_what_is_recorded_shows_without_a_scrape_of_this_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sluicegate.telemetry.metrics.FLUSH_SECONDS", 0.01)
    metrics = Metrics()
    flushed = asyncio.Event()
    flush = metrics.flush

    def and_tell() -> None:
        flush()
        flushed.set()

    monkeypatch.setattr(metrics, "flush", and_tell)
    metrics.record(record())
    await asyncio.wait_for(flushed.wait(), 10)
    counter = metrics._requests.labels("chat_completions", "m", "u", "200", "ok")
    assert counter._value.get() == 1


def test_without_a_loop_it_shows_at_once() -> None:
    metrics = Metrics()
    metrics.record(record())
    assert metrics._requests.labels("chat_completions", "m", "u", "200", "ok")._value.get() == 1


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


# === several processes ===

WORKER = """
    import asyncio, sys
    from sluicegate.telemetry import Metrics, RequestRecord

    metrics = Metrics()
    metrics.stream_started("m")
    metrics.record(RequestRecord("r", "chat", 200, "ok", 1.0, model="m", upstream="u", attempts=1))
    text = asyncio.run(metrics.render())[1].decode()
    if sys.argv[1] == "end":
        metrics.stream_ended("m")
    else:
        print("ready", flush=True)
        sys.stdin.read()
    print(text)
"""


def worker(directory: Path, mode: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WORKER), mode],
        env={"PROMETHEUS_MULTIPROC_DIR": str(directory), "PYTHONPATH": ":".join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_one_worker_shows_the_metrics_of_all(tmp_path: Path) -> None:
    held = worker(tmp_path, "hold")
    try:
        assert held.stdout is not None
        assert held.stdout.readline() == "ready\n"
        text, _ = worker(tmp_path, "end").communicate(timeout=30)
        both = Samples(text)
        assert both.value("sluicegate_requests_total", **WHERE) == 2
        assert both.value("sluicegate_request_duration_seconds_count", **WHERE) == 2
        assert both.value("sluicegate_active_streams", model="m") == 2
    finally:
        held.kill()
        held.communicate(timeout=30)
    # Killed with a stream under way: its requests still count, its streams do not.
    text, _ = worker(tmp_path, "end").communicate(timeout=30)
    after = Samples(text)
    assert after.value("sluicegate_requests_total", **WHERE) == 3
    assert after.value("sluicegate_active_streams", model="m") == 1


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    for name in ("gauge_livesum_x.db", "counter_1.db", "notes.txt"):
        (tmp_path / name).touch()
    forget_dead(str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 3
