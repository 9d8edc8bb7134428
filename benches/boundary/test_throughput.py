"""Bytes a second through the boundary. CPU time, since the machines that run this are shared."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from benches.boundary import readers, workloads
from benches.boundary.readers import Reader
from benches.boundary.workloads import READS

# A neighbour's work is not ours: the process's own time counts, and nothing here waits.
pytestmark = pytest.mark.benchmark(timer=time.process_time)

# Of so many, the median counts.
ROUNDS = 7

SPLIT = {
    "SSESplitter": readers.splitter,
    "SSEDecoder": readers.decoder,
    "httpx-sse": readers.httpx_sse,
    "openai's decoder": readers.openai,
}
WATCH = {
    "UsageMeter": readers.meter,
    "Pipeline": readers.pipeline,
    "sseclient-py + orjson": readers.sseclient_orjson,
    "sseclient-py + pysimdjson": readers.sseclient_pysimdjson,
    "bytes.split + orjson": readers.split_orjson,
    "bytes.split + pysimdjson": readers.split_pysimdjson,
}
COST = {
    "Pipeline": readers.pipeline,
    "Pipeline, price in Python": readers.pipeline_asking_python,
    "bytes.split + orjson": readers.split_orjson_cost,
}


def measure(benchmark: Any, group: str, stream: bytes, size: str, name: str, reader: Reader) -> None:
    reads = workloads.reads(stream, READS[size])
    benchmark.group = group
    benchmark.extra_info.update(bytes=sum(map(len, reads)), reads=size, reader=name)
    benchmark.pedantic(reader, (reads,), rounds=ROUNDS, warmup_rounds=1)


def each(named: dict[str, Reader]) -> Callable[[Any], Any]:
    def marked(test: Any) -> Any:
        by_size = pytest.mark.parametrize("size", READS)
        return by_size(pytest.mark.parametrize("name", named)(test))

    return marked


@each(SPLIT)
def test_events(benchmark: Any, name: str, size: str) -> None:
    measure(benchmark, "events", workloads.chat_chunks(), size, name, SPLIT[name])


@each(WATCH)
def test_usage_watched(benchmark: Any, name: str, size: str) -> None:
    measure(benchmark, "usage: null in each chunk", workloads.chat_chunks(), size, name, WATCH[name])


@each(WATCH)
def test_running_totals(benchmark: Any, name: str, size: str) -> None:
    measure(benchmark, "a running total in each chunk", workloads.running_totals(), size, name, WATCH[name])


@each(COST)
def test_usage_read_and_cost_spliced(benchmark: Any, name: str, size: str) -> None:
    measure(
        benchmark, "final usage in each chunk, cost spliced", workloads.usage_chunks(), size, name, COST[name]
    )
