"""A stream or a document, asked for or given: all four corners."""

import json
from collections.abc import AsyncIterator
from typing import Any

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
    usage_chunk,
    wire_stand,
)
from sluicegate.testing import Script, body

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
STREAM = event(chunk("Hel")) + event(chunk("lo", finish="stop")) + event(usage_chunk(REPORTED)) + DONE

RICH: dict[str, Any] = {
    "id": "chatcmpl-rich",
    "object": "chat.completion",
    "created": 1700000000,
    "model": "upstream-model",
    "service_tier": "default",
    "system_fingerprint": "fp_1",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Grüße, 🦦!",
                "reasoning_content": "Hm.",
                "refusal": None,
            },
            "logprobs": {
                "content": [{"token": "Grüße", "logprob": -0.5, "bytes": [71], "top_logprobs": []}],
                "refusal": None,
            },
            "finish_reason": "stop",
        },
        {
            "index": 1,
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "get_weather", "arguments": '{"city":"Rome"}'},
                        "extra_content": {"google": {"thought_signature": "c2ln"}},
                    },
                    {"id": "call_2", "type": "function", "function": {"name": "stop", "arguments": ""}},
                ],
            },
            "finish_reason": "tool_calls",
        },
        {
            "index": 2,
            "message": {"role": "assistant", "content": "", "refusal": "I will not."},
            "finish_reason": "content_filter",
        },
    ],
    "usage": REPORTED,
}  # fmt: skip
"""Everything a completion may hold."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    config = {
        "upstreams": {"streams": {"streaming": "always"}, "whole": {"streaming": "never"}},
        "models": {
            "streams": f"streams/{MODEL}",
            "whole": f"whole/{MODEL}",
            "shown": {"routes": [f"local/{MODEL}"], "reply_model": "public"},
        },
    }
    async with wire_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
        yield stand


async def unfolded(wire: WireStand, document: Any, **members: Any) -> Exchange:
    """What a streaming client gets of a whole completion."""
    return await wire.ask(body(dumps(document), content_type="application/json"), **(ASKED | members))


def without_cost(document: dict[str, Any]) -> dict[str, Any]:
    usage = {name: value for name, value in document["usage"].items() if not name.startswith("cost")}
    return document | {"usage": usage}


# === as asked ===


async def test_a_stream_for_a_stream_is_forwarded(wire: WireStand) -> None:
    exchange = await wire.ask(body(STREAM), **ASKED)
    assert exchange.body == priced(STREAM)
    assert exchange.reply.headers["content-type"].startswith("text/event-stream")
    assert exchange.line["streamed"] is True


async def test_a_document_for_a_document_is_forwarded_with_its_cost(wire: WireStand) -> None:
    sent = json.dumps(RICH, ensure_ascii=False).encode()
    exchange = await wire.ask(body(sent, content_type="application/json"))
    usage = json.dumps(REPORTED).encode()
    before, after = sent.split(usage)
    assert exchange.body.startswith(before + usage[:-1] + b',"cost":0.0000393')
    assert exchange.body.endswith(after)
    assert without_cost(exchange.reply.json()) == RICH
    assert exchange.line["streamed"] is False
    assert_billed_as_reported(exchange.line)


@pytest.mark.parametrize("stream", [False, None], ids=["false", "null"])
async def test_stream_false_and_null_ask_for_none(wire: WireStand, stream: Any) -> None:
    exchange = await wire.ask(body(STREAM), stream=stream)
    assert exchange.reply.json()["object"] == "chat.completion"


# === a document for a client that asked for a stream ===


async def test_a_document_is_made_chunks(wire: WireStand) -> None:
    exchange = await unfolded(wire, RICH)
    assert exchange.reply.headers["content-type"].startswith("text/event-stream")
    assert exchange.reply.headers["cache-control"] == "no-cache"
    assert exchange.body.endswith(DONE)
    assert exchange.body.count(b"[DONE]") == 1
    chunks = sse_reference.payloads(exchange.body)
    for made in chunks:
        assert made["object"] == "chat.completion.chunk"
        assert (made["id"], made["created"], made["model"]) == ("chatcmpl-rich", 1700000000, "upstream-model")
        assert all("delta" in choice and "message" not in choice for choice in made["choices"])
    *answer, last = chunks
    assert last["choices"] == []
    assert last["usage"]["cost"] == 0.0000393
    assert all(made["choices"] for made in answer)
    assert exchange.line["streamed"] is True
    assert exchange.line["finish_reason"] == "stop"
    assert_billed_as_reported(exchange.line)


async def test_each_part_of_a_message_is_in_some_delta(wire: WireStand) -> None:
    chunks = sse_reference.payloads((await unfolded(wire, RICH)).body)

    def deltas(index: int) -> list[dict[str, Any]]:
        found = [choice for made in chunks for choice in made["choices"] if choice["index"] == index]
        assert [choice["finish_reason"] for choice in found[:-1]] == [None] * (len(found) - 1)
        assert found[-1]["finish_reason"] == RICH["choices"][index]["finish_reason"]
        return [choice["delta"] for choice in found]

    text = deltas(0)
    assert text[0]["role"] == "assistant"
    assert "".join(delta.get("content") or "" for delta in text) == "Grüße, 🦦!"
    assert "".join(delta.get("reasoning_content") or "" for delta in text) == "Hm."
    places = [
        next(i for i, delta in enumerate(text) if delta.get(name))
        for name in ("reasoning_content", "content")
    ]
    assert places == sorted(places), "reasoning comes first"
    calls = [call for delta in deltas(1) for call in delta.get("tool_calls", [])]
    assert [call["index"] for call in calls] == [0, 1]
    assert [call["function"]["name"] for call in calls] == ["get_weather", "stop"]
    assert calls[0]["extra_content"] == {"google": {"thought_signature": "c2ln"}}
    assert "".join(delta.get("refusal") or "" for delta in deltas(2)) == "I will not."
    logprobs = [choice["logprobs"] for made in chunks for choice in made["choices"] if choice.get("logprobs")]
    assert logprobs == [RICH["choices"][0]["logprobs"]]


async def test_its_usage_is_not_shown_to_a_client_that_did_not_ask(wire: WireStand) -> None:
    exchange = await unfolded(wire, RICH, stream_options=None)
    assert b"usage" not in exchange.body
    assert all(made["choices"] for made in sse_reference.payloads(exchange.body))
    assert_billed_as_reported(exchange.line)


async def test_chunks_as_lines_of_json_are_made_events(wire: WireStand) -> None:
    lines = dumps(chunk("Hel")) + b"\n" + dumps(chunk("lo", finish="stop")) + b"\n"
    exchange = await wire.ask(body(lines, content_type="application/x-ndjson"), **ASKED)
    assert sse_reference.payloads(exchange.body) == [chunk("Hel"), chunk("lo", finish="stop")]
    assert exchange.body.endswith(DONE)
    assert exchange.line["result"] == "ok"


async def test_an_error_instead_of_a_completion_is_the_one_event(wire: WireStand) -> None:
    error = {"code": "overloaded", "error": "Try again."}
    exchange = await unfolded(wire, error)
    assert sse_reference.payloads(exchange.body) == [error]
    assert b"[DONE]" not in exchange.body
    assert (exchange.line["fault"], exchange.line["result"]) == ("in_band_error", "failed")


async def test_text_completions_are_made_chunks_too(wire: WireStand) -> None:
    document = {
        "id": "cmpl-1",
        "object": "text_completion",
        "choices": [{"index": 0, "text": "upon", "finish_reason": "length"}],
        "usage": REPORTED,
    }
    exchange = await wire.ask(
        body(dumps(document), content_type="application/json"),
        path=COMPLETIONS,
        body=dumps({"model": MODEL, "prompt": "Once", **ASKED}),
    )
    chunks = sse_reference.payloads(exchange.body)
    assert {made["object"] for made in chunks} == {"text_completion"}
    assert "".join(choice["text"] for made in chunks for choice in made["choices"]) == "upon"
    assert chunks[-1]["usage"]["cost"] == 0.0000393
    assert exchange.body.endswith(DONE)
    assert_billed_as_reported(exchange.line)


# === a stream for a client that asked for a document ===


def delta(index: int = 0, *, finish: str | None = None, **members: Any) -> bytes:
    choice = {"index": index, "delta": members, "finish_reason": finish}
    return event(
        {"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": [choice]}
    )


async def test_a_stream_is_folded(wire: WireStand) -> None:
    sent = (
        b": ping\n\n"
        + delta(role="assistant", content="")
        + delta(reasoning_content="H")
        + delta(reasoning_content="m.")
        + delta(content="Hel")
        + delta(1, role="assistant", content=None)
        + delta(content="lo")
        + delta(finish="stop")
        + delta(1, refusal="I will ")
        + delta(1, refusal="not.", finish="content_filter")
        + event(usage_chunk(REPORTED))
        + DONE
    )
    exchange = await wire.ask(body(sent))
    document = exchange.reply.json()
    assert exchange.reply.headers["content-type"] == "application/json"
    assert (document["object"], document["id"], document["created"], document["model"]) == (
        "chat.completion", "c1", 7, "m",
    )  # fmt: skip
    first, second = document["choices"]
    assert first == {
        "index": 0,
        "message": {"role": "assistant", "content": "Hello", "reasoning_content": "Hm."},
        "finish_reason": "stop",
    }
    assert second["message"]["refusal"] == "I will not."
    assert second["message"]["content"] is None
    assert second["finish_reason"] == "content_filter"
    assert document["usage"]["cost"] == 0.0000393
    assert (exchange.line["streamed"], exchange.line["finish_reason"]) == (False, "stop")
    assert_billed_as_reported(exchange.line)


async def test_tool_calls_are_folded_by_their_index(wire: WireStand) -> None:
    def call(index: int, **members: Any) -> dict[str, Any]:
        return {"index": index, **members}

    first = call(0, id="a", type="function", function={"name": "f", "arguments": ""})
    second = call(1, id="b", type="function", function={"name": "g", "arguments": "{"})
    sent = (
        delta(role="assistant", tool_calls=[first])
        + delta(tool_calls=[second])
        + delta(tool_calls=[call(0, function={"arguments": '{"x"'}), call(1, function={"arguments": "}"})])
        + delta(tool_calls=[call(0, function={"arguments": ":1}"})])
        + delta(finish="tool_calls")
        + DONE
    )  # fmt: skip
    [choice] = (await wire.ask(body(sent))).reply.json()["choices"]
    assert choice["message"]["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]
    assert choice["finish_reason"] == "tool_calls"


async def test_logprobs_are_folded(wire: WireStand) -> None:
    def part(token: str) -> dict[str, Any]:
        logprobs: dict[str, Any] = {
            "content": [{"token": token, "logprob": -0.1, "bytes": None, "top_logprobs": []}],
            "refusal": None,
        }
        return {
            "choices": [
                {"index": 0, "delta": {"content": token}, "logprobs": logprobs, "finish_reason": None}
            ]
        }

    exchange = await wire.ask(body(event(part("a")) + event(part("b")) + delta(finish="stop") + DONE))
    [choice] = exchange.reply.json()["choices"]
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == ["a", "b"]


async def test_members_that_nobody_knows_are_kept(wire: WireStand) -> None:
    sent = delta(content="a", reasoning_details=[{"type": "x", "data": "1"}]) + event(
        chunk(finish="stop", provider="p", extra_content={"google": {"s": "=="}})
    )
    document = (await wire.ask(body(sent + DONE))).reply.json()
    assert document["provider"] == "p"
    assert document["extra_content"] == {"google": {"s": "=="}}
    assert document["choices"][0]["message"]["reasoning_details"] == [{"type": "x", "data": "1"}]


async def test_text_completions_are_folded_too(wire: WireStand) -> None:
    def part(text: str, finish: str | None) -> bytes:
        choice = {"index": 0, "text": text, "finish_reason": finish}
        return event({"id": "cmpl-1", "object": "text_completion", "choices": [choice]})

    exchange = await wire.ask(
        body(part("up", None) + part("on", "length") + event(usage_chunk(REPORTED)) + DONE),
        path=COMPLETIONS,
        body=dumps({"model": MODEL, "prompt": "Once"}),
    )
    document = exchange.reply.json()
    assert document["object"] == "text_completion"
    assert document["choices"][0]["text"] == "upon"
    assert_billed_as_reported(exchange.line)


ERROR = event({"error": {"message": "Overloaded.", "code": 529}})
BROKEN = {
    "an error in it": (delta(content="a") + ERROR, "in_band_error"),
    "an error first": (ERROR + DONE, "in_band_error"),
    "no end": (delta(content="a"), "truncated"),
    "only comments": (b": ping\n\n: ping\n\n", "truncated"),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "kind"), BROKEN.values(), ids=BROKEN.keys())
async def test_half_an_answer_does_not_look_like_a_whole_one(wire: WireStand, sent: bytes, kind: str) -> None:
    """Nothing has gone to the client yet: it gets an error reply with a status that says so."""
    exchange = await wire.ask(body(sent))
    assert exchange.reply.status == 502
    error = exchange.reply.json()["error"]
    assert error["code"] == kind
    assert set(error) == {"message", "type", "code", "param"}
    assert "local" in error["message"]
    assert (exchange.line["fault"], exchange.line["result"]) == (kind, "failed")


async def test_a_connection_that_breaks_gives_no_half_answer(wire: WireStand) -> None:
    exchange = await wire.ask(body(delta(content="a"), "reset"))
    assert exchange.reply.status == 502
    assert exchange.reply.json()["error"]["code"] == "truncated"


# === there and back ===


@pytest.mark.parametrize(
    "document",
    [
        RICH,
        completion(usage=REPORTED),
        completion("", usage=REPORTED),
        completion("line\n\ndata: [DONE]\n\n\u2028", usage=REPORTED, x={"y": [1.5, None]}),
        RICH | {"choices": RICH["choices"][1:2]},
    ],
    ids=["everything", "plain", "empty", "awkward text", "one tool call"],
)
async def test_folding_undoes_unfolding(wire: WireStand, document: dict[str, Any]) -> None:
    stream = await unfolded(wire, document)
    folded = await wire.ask(body(stream.body))
    usage = folded.reply.json()["usage"]
    assert usage["upstream_cost"] == usage["cost"] == 0.0000393
    indices = [choice["index"] for choice in document["choices"]]
    result = without_cost(folded.reply.json())
    assert result["choices"] == document["choices"], indices
    del result["usage"]["upstream_cost"]
    del result["usage"]["upstream_cost_details"]
    assert result == document


# === as configured ===


async def test_an_upstream_that_only_streams_is_asked_to(wire: WireStand) -> None:
    exchange = await wire.ask(Script(tokens=3, text="one two three"), model="streams")
    assert wire.request.json()["stream"] is True
    assert wire.request.json()["stream_options"] == {"include_usage": True}
    assert exchange.reply.json()["choices"][0]["message"]["content"] == "one two three"
    assert exchange.reply.json()["usage"]["cost"] > 0


async def test_an_upstream_that_never_streams_is_not_asked_to(wire: WireStand) -> None:
    exchange = await wire.ask(Script(tokens=3, text="one two three"), model="whole", **ASKED)
    assert not wire.request.json().get("stream")
    assert "stream_options" not in wire.request.json()
    chunks = sse_reference.payloads(exchange.body)
    content = [choice["delta"].get("content") or "" for made in chunks for choice in made["choices"]]
    assert "".join(content) == "one two three"
    assert chunks[-1]["usage"]["cost"] > 0
    assert exchange.body.endswith(DONE)


# === not converted ===


async def test_embeddings_are_never_made_a_stream(wire: WireStand) -> None:
    document = dumps({"object": "list", "data": [{"embedding": [0.1]}], "usage": {"prompt_tokens": 1}})
    exchange = await wire.ask(
        body(document, content_type="application/json"),
        path=EMBEDDINGS,
        body=dumps({"model": MODEL, "input": "x"}),
    )
    assert exchange.reply.json()["data"] == [{"embedding": [0.1]}]


async def test_the_models_public_name_is_shown_in_every_corner(wire: WireStand) -> None:
    document = body(dumps(completion(model="secret-name")), content_type="application/json")
    stream = body(
        event(chunk("a", model="secret-name")) + event(chunk(finish="stop", model="secret-name")) + DONE
    )
    for script in (document, stream):
        for members in ({}, ASKED):
            exchange = await wire.ask(script, model="shown", **members)
            assert b"secret-name" not in exchange.body
            assert b'"model":"shown"' in exchange.body
