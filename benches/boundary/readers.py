"""Who reads the streams: this library, and what else is used for it. Each gives a count of what it saw."""

from collections.abc import Callable, Iterator

import httpx
import orjson
import simdjson
import sseclient
from benches.boundary.workloads import COST
from httpx_sse import EventSource
from openai._streaming import SSEDecoder as OpenAIDecoder

from sluicegate import SSEDecoder, SSESplitter, UsageMeter
from sluicegate._core import Pipeline

Reader = Callable[[list[bytes]], int]

# === sluicegate ===


def splitter(reads: list[bytes]) -> int:
    feed = SSESplitter().feed
    return sum([len(feed(read)) for read in reads])


def decoder(reads: list[bytes]) -> int:
    feed = SSEDecoder().feed
    return sum([len(feed(read)) for read in reads])


def meter(reads: list[bytes]) -> int:
    meter = UsageMeter()
    feed = meter.feed
    for read in reads:
        feed(read)
    return meter.usage.total_tokens or 0 if meter.usage else 0


def _shown(pipeline: Pipeline, reads: list[bytes]) -> int:
    feed = pipeline.feed
    return sum([len(feed(read)) for read in reads])


def pipeline(reads: list[bytes]) -> int:
    return _shown(Pipeline(price=COST), reads)


def pipeline_asking_python(reads: list[bytes]) -> int:
    return _shown(Pipeline(price=lambda usage: COST), reads)


# === others ===


def httpx_sse(reads: list[bytes]) -> int:
    head = {"content-type": "text/event-stream"}
    response = httpx.Response(200, headers=head, content=iter(reads))
    return sum(1 for _ in EventSource(response).iter_sse())


def openai(reads: list[bytes]) -> int:
    return sum(1 for _ in OpenAIDecoder().iter_bytes(iter(reads)))


def _data(reads: list[bytes]) -> Iterator[bytes]:
    """The quickest splitting that Python has: right for LF and one line of data only."""
    rest = b""
    for read in reads:
        *events, rest = (rest + read).split(b"\n\n")
        for event in events:
            yield event[6:]


def sseclient_orjson(reads: list[bytes]) -> int:
    tokens = 0
    for event in sseclient.SSEClient(iter(reads)).events():
        usage = orjson.loads(event.data).get("usage")
        tokens = usage["total_tokens"] if usage else tokens
    return tokens


def sseclient_pysimdjson(reads: list[bytes]) -> int:
    parser = simdjson.Parser()
    tokens = 0
    for event in sseclient.SSEClient(iter(reads)).events():
        usage = parser.parse(event.data.encode()).get("usage")
        tokens = usage["total_tokens"] if usage else tokens
        del usage
    return tokens


def split_orjson(reads: list[bytes]) -> int:
    tokens = 0
    for data in _data(reads):
        usage = orjson.loads(data).get("usage")
        tokens = usage["total_tokens"] if usage else tokens
    return tokens


def split_pysimdjson(reads: list[bytes]) -> int:
    parser = simdjson.Parser()
    tokens = 0
    for data in _data(reads):
        usage = parser.parse(data).get("usage")
        tokens = usage["total_tokens"] if usage else tokens
        del usage
    return tokens


def split_orjson_cost(reads: list[bytes]) -> int:
    cost = orjson.loads(b"{" + COST + b"}")
    size = 0
    for data in _data(reads):
        chunk = orjson.loads(data)
        if chunk.get("usage"):
            chunk["usage"].update(cost)
            data = orjson.dumps(chunk)
        size += len(b"data: " + data + b"\n\n")
    return size
