"""The boundary's benches measure what they say: the workloads' shapes, and readers that agree."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sluicegate import SSESplitter

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benches.boundary import readers, report, workloads

STREAMS = [workloads.chat_chunks, workloads.running_totals, workloads.usage_chunks]
ONE_PERIOD = 1 + workloads.PERIOD // 16_000


def period(stream: Callable[[], bytes]) -> list[bytes]:
    parts: list[bytes] = workloads.reads(stream(), 16_000)[:ONE_PERIOD]
    assert b"".join(parts).startswith(stream()[: workloads.PERIOD])
    return parts[:20]


@pytest.mark.parametrize("stream", STREAMS)
def test_events_are_chunks_in_one_line(stream: Callable[[], bytes]) -> None:
    events = SSESplitter().feed(stream())
    assert b"".join(events) == stream()
    assert all(150 <= len(event) <= 400 for event in events)
    assert all(event.count(b"\n") == 2 for event in events)
    chunks = [json.loads(event[6:]) for event in events[:500]]
    usages = [chunk["usage"] for chunk in chunks]
    assert (usages == [None] * 500) == (stream is workloads.chat_chunks)
    assert all(bool(chunk["choices"]) != (stream is workloads.usage_chunks) for chunk in chunks)


def test_the_numbers_of_a_seed_are_those_of_the_published_generator() -> None:
    random = workloads.Random(1_234_567)
    assert [random.below(1 << 64) for _ in range(2)] == [6457827717110365317, 3203168211198807973]


@pytest.mark.parametrize("stream", STREAMS)
def test_all_who_split_see_as_many_events(stream: Callable[[], bytes]) -> None:
    parts = period(stream)
    # These end with the events: one that the stream ends within counts for none or for one.
    parts[-1] = parts[-1][: parts[-1].rindex(b"\n\n") + 2]
    counts = {
        reader(parts) for reader in (readers.splitter, readers.decoder, readers.httpx_sse, readers.openai)
    }
    assert len(counts) == 1


@pytest.mark.parametrize("stream", STREAMS)
def test_all_who_watch_see_the_same_usage(stream: Callable[[], bytes]) -> None:
    parts = period(stream)
    parts[-1] = parts[-1][: parts[-1].rindex(b"\n\n") + 2]
    watching = (
        readers.sseclient_orjson,
        readers.sseclient_pysimdjson,
        readers.split_orjson,
        readers.split_pysimdjson,
    )
    tokens = {reader(parts) for reader in watching}
    assert len(tokens) == 1
    # Of several final reports the meter merges each count by itself.
    if stream is not workloads.usage_chunks:
        assert tokens == {readers.meter(parts)}


def test_both_pipelines_show_as_much_as_whoever_makes_each_chunk_anew() -> None:
    parts = period(workloads.usage_chunks)
    parts[-1] = parts[-1][: parts[-1].rindex(b"\n\n") + 2]
    shown = {
        reader(parts)
        for reader in (readers.pipeline, readers.pipeline_asking_python, readers.split_orjson_cost)
    }
    assert len(shown) == 1
    assert shown.pop() > sum(map(len, parts)) * 1.2


def test_a_table_has_a_column_for_each_size_of_reads() -> None:
    found: list[tuple[str, Mapping[str, Any], float]] = [
        ("split", {"reader": "ours", "reads": "16 KiB", "bytes": 2_000_000_000}, 1.0),
        ("split", {"reader": "ours", "reads": "64 KiB", "bytes": 2_000_000_000}, 0.5),
        ("split", {"reader": "theirs", "reads": "16 KiB", "bytes": 2_000_000_000}, 10.0),
        ("first", {"reader": "ours"}, 1.5e-6),
    ]
    assert report.tables(found) == (
        "| split | 16 KiB reads, MB/s | 64 KiB reads, MB/s |\n| --- | --- | --- |\n"
        "| ours | 2,000 | 4,000 |\n| theirs | 200 |  |\n\n"
        "| first | microseconds |\n| --- | --- |\n| ours | 1.50 |"
    )


def test_results_are_read_from_a_file_as_well() -> None:
    entry = {"group": "split", "extra_info": {"reader": "ours"}, "stats": {"median": 1.0}}
    assert report.results([entry]) == [("split", {"reader": "ours"}, 1.0)]
