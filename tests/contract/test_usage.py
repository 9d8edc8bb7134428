"""Usage in one normal form, whatever the dialect, wherever and however often it comes."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import pytest
import pytest_asyncio

import sse_reference
from harness.wire_stand import (
    COMPLETIONS,
    DONE,
    EMBEDDINGS,
    MODEL,
    REPORTED,
    Exchange,
    WireStand,
    assert_billed_as_reported,
    chunk,
    completion,
    dumps,
    event,
    priced,
    request_body,
    usage_chunk,
    wire_stand,
)
from sluicegate.config import Dialect
from sluicegate.testing import Script, body

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
ANSWER = event(chunk("Hi")) + event(chunk(finish="stop"))

COUNTS = ("input_tokens", "cached_input_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")
CASES = [
    case
    for case in json.loads((Path(__file__).parents[1] / "corpus" / "usage_cases.json").read_text())
    if case["api"] in ("chat", "completions", "embeddings")
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    """The upstream also under a name for each dialect, and as one that refuses `stream_options`."""
    config = {
        "upstreams": {
            **{f"as-{name}": {"dialect": name} for name in get_args(Dialect)},
            "strict": {"stream_options": False},
        },
        "models": {
            **{f"as-{name}": f"as-{name}/{MODEL}" for name in get_args(Dialect)},
            "strict": f"strict/{MODEL}",
        },
    }
    async with wire_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
        yield stand


def counted(exchange: Exchange) -> dict[str, int]:
    return {name: exchange.line[name] for name in COUNTS if name in exchange.line}


async def stream_of(wire: WireStand, *usages: Any, **members: Any) -> Exchange:
    """A stream with these usages, each on a chunk of its own."""
    return await wire.ask(
        body(ANSWER, *(event(usage_chunk(usage)) for usage in usages), DONE), **ASKED | members
    )


# === the normal form ===


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
async def test_each_known_way_of_reporting_is_read(wire: WireStand, case: dict[str, Any]) -> None:
    model = f"as-{case['dialect']}" if "dialect" in case else MODEL
    sent = b"".join(
        event(payload.encode() if isinstance(payload, str) else payload) for payload in case["payloads"]
    )
    exchange = await wire.ask(body(sent, DONE), model=model, **ASKED)
    if case["usage"] is None:
        assert "input_tokens" not in exchange.line
        return
    expected = {name: count for name, count in case["usage"].items() if name in COUNTS and count is not None}
    assert counted(exchange) == expected
    assert "estimated" not in exchange.line


async def test_cached_tokens_that_come_in_addition_are_part_of_the_input(wire: WireStand) -> None:
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": 5,
    }
    exchange = await stream_of(wire, usage, model="as-anthropic")
    assert counted(exchange) == {
        "input_tokens": 130,
        "cached_input_tokens": 100,
        "cache_write_tokens": 20,
        "output_tokens": 5,
    }
    assert exchange.line["cost"] == "0.000065"  # 10 at 1, 100 at 0.1, 20 at 1.25, 5 at 4


async def test_reasoning_that_is_left_out_of_the_completion_is_part_of_the_output(wire: WireStand) -> None:
    usage = {
        "prompt_tokens": 12,
        "completion_tokens": 1,
        "total_tokens": 303,
        "completion_tokens_details": {"reasoning_tokens": 290},
    }
    told = await stream_of(wire, usage)
    assert counted(told) == {"input_tokens": 12, "output_tokens": 291, "reasoning_tokens": 290}
    assert told.line["cost"] == "0.001756"  # 12 at 1, 1 at 4, 290 at 6
    named = await stream_of(wire, {**usage, "total_tokens": None}, model="as-xai")
    assert counted(named) == counted(told)


async def test_reasoning_inside_the_completion_is_not_counted_twice(wire: WireStand) -> None:
    usage = {
        "prompt_tokens": 12,
        "completion_tokens": 300,
        "total_tokens": 312,
        "completion_tokens_details": {"reasoning_tokens": 290},
    }
    exchange = await stream_of(wire, usage)
    assert counted(exchange) == {"input_tokens": 12, "output_tokens": 300, "reasoning_tokens": 290}
    assert exchange.line["cost"] == "0.001792"  # 12 at 1, 10 at 4, 290 at 6


# === more than once ===


async def test_usage_that_is_repeated_counts_once(wire: WireStand) -> None:
    exchange = await stream_of(wire, REPORTED, REPORTED, REPORTED)
    assert_billed_as_reported(exchange.line)
    # Each of them is shown, and each with its cost.
    assert exchange.body == ANSWER + priced(event(usage_chunk(REPORTED))) * 3 + DONE


async def test_a_preview_is_replaced(wire: WireStand) -> None:
    exchange = await stream_of(
        wire, {"prompt_tokens": 14, "completion_tokens": 1, "total_tokens": 15}, REPORTED
    )
    assert_billed_as_reported(exchange.line)


async def test_a_chunk_without_choices_does_not_end_the_stream(wire: WireStand) -> None:
    """A preview as the first chunk was taken for the end elsewhere, and 252 tokens for 4."""
    preview = {"prompt_tokens": 14, "completion_tokens": 0, "total_tokens": 14}
    sent = event(usage_chunk(preview)) + ANSWER + event(usage_chunk(REPORTED)) + DONE
    exchange = await wire.ask(body(sent), **ASKED)
    assert [choice["delta"] for p in sse_reference.payloads(exchange.body) for choice in p["choices"]] == [
        {"content": "Hi"},
        {},
    ]
    assert_billed_as_reported(exchange.line)
    folded = await wire.ask(body(sent))
    assert folded.reply.json()["choices"][0]["message"]["content"] == "Hi"
    assert_billed_as_reported(folded.line)


async def test_an_empty_choices_chunk_alone_is_no_end(wire: WireStand) -> None:
    sent = event({"choices": []}) + ANSWER + event({"choices": [], "prompt_filter_results": []}) + DONE
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == sent
    assert exchange.line["finish_reason"] == "stop"


async def test_running_totals_are_not_summed_and_pass_untouched(wire: WireStand) -> None:
    def total(count: int) -> dict[str, Any]:
        return {**REPORTED, "completion_tokens": count, "total_tokens": 14 + count}

    running = b"".join(event(chunk("x", usage=total(count))) for count in range(1, 7))
    last = event(chunk(finish="stop", usage=total(7)))
    exchange = await wire.ask(body(running + last + DONE), **ASKED)
    assert exchange.body == running + priced(last) + DONE
    assert_billed_as_reported(exchange.line)


async def test_the_last_that_is_not_zero_wins_for_each_field(wire: WireStand) -> None:
    exchange = await stream_of(
        wire,
        {"prompt_tokens": 14, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 3}},
        {"prompt_tokens": 0, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 0}},
        {"completion_tokens": 0, "total_tokens": 21, "prompt_tokens_details": None},
    )
    assert_billed_as_reported(exchange.line)


async def test_a_later_null_or_absence_wipes_nothing(wire: WireStand) -> None:
    exchange = await stream_of(wire, REPORTED, None, {})
    assert_billed_as_reported(exchange.line)


async def test_parts_in_several_events_make_one_usage(wire: WireStand) -> None:
    exchange = await stream_of(
        wire,
        {"prompt_tokens": 14},
        {"prompt_tokens_details": {"cached_tokens": 3}},
        {"completion_tokens": 7},
    )
    assert_billed_as_reported(exchange.line)


async def test_zero_is_not_absent(wire: WireStand) -> None:
    zero = await stream_of(wire, {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0})
    assert counted(zero) == {"input_tokens": 0, "output_tokens": 0}
    assert zero.line["cost"] == "0"
    assert "estimated" not in zero.line
    absent = await stream_of(wire, {"completion_tokens": 7})
    assert counted(absent) == {"output_tokens": 7}


# === what is no usage ===


@pytest.mark.parametrize("value", [None, {}, [], "14", 14, True], ids=repr)
async def test_what_is_no_usage_object_is_no_usage(wire: WireStand, value: Any) -> None:
    sent = event(chunk("Hi", usage=value)) + event(chunk(finish="stop", usage=value)) + DONE
    exchange = await wire.ask(body(sent), **ASKED)
    assert exchange.body == sent
    assert "input_tokens" not in exchange.line


@pytest.mark.parametrize(
    "number", [b"-1", b"1.5", b"1e2", b'"14"', b"null", b"true", b"[14]", b"1" * 30, b"14.0"]
)
async def test_what_is_no_unsigned_integer_counts_nothing(wire: WireStand, number: bytes) -> None:
    usage = b'{"choices":[],"usage":{"prompt_tokens":' + number + b',"completion_tokens":7}}'
    exchange = await wire.ask(body(ANSWER + event(usage) + DONE), **ASKED)
    assert counted(exchange) == {"output_tokens": 7}
    assert number in exchange.body
    assert exchange.line["result"] == "ok"


INSIDE = {
    "a string": chunk(json.dumps({"usage": {"prompt_tokens": 1000, "completion_tokens": 1000}})),
    "a string with an end": chunk('"},"usage":{"prompt_tokens":1000},"x":{"y":"'),
    "reasoning": {"choices": [{"delta": {"reasoning_content": '{"usage":{"prompt_tokens":1000}}'}}]},
    "the delta": {"choices": [{"delta": {"content": "a", "usage": {"prompt_tokens": 1000}}}]},
    "a choice": {"choices": [{"delta": {"content": "a"}, "usage": {"prompt_tokens": 1000}}]},
    "another object": chunk("a", metadata={"usage": {"prompt_tokens": 1000}}),
    "an array": chunk("a", extra=[{"usage": {"prompt_tokens": 1000}}]),
    "tool arguments": {
        "choices": [{"delta": {"tool_calls": [{"function": {"arguments": '{"usage":{"prompt_tokens":9}}'}}]}}]
    },
}  # fmt: skip


@pytest.mark.parametrize("payload", INSIDE.values(), ids=INSIDE.keys())
async def test_usage_anywhere_else_is_none(wire: WireStand, payload: dict[str, Any]) -> None:
    alone = event(payload) + event(chunk(finish="stop")) + DONE
    exchange = await wire.ask(body(alone), **ASKED)
    assert exchange.body == alone
    assert "input_tokens" not in exchange.line
    besides = event(payload | {"usage": None}) + event(usage_chunk(REPORTED)) + DONE
    exchange = await wire.ask(body(besides), **ASKED)
    assert exchange.body == priced(besides)
    assert_billed_as_reported(exchange.line)


async def test_usage_within_a_document_s_answer_is_none(wire: WireStand) -> None:
    sent = dumps(completion('{"usage":{"prompt_tokens":1000}}', usage=REPORTED))
    exchange = await wire.ask(body(sent, content_type="application/json"))
    assert exchange.body == priced(sent)
    assert_billed_as_reported(exchange.line)


# === asking for it, and hiding it ===


def asked_for(wire: WireStand) -> Any:
    return wire.request.json().get("stream_options")


async def test_a_stream_is_asked_to_report_usage(wire: WireStand) -> None:
    await wire.stream(Script())
    assert asked_for(wire) == {"include_usage": True}


@pytest.mark.parametrize(
    "options",
    [None, {}, {"include_usage": False}, {"include_usage": None}, {"include_obfuscation": False}],
    ids=repr,
)
async def test_it_is_where_the_client_did_not_ask(wire: WireStand, options: Any) -> None:
    exchange = await wire.ask(
        body(ANSWER, event(usage_chunk(REPORTED)), DONE), stream=True, stream_options=options
    )
    assert asked_for(wire) == {**(options or {}), "include_usage": True}
    assert exchange.body == ANSWER + DONE
    assert_billed_as_reported(exchange.line)


async def test_the_rest_of_the_request_is_not_touched(wire: WireStand) -> None:
    sent = b'{ "model":"small", "n": 1.0, "stream" :true,"messages":[{"content":"\\u00e9"}],"x":[ ] }'
    await wire.ask(Script(), body=sent)
    seen = wire.request.body
    assert json.loads(seen) == json.loads(sent) | {"stream_options": {"include_usage": True}}
    for part in (b'"n": 1.0', b'"stream" :true', b'"content":"\\u00e9"', b'"x":[ ]'):
        assert part in seen


async def test_a_client_that_asked_gets_it(wire: WireStand) -> None:
    sent = ANSWER + event(usage_chunk(REPORTED)) + DONE
    exchange = await wire.ask(body(sent), **ASKED)
    assert asked_for(wire) == {"include_usage": True}
    assert exchange.body == priced(sent)


@pytest.mark.parametrize("choices", [{"choices": []}, {"choices": None}, {}], ids=["empty", "null", "absent"])
async def test_a_client_that_did_not_ask_does_not_see_a_chunk_without_choices(
    wire: WireStand, choices: dict[str, Any]
) -> None:
    sent = ANSWER + event({"id": "c", "object": "chat.completion.chunk", **choices, "usage": REPORTED}) + DONE
    exchange = await wire.ask(body(sent), stream=True)
    assert exchange.body == ANSWER + DONE
    assert_billed_as_reported(exchange.line)


async def test_usage_beside_a_choice_is_not_hidden(wire: WireStand) -> None:
    sent = event(chunk("Hi")) + event(chunk(finish="stop", usage=REPORTED)) + DONE
    exchange = await wire.ask(body(sent), stream=True)
    assert exchange.body == priced(sent)


async def test_a_chunk_without_choices_and_usage_is_not_hidden(wire: WireStand) -> None:
    """Azure's filter chunk."""
    sent = event({"choices": [], "id": "", "prompt_filter_results": [{"prompt_index": 0}]}) + ANSWER + DONE
    exchange = await wire.ask(body(sent), stream=True)
    assert exchange.body == sent


