"""The Responses API: order, numbering, and that events add up to the final response."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import Field, TypeAdapter

from raw_http import ask
from sluicegate.testing import ScriptedUpstream
from sse_reference import parse

EVENT: TypeAdapter[Any] = TypeAdapter(Annotated[ResponseStreamEvent, Field(discriminator="type")])
PATH = "/v1/responses"
SCRIPTS: dict[str, dict[str, Any]] = {
    "text": {},
    "nothing": {"tokens": 0},
    "reasoning": {"reasoning_tokens": 4},
    "refusal": {"refusal": "I will not."},
    "calls": {"tokens": 0, "tool_calls": [{}, {"name": "g", "arguments": ""}]},
    "custom": {"tool_calls": [{"kind": "custom", "arguments": "free text"}]},
    "all": {"reasoning_tokens": 2, "tool_calls": [{}]},
    "length": {"finish_reason": "length"},
    "filter": {"reasoning_tokens": 2, "finish_reason": "content_filter"},
    "logprobs": {"logprobs": True},
}


@pytest.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream() as upstream:
        yield upstream


async def stream(upstream: ScriptedUpstream, mock: dict[str, Any], **members: Any) -> list[dict[str, Any]]:
    reply = await ask((upstream.host, upstream.port), mock, PATH, input="hi", **members)
    *events, done = parse(reply.body)
    assert done.data == "[DONE]"
    assert [event.name for event in events] == [event.json()["type"] for event in events]
    return [event.json() for event in events]


async def document(upstream: ScriptedUpstream, mock: dict[str, Any], **members: Any) -> Any:
    reply = await ask((upstream.host, upstream.port), mock, PATH, input="hi", stream=False, **members)
    return reply.json()


def folded(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The output items that the deltas add up to, closed items taken as they say they are."""
    items: dict[int, dict[str, Any]] = {}
    for event in events:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert event["output_index"] == len(items)
            items[event["output_index"]] = {**event["item"], "said": ""}
        elif kind.endswith(".delta"):
            item = items[event["output_index"]]
            assert item["id"] == event["item_id"]
            item["said"] += event["delta"]
        elif kind == "output_item.done":
            item = items[event["output_index"]]
            assert item["id"] == event["item"]["id"]
            done = event["item"]
            part = (done.get("content") or [{}])[0]
            whole = [part.get(name) for name in ("text", "refusal")] + [
                done.get("arguments"),
                done.get("input"),
            ]
            assert item["said"] == next(text for text in whole if text is not None)
            items[event["output_index"]] = done
    return list(items.values())


@pytest.mark.parametrize("name", SCRIPTS)
async def test_events_validate_and_are_numbered_without_a_gap(upstream: ScriptedUpstream, name: str) -> None:
    events = await stream(upstream, SCRIPTS[name])
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        assert EVENT.validate_python(event).type == event["type"]


@pytest.mark.parametrize("name", SCRIPTS)
async def test_events_add_up_to_the_final_response_and_to_the_document(
    upstream: ScriptedUpstream, name: str
) -> None:
    events = await stream(upstream, SCRIPTS[name])
    final = events[-1]["response"]
    assert folded(events) == final["output"]
    assert final == await document(upstream, SCRIPTS[name])
    Response.model_validate(final)


async def test_the_order_of_events(upstream: ScriptedUpstream) -> None:
    mock = {"text": "a", "reasoning_tokens": 1, "tool_calls": [{"arguments": "{}"}]}
    assert [event["type"].removeprefix("response.") for event in await stream(upstream, mock)] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]


@pytest.mark.parametrize(
    ("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")]
)
async def test_an_incomplete_response(upstream: ScriptedUpstream, finish: str, reason: str) -> None:
    last = (await stream(upstream, {"reasoning_tokens": 1, "finish_reason": finish}))[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["status"] == "incomplete"
    assert last["response"]["incomplete_details"] == {"reason": reason}
    assert [item["status"] for item in last["response"]["output"]] == ["completed", "incomplete"]


async def test_usage_is_on_the_final_response_only(upstream: ScriptedUpstream) -> None:
    mock = {"reasoning_tokens": 2, "usage": {"input_tokens": 9, "cached_tokens": 4}}
    first, *_, last = await stream(upstream, mock)
    assert first["response"]["usage"] is None
    assert last["response"]["usage"] == {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 19,
    }
    assert (await document(upstream, {"usage": {"placement": "none"}}))["usage"] is None


async def test_what_was_asked_is_shown_again(upstream: ScriptedUpstream) -> None:
    asked = {
        "model": "named",
        "instructions": "be kind",
        "temperature": 0.5,
        "metadata": {"a": "b"},
        "reasoning": {"effort": "low"},
        "previous_response_id": "resp_before",
        "store": False,
    }
    response = await document(upstream, {}, **asked)
    assert {name: response[name] for name in asked} == {
        **asked,
        "reasoning": {"effort": "low", "summary": None},
    }


async def test_a_failure_in_the_stream(upstream: ScriptedUpstream) -> None:
    error = {"type": "server_error", "code": "rate_limit_exceeded", "message": "no more", "param": None}
    mock: dict[str, Any] = {"faults": [{"action": "error", "events": 6, "error": error}]}
    reply = await ask((upstream.host, upstream.port), mock, PATH, input="hi")
    events = [event.json() for event in parse(reply.body)]
    assert [event["sequence_number"] for event in events] == list(range(8))
    assert events[6] == {"type": "error", "sequence_number": 6, "error": error}
    failed = EVENT.validate_python(events[7])
    assert (failed.type, failed.response.status) == ("response.failed", "failed")
    assert failed.response.error.message == "no more"
    assert failed.response.id == events[0]["response"]["id"]
    mock["faults"][0]["style"] = "event"
    reply = await ask((upstream.host, upstream.port), mock, PATH, input="hi")
    flat = EVENT.validate_python(parse(reply.body)[6].json())
    assert (flat.code, flat.message, flat.param) == ("rate_limit_exceeded", "no more", None)


async def test_a_stream_may_lack_its_terminal_event(upstream: ScriptedUpstream) -> None:
    events = await stream(upstream, {"finish_reason": None})
    assert events[-1]["type"] == "response.output_item.done"
