"""That the checks of `harness.strict_openai` and `harness.responses_stream` find what they are there for."""

import copy
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from harness.responses_stream import check, same_answer
from harness.strict_openai import missing_members, validate
from raw_http import ask
from sluicegate.testing import ScriptedUpstream
from sse_reference import parse

Events = list[dict[str, Any]]

EVERYTHING: dict[str, Any] = {
    "reasoning_tokens": 2,
    "tokens": 3,
    "logprobs": True,
    "tool_calls": [{}, {"kind": "custom", "arguments": "free text"}],
}


@pytest.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream() as upstream:
        yield upstream


@pytest.fixture
async def events(upstream: ScriptedUpstream) -> Events:
    """A stream of reasoning, text and two calls that keeps every promise."""
    reply = await ask((upstream.host, upstream.port), EVERYTHING, "/v1/responses", input="hi", stream=True)
    return [event.json() for event in parse(reply.body)[:-1]]


def encode(events: Events) -> bytes:
    return b"".join(named(event["type"], event) for event in events) + b"data: [DONE]\n\n"


def named(name: str, payload: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(payload)}\n\n".encode()


def numbered(events: Events) -> Events:
    for number, event in enumerate(events):
        event["sequence_number"] = number
    return events


def at(events: Events, kind: str) -> dict[str, Any]:
    return next(event for event in events if event["type"] == f"response.{kind}")


def without(events: Events, kind: str) -> Events:
    events.remove(at(events, kind))
    return numbered(events)


def changed(events: Events, kind: str, **members: Any) -> Events:
    at(events, kind).update(members)
    return events


def changed_item(events: Events, kind: str, **members: Any) -> Events:
    at(events, kind)["item"].update(members)
    return events


def changed_end(events: Events, **members: Any) -> Events:
    events[-1]["response"].update(members)
    return events


def shorter(events: Events) -> Events:
    events[-1]["response"]["output"].pop()
    return events


def swapped(events: Events, one: str, other: str) -> Events:
    i, j = events.index(at(events, one)), events.index(at(events, other))
    events[i], events[j] = events[j], events[i]
    return numbered(events)


def after_the_end(events: Events) -> Events:
    return numbered([*events, copy.deepcopy(events[1])])


def repeated(events: Events, kind: str) -> Events:
    event = at(events, kind)
    events.insert(events.index(event) + 1, copy.deepcopy(event))
    return numbered(events)


def error_in_between(events: Events) -> Events:
    error = {"type": "error", "code": None, "message": "late", "param": None, "sequence_number": 0}
    return numbered([*events[:5], error, *events[5:]])


def failed_item(events: Events) -> Events:
    done = [event for event in events if event["type"] == "response.output_item.done"]
    done[0]["item"]["status"] = "incomplete"
    events[-1]["response"]["output"][0] = done[0]["item"]
    return events


BROKEN: dict[str, tuple[Callable[[Events], Events], str]] = {
    "a gap": (lambda e: [*e[:3], *e[4:]], "has number 4"),
    "numbers that stand still": (lambda e: changed(e, "in_progress", sequence_number=0), "has number 0"),
    "no created": (lambda e: without(e, "created"), "the first event is"),
    "created twice": (lambda e: repeated(e, "created"), "twice"),
    "no terminal event": (lambda e: e[:-1], "no terminal event"),
    "an event after the end": (after_the_end, "after the terminal event"),
    "an error in between": (error_in_between, "after an error"),
    "an item not added": (lambda e: without(e, "output_item.added"), "is added as number|was not added"),
    "an item not done": (lambda e: without(e, "output_item.done"), "is done before item 0"),
    "an item added twice": (lambda e: repeated(e, "output_item.added"), "is added as number 1"),
    "another id at the end": (lambda e: changed_item(e, "output_item.done", id="rs_2"), "is done as rs_2"),
    "another kind at the end": (
        lambda e: changed_item(e, "output_item.done", type="compaction", encrypted_content="x"),
        "unknown members|is done as a compaction",
    ),
    "an id that changes": (
        lambda e: changed(e, "output_text.delta", item_id="msg_2"),
        "names item msg_2",
    ),
    "an index of no item": (lambda e: changed(e, "output_text.delta", output_index=9), "was not added"),
    "a part not added": (lambda e: without(e, "content_part.added"), "was not added"),
    "a part not done": (lambda e: without(e, "content_part.done"), "is not done"),
    "a text not done": (lambda e: without(e, "output_text.done"), "is done before its text"),
    "a delta lost": (lambda e: without(e, "output_text.delta"), "the deltas"),
    "a delta in reverse": (
        lambda e: swapped(e, "output_text.delta", "output_text.done"),
        "after the text|the deltas",
    ),
    "another text at its end": (lambda e: changed(e, "output_text.done", text="x"), "says 'x'"),
    "arguments not done": (lambda e: without(e, "function_call_arguments.done"), "is not done"),
    "an argument lost": (lambda e: without(e, "function_call_arguments.delta"), "the deltas"),
    "input lost": (lambda e: without(e, "custom_tool_call_input.delta"), "the deltas"),
    "reasoning lost": (lambda e: without(e, "reasoning_text.delta"), "the deltas"),
    "logprobs lost": (lambda e: changed(e, "output_text.delta", logprobs=[]), "logprobs"),
    "an item missing at the end": (shorter, "output is not what was streamed"),
    "another id of the response": (lambda e: changed_end(e, id="resp_2"), "id has changed"),
    "another model": (lambda e: changed_end(e, model="other"), "model has changed"),
    "an unfinished status": (lambda e: changed_end(e, status="in_progress"), "with status in_progress"),
    "an incomplete item": (failed_item, "has an incomplete item"),
    "a failure that completes": (
        lambda e: changed_end(e, error={"code": "server_error", "message": "x"}),
        "has an error",
    ),
    "a missing member": (lambda e: [{k: v for k, v in x.items() if k != "item_id"} for x in e], "item_id"),
    "an unknown event": (lambda e: changed(e, "in_progress", type="response.thinking"), "does not know"),
    "a text for a number": (lambda e: changed(e, "output_text.delta", content_index="0"), "content_index"),
    "an unknown member": (lambda e: changed(e, "output_text.delta", choice=0), r"unknown members.*\.choice"),
    "an unknown member deep inside": (
        lambda e: changed_item(e, "output_item.added", thinking=True),
        "unknown members",
    ),
    "a status of no item": (lambda e: changed_item(e, "output_item.done", status="done"), "status"),
    "an empty id": (lambda e: changed_item(e, "output_item.added", id=""), "placeholders"),
}