async def test_nothing_is_asked_where_nothing_is_streamed(wire: WireStand) -> None:
    """Some answer 400 to `stream_options` without `stream`."""
    for members in ({}, {"stream": False}, {"stream": None}):
        await wire.ask(Script(), **members)
        assert "stream_options" not in wire.request.json()


async def test_completions_are_asked_and_embeddings_are_not(wire: WireStand) -> None:
    asked = dumps({"model": MODEL, "prompt": "Once", "stream": True})
    exchange = await wire.ask(Script(), path=COMPLETIONS, body=asked)
    assert asked_for(wire) == {"include_usage": True}
    assert all(payload["choices"] for payload in sse_reference.payloads(exchange.body))
    assert exchange.line["input_tokens"] == 12
    exchange = await wire.ask(Script(), path=EMBEDDINGS, body=dumps({"model": MODEL, "input": "Once"}))
    assert "stream_options" not in wire.request.json()
    assert exchange.line["input_tokens"] > 0


@pytest.mark.parametrize(
    "members", [{}, {"stream_options": {"include_usage": True}}], ids=["not asked", "asked"]
)
async def test_an_upstream_known_to_refuse_stream_options_is_never_sent_them(
    wire: WireStand, members: dict[str, Any]
) -> None:
    count = len(wire.upstream.requests)
    exchange = await wire.ask(Script(refuse_stream_options=True), model="strict", stream=True, **members)
    assert exchange.reply.status == 200
    assert "stream_options" not in wire.request.json()
    assert len(wire.upstream.requests) == count + 1


