"""Time to the first chunk: a machine made anew, and one event through it."""

import time
from typing import Any

import pytest
from benches.boundary.workloads import COST, chat_chunks, usage_chunks

from sluicegate import SSEDecoder, UsageMeter
from sluicegate._core import Pipeline

CHUNK, USAGE = (stream()[: stream().index(b"\n\n") + 2] for stream in (chat_chunks, usage_chunks))
GROUP = "first chunk"

pytestmark = pytest.mark.benchmark(timer=time.process_time)


def measure(benchmark: Any, name: str, work: Any) -> None:
    benchmark.group = GROUP
    benchmark.extra_info.update(reader=name)
    assert benchmark.pedantic(work, rounds=200, iterations=500, warmup_rounds=5) is not None


def test_a_chunk_through_a_new_pipeline(benchmark: Any) -> None:
    measure(benchmark, "Pipeline, a chunk", lambda: Pipeline(price=COST).feed(CHUNK))


def test_usage_through_a_new_pipeline_that_asks_python(benchmark: Any) -> None:
    measure(
        benchmark, "Pipeline, usage, price in Python", lambda: Pipeline(price=lambda usage: COST).feed(USAGE)
    )


def test_a_chunk_through_a_pipeline_in_use(benchmark: Any) -> None:
    pipeline = Pipeline(price=COST)
    measure(benchmark, "Pipeline in use, a chunk", lambda: pipeline.feed(CHUNK))


def test_a_chunk_through_a_meter_in_use(benchmark: Any) -> None:
    meter = UsageMeter()
    measure(benchmark, "UsageMeter in use, a chunk", lambda: (meter.feed(CHUNK),))


def test_a_chunk_through_a_decoder_in_use(benchmark: Any) -> None:
    decoder = SSEDecoder()
    measure(benchmark, "SSEDecoder in use, a chunk and its data", lambda: decoder.feed(CHUNK)[0].data)