def test_a_stream_that_keeps_every_promise_passes(events: Events) -> None:
    streamed = check(encode(events))
    assert streamed.text == "A sluice lets"
    assert [item["type"] for item in streamed.output] == [
        "reasoning", "message", "function_call", "custom_tool_call",
    ]  # fmt: skip
    assert streamed.types[:2] == ["created", "in_progress"]


@pytest.mark.parametrize(("spoil", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_promise_is_found(events: Events, spoil: Callable[[Events], Events], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check(encode(spoil(events)))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda body: body.replace(b"event: response.created", b"event: created"), "an event named"),
        (lambda body: body.replace(b"event: response.created\n", b""), "an event named ''"),
        (lambda body: body.replace(b"data: [DONE]\n\n", b""), "the stream ends with"),
        (lambda body: body.removesuffix(b"\n"), "not ended"),
        (lambda body: body.replace(b"\n", b"\r\n"), "not ended|line endings"),
        (lambda body: body + b"data: [DONE]\n\n", "Expecting value|DONE"),
    ],
)
def test_broken_framing_is_found(events: Events, spoil: Callable[[bytes], bytes], words: str) -> None:
    with pytest.raises((AssertionError, ValueError), match=words):
        check(spoil(encode(events)))


async def test_objects_are_checked_by_their_name(upstream: ScriptedUpstream) -> None:
    address = (upstream.host, upstream.port)
    asked: dict[str, dict[str, Any]] = {
        "/v1/responses": {"input": "hi"},
        "/v1/chat/completions": {},
        "/v1/completions": {"prompt": "hi"},
        "/v1/embeddings": {"input": "hi"},
    }
    for path, members in asked.items():
        reply = await ask(address, {}, path, stream=False, **members)
        validate(reply.json())
    chat: dict[str, Any] = (await ask(address, {}, "/v1/chat/completions", stream=False)).json()
    for spoiled in (
        {**chat, "created": "now"},
        {**chat, "object": "chat.completions"},
        {**chat, "choices": [{**chat["choices"][0], "finish_reason": "eos"}]},
        {name: value for name, value in chat.items() if name != "model"},
    ):
        with pytest.raises(AssertionError):
            validate(spoiled)


async def test_a_cost_is_the_only_addition_to_usage(upstream: ScriptedUpstream) -> None:
    reply = await ask((upstream.host, upstream.port), {}, "/v1/responses", input="hi", stream=False)
    response = reply.json()
    response["usage"]["cost"] = 0.1
    validate(response)
    response["usage"]["price"] = 0.1
    with pytest.raises(AssertionError, match="price"):
        validate(response)


def test_what_open_responses_requires_is_asked_for(events: Events) -> None:
    response = events[-1]["response"]
    assert "presence_penalty" in missing_members({**response, "presence_penalty": None})
    del response["usage"]["output_tokens_details"]
    assert "usage.output_tokens_details.reasoning_tokens" in missing_members(response)


def test_answers_are_compared_but_for_ids_and_times(events: Events) -> None:
    response = events[-1]["response"]
    other = copy.deepcopy(response) | {"id": "resp_other", "created_at": 1}
    same_answer(response, other)
    other["output"][1]["content"][0]["text"] += "!"
    with pytest.raises(AssertionError):
        same_answer(response, other)
