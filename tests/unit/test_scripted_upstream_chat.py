"""Chat completions: what is said, in a document and in chunks."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from raw_http import RawReply, ask
from sluicegate.testing import ScriptedUpstream
from sse_reference import parse, payloads

ASKED = {"include_usage": True}


@pytest.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream() as upstream:
        yield upstream


async def say(upstream: ScriptedUpstream, /, mock: dict[str, Any], **members: Any) -> RawReply:
    return await ask((upstream.host, upstream.port), mock, **members)


def deltas(reply: RawReply, choice: int = 0) -> list[dict[str, Any]]:
    return [
        entry["delta"]
        for chunk in payloads(reply.body)
        for entry in chunk["choices"]
        if entry["index"] == choice
    ]


def text(reply: RawReply, member: str = "content", choice: int = 0) -> str:
    return "".join(delta.get(member) or "" for delta in deltas(reply, choice))


async def test_a_stream_looks_like_openais(upstream: ScriptedUpstream) -> None:
    reply = await say(upstream, {"text": "Hello there"})
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    first, hello, there, finish = payloads(reply.body)
    common = {
        "id": first["id"],
        "object": "chat.completion.chunk",
        "created": 1767225600,
        "model": "m",
        "system_fingerprint": "fp_mock000001",
    }
    assert first["id"].startswith("chatcmpl-")

    def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {**common, "choices": [choice]}

    assert first == chunk({"role": "assistant", "content": "", "refusal": None})
    assert hello == chunk({"content": "Hello"})
    assert there == chunk({"content": " there"})
    assert finish == chunk({}, "stop")
    assert parse(reply.body)[-1].data == "[DONE]"
    assert reply.body.endswith(b"data: [DONE]\n\n")


async def test_a_document_says_what_the_stream_says(upstream: ScriptedUpstream) -> None:
    mock = {"tokens": 70, "reasoning_tokens": 3}
    streamed = await say(upstream, mock)
    whole = (await say(upstream, mock, stream=False)).json()
    message = whole["choices"][0]["message"]
    assert message["content"] == text(streamed)
    assert message["reasoning_content"] == text(streamed, "reasoning_content")
    assert whole["object"] == "chat.completion"
    assert whole["choices"][0]["finish_reason"] == "stop"
    assert whole["id"] == payloads(streamed.body)[0]["id"]
    assert whole["usage"]["completion_tokens"] == 73
    assert whole["usage"]["completion_tokens_details"]["reasoning_tokens"] == 3


async def test_ids_follow_the_question(upstream: ScriptedUpstream) -> None:
    first = (await say(upstream, {}, stream=False)).json()["id"]
    again = (await say(upstream, {}, stream=False, model="other")).json()["id"]
    other = (await say(upstream, {}, stream=False, messages=[{"role": "user", "content": "?"}])).json()["id"]
    given = (await say(upstream, {"reply_id": "chatcmpl-given"}, stream=False)).json()["id"]
    assert first == again
    assert first != other
    assert given == "chatcmpl-given"


@pytest.mark.parametrize("count", [0, 1, 8, 200])
async def test_each_token_is_a_chunk(upstream: ScriptedUpstream, count: int) -> None:
    spoken = [delta["content"] for delta in deltas(await say(upstream, {"tokens": count}))[1:-1]]
    assert len(spoken) == count
    assert all(spoken)


async def test_the_words_of_a_long_text_do_not_run_together(upstream: ScriptedUpstream) -> None:
    said = text(await say(upstream, {"tokens": 150}))
    assert "before dark. A sluice" in said


async def test_a_text_of_ones_own_is_kept_whole(upstream: ScriptedUpstream) -> None:
    mine = '  two  spaces\n\n{"usage": {"prompt_tokens": 1}} 🌊\t'
    assert text(await say(upstream, {"text": mine})) == mine


async def test_chunks_of_a_size_have_that_size(upstream: ScriptedUpstream) -> None:
    spoken = [d["content"] for d in deltas(await say(upstream, {"tokens": 20, "chunk_bytes": 64}))[1:-1]]
    assert [len(content.encode()) for content in spoken] == [64] * 20


async def test_a_tool_call_comes_in_pieces(upstream: ScriptedUpstream) -> None:
    call = {"name": "f", "arguments": '{"é":1}', "id": "call_1", "piece": 3}
    reply = await say(upstream, {"tokens": 0, "tool_calls": [call]})
    role, head, *pieces, finish = payloads(reply.body)
    assert role["choices"][0]["delta"]["content"] is None
    assert head["choices"][0]["delta"] == {
        "tool_calls": [
            {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}
        ]
    }
    assert [p["choices"][0]["delta"]["tool_calls"] for p in pieces] == [
        [{"index": 0, "function": {"arguments": part}}] for part in ('{"é', '":1', "}")
    ]
    assert finish["choices"][0]["finish_reason"] == "tool_calls"
    whole = (await say(upstream, {"tokens": 0, "tool_calls": [call]}, stream=False)).json()["choices"][0]
    assert whole["message"]["content"] is None
    assert whole["message"]["tool_calls"] == [
        {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"é":1}'}}
    ]
    assert whole["finish_reason"] == "tool_calls"


async def test_parallel_and_custom_calls_have_their_own_index(upstream: ScriptedUpstream) -> None:
    calls = [{"name": "f"}, {"name": "g", "kind": "custom", "arguments": "free text"}]
    reply = await say(upstream, {"tokens": 0, "tool_calls": calls})
    parts = [delta["tool_calls"][0] for delta in deltas(reply) if "tool_calls" in delta]
    heads = [part for part in parts if "id" in part]
    assert [(head["index"], head["type"]) for head in heads] == [(0, "function"), (1, "custom")]
    assert heads[0]["id"] != heads[1]["id"]
    spoken = "".join(part["custom"]["input"] for part in parts if "custom" in part)
    assert spoken == "free text"


async def test_a_refusal_takes_the_contents_place(upstream: ScriptedUpstream) -> None:
    reply = await say(upstream, {"refusal": "I will not."})
    assert text(reply, "refusal") == "I will not."
    assert text(reply) == ""
    whole = (await say(upstream, {"refusal": "I will not."}, stream=False)).json()["choices"][0]["message"]
    assert (whole["content"], whole["refusal"]) == (None, "I will not.")


async def test_choices_take_turns(upstream: ScriptedUpstream) -> None:
    reply = await say(upstream, {"tokens": 3}, n=2)
    order = [chunk["choices"][0]["index"] for chunk in payloads(reply.body)]
    assert order == [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]
    assert text(reply, choice=0) != text(reply, choice=1)
    whole = (await say(upstream, {"tokens": 3}, n=2, stream=False)).json()
    assert [c["message"]["content"] for c in whole["choices"]] == [text(reply, choice=i) for i in (0, 1)]
    assert whole["usage"]["completion_tokens"] == 6


async def test_the_script_may_have_more_choices_than_asked(upstream: ScriptedUpstream) -> None:
    reply = await say(upstream, {"n": 3}, stream=False)
    assert len(reply.json()["choices"]) == 3


async def test_logprobs_are_there_where_asked(upstream: ScriptedUpstream) -> None:
    reply = await say(upstream, {"tokens": 2}, logprobs=True, top_logprobs=2)
    entries = [chunk["choices"][0]["logprobs"] for chunk in payloads(reply.body)]
    assert entries[0] is None
    assert entries[-1] is None
    for entry, delta in zip(entries[1:-1], deltas(reply)[1:-1], strict=True):
        [token] = entry["content"]
        assert token["token"] == delta["content"]
        assert bytes(token["bytes"]).decode() == delta["content"]
        assert [top["logprob"] for top in token["top_logprobs"]] == [token["logprob"], token["logprob"] - 1]
    whole = (await say(upstream, {"tokens": 2}, logprobs=True, top_logprobs=2, stream=False)).json()
    assert len(whole["choices"][0]["logprobs"]["content"]) == 2
    assert (await say(upstream, {}, stream=False)).json()["choices"][0]["logprobs"] is None


@pytest.mark.parametrize(("script", "finish"), [("length", "length"), ("abort", "abort"), ("", "")])
async def test_any_finish_reason_can_be_given(upstream: ScriptedUpstream, script: str, finish: str) -> None:
    reply = await say(upstream, {"finish_reason": script})
    assert payloads(reply.body)[-1]["choices"][0]["finish_reason"] == finish


async def test_a_stream_may_have_no_finish_reason(upstream: ScriptedUpstream) -> None:
    reply = await say(upstream, {"tokens": 2, "finish_reason": None}, stream_options=ASKED)
    *chunks, usage = payloads(reply.body)
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None] * 3
    assert usage["choices"] == []


async def test_the_role_chunk_may_be_left_out(upstream: ScriptedUpstream) -> None:
    first, second, *_ = deltas(await say(upstream, {"role": False, "text": "a b"}))
    assert first == {"role": "assistant", "content": "a"}
    assert second == {"content": " b"}


async def test_extra_members_are_on_every_chunk_and_on_documents(upstream: ScriptedUpstream) -> None:
    mock = {"extra": {"provider": "P", "model": "renamed"}}
    assert {(c["provider"], c["model"]) for c in payloads((await say(upstream, mock)).body)} == {
        ("P", "renamed")
    }
    assert (await say(upstream, mock, stream=False)).json()["provider"] == "P"
    assert (await say(upstream, {"model": "named"}, stream=False)).json()["model"] == "named"


async def test_a_stream_for_who_wants_a_document_and_the_other_way_round(upstream: ScriptedUpstream) -> None:
    forced = await say(upstream, {"stream": True}, stream=False)
    assert forced.headers["content-type"].startswith("text/event-stream")
    assert parse(forced.body)[-1].data == "[DONE]"
    whole = await say(upstream, {"stream": False}, stream=True)
    assert whole.headers["content-type"] == "application/json"
    assert whole.json()["object"] == "chat.completion"


async def test_an_echo_shows_what_was_received(upstream: ScriptedUpstream) -> None:
    first, *others = payloads((await say(upstream, {"echo": True}, headers=("X-Seen: yes",))).body)
    assert first["echo"]["method"] == "POST"
    assert first["echo"]["path"] == "/v1/chat/completions"
    assert ["X-Seen", "yes"] in first["echo"]["headers"]
    assert first["echo"]["body"]["messages"] == [{"role": "user", "content": "hi"}]
    assert all("echo" not in chunk for chunk in others)
    assert "echo" in (await say(upstream, {"echo": True}, stream=False)).json()


async def test_stream_options_can_be_refused(upstream: ScriptedUpstream) -> None:
    reply = await say(upstream, {"refuse_stream_options": True}, stream_options=ASKED)
    assert reply.status == 400
    assert reply.json()["error"]["param"] == "stream_options"
    assert (await say(upstream, {"refuse_stream_options": True})).status == 200


async def test_stream_options_need_a_stream(upstream: ScriptedUpstream) -> None:
    reply = await say(upstream, {}, stream=False, stream_options=ASKED)
    assert reply.status == 400
    assert reply.json()["error"]["param"] == "stream_options"


async def test_an_invalid_script_is_a_400_that_names_the_field(upstream: ScriptedUpstream) -> None:
    reply = await say(upstream, {"tokns": 1})
    assert reply.status == 400
    assert reply.json()["error"]["type"] == "invalid_script"
    assert "script.tokns" in reply.json()["error"]["message"]


async def test_the_header_goes_over_the_body(upstream: ScriptedUpstream) -> None:
    reply = await say(
        upstream, {"text": "body", "model": "named"}, headers=('x-mock: {"text":"header"}',), stream=False
    )
    assert reply.json()["choices"][0]["message"]["content"] == "header"
    assert reply.json()["model"] == "named"
