"""`UsageMeter` and `Pipeline`, on the usage of every dialect."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from sluicegate import DocumentTooLarge, EventTooLarge, ParseError, Usage, UsageMeter
from sluicegate._core import Pipeline
from stream_corpus import UsageCase, reads, usage_cases

CASES = pytest.mark.parametrize("case", usage_cases(), ids=lambda case: case.name)


def metered(parts: list[bytes], dialect: str | None = None) -> dict[str, Any] | None:
    meter = UsageMeter(dialect)
    for part in parts:
        meter.feed(part)
    meter.finish()
    return meter.usage.as_dict() if meter.usage else None


@CASES
@pytest.mark.parametrize("size", [1, 5, 100, 1 << 20])
def test_a_meter_reads_every_dialect_however_it_is_framed(case: UsageCase, size: int) -> None:
    for body in (case.stream(), case.stream("\r\n"), case.stream("\r"), case.stream()[:-2], case.documents):
        assert metered(reads(body, size), case.dialect) == case.usage


@CASES
def test_a_pipeline_without_a_price_gives_back_the_very_bytes(case: UsageCase) -> None:
    pipeline = Pipeline(case.api, dialect=case.dialect)
    body = case.stream()
    assert pipeline.feed(body) is body
    assert pipeline.finish() == b""
    usage = pipeline.usage
    assert (usage.as_dict() if usage else None) == case.usage


@CASES
def test_a_price_is_asked_and_shown_and_nothing_else_changes(case: UsageCase) -> None:
    asked: list[Usage] = []

    def price(usage: Usage) -> bytes:
        asked.append(usage)
        return b'"sluice_cost":{"of":%d}' % len(asked)

    pipeline = Pipeline(case.api, dialect=case.dialect, price=price)
    shown = pipeline.feed(case.stream()) + pipeline.finish()
    for number in range(len(asked), 0, -1):
        member = b'"sluice_cost":{"of":%d}' % number
        assert shown.count(member) == 1
        shown = shown.replace(b"," + member, b"").replace(member, b"")
    assert shown == case.stream()
    if asked:
        assert asked[-1].as_dict() == case.usage


def test_counts_that_were_not_reported_are_none() -> None:
    meter = UsageMeter()
    assert meter.usage is None
    meter.feed(b'{"usage":{"prompt_tokens":3,"completion_tokens":0,"cost":0.10}}')
    meter.finish()
    usage = meter.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (3, 0, 3)
    assert usage.cached_input_tokens is None
    assert usage.reasoning_tokens is None
    assert usage.cache_write_1h_tokens is None
    assert usage.upstream_cost == "0.10"
    assert repr(usage) == "Usage(input_tokens=3, output_tokens=0, total_tokens=3)"


def test_usage_is_equal_where_all_of_it_is() -> None:
    def usage(text: bytes) -> Usage | None:
        meter = UsageMeter()
        meter.feed(b'{"usage":{"prompt_tokens":3,%s}}' % text)
        meter.finish()
        return meter.usage

    counted = usage(b'"completion_tokens":0')
    assert counted == usage(b'"completion_tokens":0,"total_tokens":3')
    assert counted != usage(b'"completion_tokens":1')
    assert counted != usage(b'"completion_tokens":0,"cost":0.10')
    assert counted != "a usage"


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown dialect 'nobody'"):
        UsageMeter("nobody")
    with pytest.raises(ValueError, match="unknown dialect 'nobody'"):
        Pipeline(dialect="nobody")
    with pytest.raises(ValueError, match="unknown API 'images'"):
        Pipeline("images")


# === bounds ===

USED = b'data: {"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":1}}\n\n'


def test_a_meter_that_failed_stays_so_and_keeps_what_it_read() -> None:
    meter = UsageMeter(max_event_bytes=100)
    meter.feed(USED)
    for _ in range(2):
        with pytest.raises(EventTooLarge) as raised:
            meter.feed(b"data: " + b"x" * 200)
        assert raised.value.offset == len(USED) + 100
    with pytest.raises(EventTooLarge):
        meter.finish()
    assert meter.usage is not None
    assert meter.usage.total_tokens == 3


def test_a_document_is_bounded() -> None:
    meter = UsageMeter()
    meter.feed(b'{"text":"')
    for _ in range(63):
        meter.feed(b"x" * (1 << 20))
    with pytest.raises(DocumentTooLarge) as raised:
        meter.feed(b"x" * (1 << 20))
    assert raised.value.offset == 64 << 20
    assert isinstance(raised.value, ParseError)


def test_a_pipeline_hands_out_what_came_before_its_error() -> None:
    pipeline = Pipeline()
    body = USED + b"data: " + b"x" * (17 << 20)
    assert pipeline.feed(body) == USED
    calls: list[Callable[[], bytes]] = [lambda: pipeline.feed(USED), pipeline.finish]
    for call in calls:
        with pytest.raises(EventTooLarge) as raised:
            call()
        assert raised.value.offset == len(USED) + (16 << 20)


# === prices ===


@pytest.mark.parametrize("price", [b"", b"cost", b'{"cost":1}', b'"cost":1,', b'"cost":01', b'"cost":"\n"'])
def test_a_price_that_is_no_members_is_refused_where_it_is_given(price: bytes) -> None:
    with pytest.raises(ValueError, match="not JSON members"):
        Pipeline(price=price)
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":2}}\n\n'
    assert Pipeline(price=lambda usage: price).feed(usage) == usage


def test_a_price_may_be_the_members_themselves() -> None:
    pipeline = Pipeline(price=b'"cost":1')
    assert pipeline.feed(USED) == USED.replace(b"}}", b',"cost":1}}')


def test_what_a_price_raises_is_raised_and_no_byte_is_lost() -> None:
    def price(usage: Usage) -> bytes:
        raise LookupError(usage.total_tokens)

    pipeline = Pipeline(price=price)
    with pytest.raises(LookupError, match="3"):
        pipeline.feed(USED + USED)
    with pytest.raises(LookupError):
        pipeline.feed(USED)
    assert pipeline.finish() == USED * 3


@pytest.mark.parametrize("price", [lambda usage: "text", lambda usage: 1, 7])
def test_a_price_that_is_none_is_an_error(price: Any) -> None:
    with pytest.raises(TypeError):
        Pipeline(price=price).feed(USED)


def test_a_reply_that_broke_off_is_truncated() -> None:
    pipeline = Pipeline()
    pipeline.feed(b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n')
    assert not pipeline.truncated
    pipeline.finish()
    assert pipeline.truncated
    whole = Pipeline()
    whole.feed(b"data: [DONE]\n\n")
    whole.finish()
    assert not whole.truncated


def test_a_pipeline_makes_a_stream_of_a_completion_and_back() -> None:
    message = {"role": "assistant", "content": "Hello"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    used: dict[str, Any] = {"prompt_tokens": 2, "completion_tokens": 1}
    completion: dict[str, Any] = {"object": "chat.completion", "choices": [choice], "usage": used}
    unfolding = Pipeline(streams=True, price=b'"cost":1')
    stream = unfolding.feed(json.dumps(completion).encode()) + unfolding.finish()
    assert stream.endswith(b"data: [DONE]\n\n")
    folding = Pipeline(streams=False)
    folded = json.loads(folding.feed(stream) + folding.finish())
    assert folded == {**completion, "usage": {**used, "cost": 1}}