async def test_one_that_answers_400_to_them_is_asked_once_more_without(wire: WireStand) -> None:
    count = len(wire.upstream.requests)
    exchange = await wire.stream(Script(refuse_stream_options=True))
    assert exchange.reply.status == 200
    assert exchange.body.endswith(DONE)
    first, second = [record.json() for record in wire.upstream.requests][count:]
    assert first.pop("stream_options") == {"include_usage": True}
    assert first == second
    assert exchange.line["attempts"] == 1
    assert exchange.line["estimated"] is True


async def test_it_is_asked_without_them_once_only(wire: WireStand) -> None:
    count = len(wire.upstream.requests)
    error = {"message": "stream_options? No.", "type": "invalid_request_error", "code": None, "param": None}
    exchange = await wire.stream(Script(status=400, error=error))
    assert exchange.reply.status == 400
    assert exchange.reply.json() == {"error": error}
    assert len(wire.upstream.requests) == count + 2


async def test_another_400_is_not_asked_again(wire: WireStand) -> None:
    count = len(wire.upstream.requests)
    exchange = await wire.stream(Script(status=400))
    assert exchange.reply.status == 400
    assert len(wire.upstream.requests) == count + 1


async def test_a_stream_without_usage_is_estimated_from_its_events(wire: WireStand) -> None:
    exchange = await wire.stream(body(event(chunk("a")) * 9 + event(chunk(finish="stop")) + DONE))
    assert (exchange.line["output_tokens"], exchange.line["estimated"]) == (9, True)
    assert "input_tokens" not in exchange.line


async def test_a_document_without_usage_is_not(wire: WireStand) -> None:
    """One document is not one token."""
    for content in ("a", "a long answer"):
        exchange = await wire.ask(body(dumps(completion(content)), content_type="application/json"))
        assert "output_tokens" not in exchange.line
        assert "cost" not in exchange.line


async def test_the_request_body_is_one_object_to_the_client_as_well(wire: WireStand) -> None:
    """The last of two equal names counts, for the gateway as for the upstream."""
    sent = request_body(stream=True)[:-1] + b',"stream_options":{},"stream_options":{"include_usage":true}}'
    exchange = await wire.ask(body(ANSWER, event(usage_chunk(REPORTED)), DONE), body=sent)
    assert exchange.body == ANSWER + priced(event(usage_chunk(REPORTED))) + DONE
