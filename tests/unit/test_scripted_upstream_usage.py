"""Where usage stands, with which numbers, and what each dialect makes of it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from raw_http import RawReply, ask
from sluicegate.testing import ScriptedUpstream
from sse_reference import parse, payloads

ASKED = {"stream_options": {"include_usage": True}}
COUNTS = {"input_tokens": 20, "cached_tokens": 5}


@pytest.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream() as upstream:
        yield upstream


async def say(upstream: ScriptedUpstream, /, mock: dict[str, Any], **members: Any) -> RawReply:
    return await ask((upstream.host, upstream.port), mock, **members)


async def chunks(upstream: ScriptedUpstream, /, mock: dict[str, Any], **members: Any) -> list[Any]:
    return payloads((await say(upstream, mock, **members)).body)


def totals(chunks: list[Any]) -> list[int | None]:
    """Of each chunk: total tokens; None where usage is null; -1 where the key is absent."""
    return [
        usage and usage["total_tokens"] for usage in (c.get("usage", {"total_tokens": -1}) for c in chunks)
    ]


# role, a token, a token, finish, and what follows
@pytest.mark.parametrize(
    ("placement", "asked", "expected"),
    [
        ("asked", False, [-1, -1, -1, -1]),
        ("asked", True, [None, None, None, None, 14]),
        ("always", False, [-1, -1, -1, -1, 14]),
        ("twice", False, [-1, -1, -1, -1, 14, 14]),
        ("finish", False, [-1, -1, -1, 14]),
        ("finish", True, [None, None, None, 14]),
        ("second_finish", False, [-1, -1, -1, -1, 14]),
        ("running", False, [12, 13, 14, 14]),
        ("running", True, [12, 13, 14, 14, 14]),
        ("preview", False, [13, -1, -1, -1, -1, 14]),
        ("none", True, [None, None, None, None]),
    ],
)
async def test_placement(
    upstream: ScriptedUpstream, placement: str, asked: bool, expected: list[int | None]
) -> None:
    mock = {"tokens": 2, "usage": {"placement": placement}}
    assert totals(await chunks(upstream, mock, **(ASKED if asked else {}))) == expected


@pytest.mark.parametrize("placement", ["always", "preview", "twice"])
async def test_a_chunk_of_usage_alone_has_no_choices(upstream: ScriptedUpstream, placement: str) -> None:
    last = (await chunks(upstream, {"usage": {"placement": placement}}))[-1]
    assert last["choices"] == []
    assert last["object"] == "chat.completion.chunk"


async def test_a_second_finish_chunk_repeats_the_reason(upstream: ScriptedUpstream) -> None:
    *_, first, second = await chunks(upstream, {"usage": {"placement": "second_finish"}})
    assert [c["choices"][0]["finish_reason"] for c in (first, second)] == ["stop", "stop"]
    assert "usage" not in first


async def test_nulls_can_be_forced_and_left_out(upstream: ScriptedUpstream) -> None:
    mock = {"tokens": 0, "usage": {"nulls": True}}
    assert totals(await chunks(upstream, mock)) == [None, None]
    mock = {"tokens": 0, "usage": {"nulls": False}}
    assert totals(await chunks(upstream, mock, **ASKED)) == [-1, -1, 12]


async def test_numbers_are_those_of_the_script(upstream: ScriptedUpstream) -> None:
    usage = {
        "input_tokens": 100,
        "cached_tokens": 60,
        "cache_write_tokens": 10,
        "output_tokens": 50,
        "reasoning_tokens": 30,
        "input_audio_tokens": 4,
        "output_audio_tokens": 6,
        "extra": {"cost": 0.5},
    }
    reported = (await chunks(upstream, {"usage": usage}, **ASKED))[-1]["usage"]
    assert reported == {
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "total_tokens": 150,
        "prompt_tokens_details": {"cached_tokens": 60, "audio_tokens": 4, "cache_write_tokens": 10},
        "completion_tokens_details": {
            "reasoning_tokens": 30,
            "audio_tokens": 6,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
        "cost": 0.5,
    }
    assert (await say(upstream, {"usage": usage}, stream=False)).json()["usage"] == reported


async def test_details_can_be_left_out(upstream: ScriptedUpstream) -> None:
    usage = (await say(upstream, {"usage": {"details": False}}, stream=False)).json()["usage"]
    assert usage == {"prompt_tokens": 12, "completion_tokens": 8, "total_tokens": 20}


async def test_a_document_may_have_no_usage(upstream: ScriptedUpstream) -> None:
    assert "usage" not in (await say(upstream, {"usage": {"placement": "none"}}, stream=False)).json()


# === Dialects ===


async def dialect(upstream: ScriptedUpstream, name: str, /, **mock: Any) -> list[Any]:
    mock = {"dialect": name, "tokens": 2, "reasoning_tokens": 1, "usage": COUNTS, **mock}
    return await chunks(upstream, mock, **ASKED)


async def test_groq_has_its_own_usage_beside_the_usual_one(upstream: ScriptedUpstream) -> None:
    first, *_, finish, last = await dialect(upstream, "groq")
    assert first["x_groq"]["id"].startswith("req_")
    assert finish["x_groq"]["usage"] == finish["usage"] == last["usage"]
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert last["choices"] == []


async def test_deepseek_counts_hits_and_misses_on_the_finish_chunk(upstream: ScriptedUpstream) -> None:
    role, reasoning, content, *_, finish = await dialect(upstream, "deepseek")
    assert role["usage"] is None
    assert reasoning["choices"][0]["delta"] == {"content": None, "reasoning_content": "The"}
    assert content["choices"][0]["delta"]["reasoning_content"] is None
    assert finish["usage"]["prompt_cache_hit_tokens"] == 5
    assert finish["usage"]["prompt_cache_miss_tokens"] == 15
    assert finish["choices"]


@pytest.mark.parametrize("name", ["xai", "perplexity"])
async def test_reasoning_outside_the_completion(upstream: ScriptedUpstream, name: str) -> None:
    usage = (await dialect(upstream, name))[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (20, 2, 23)


async def test_xai_has_no_finish_reason_before_the_end(upstream: ScriptedUpstream) -> None:
    first, *_ = await dialect(upstream, "xai")
    assert first["choices"] == [{"index": 0, "delta": {"role": "assistant", "reasoning_content": "The"}}]


async def test_perplexity_repeats_all_so_far(upstream: ScriptedUpstream) -> None:
    reply = await say(upstream, {"dialect": "perplexity", "tokens": 2})
    sent = payloads(reply.body)
    assert [c["usage"]["completion_tokens"] for c in sent] == [1, 2, 2]
    assert [c["choices"][0]["message"]["content"] for c in sent] == ["A", "A sluice", "A sluice"]
    assert sent[-1]["object"] == "chat.completion.done"
    assert b"\r\n\r\n" in reply.body
    assert b"[DONE]" not in reply.body


async def test_mistral_thinks_in_content_parts_and_finishes_with_content(upstream: ScriptedUpstream) -> None:
    _, thought, _, last = await dialect(upstream, "mistral")
    assert thought["choices"][0]["delta"]["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "The"}]}
    ]
    assert last["choices"][0]["delta"] == {"content": " sluice"}
    assert last["choices"][0]["finish_reason"] == "stop"
    assert last["usage"]["total_tokens"] == 23


async def test_mistral_and_gemini_leave_the_tool_index_out(upstream: ScriptedUpstream) -> None:
    for name, finish in (("mistral", "tool_calls"), ("gemini", "stop")):
        sent = await dialect(upstream, name, tokens=0, reasoning_tokens=0, tool_calls=[{}])
        [part] = [
            d["tool_calls"][0] for c in sent for e in c["choices"] if (d := e["delta"]).get("tool_calls")
        ]
        assert "index" not in part
        assert part["function"]["arguments"] == '{"city":"Rome","unit":"celsius"}'
        assert [e["finish_reason"] for c in sent for e in c["choices"]][-1] == finish


async def test_gemini_counts_on_every_chunk(upstream: ScriptedUpstream) -> None:
    assert [c["usage"]["completion_tokens"] for c in await dialect(upstream, "gemini")] == [1, 2, 3, 3, 3]


async def test_ollama_says_the_role_each_time(upstream: ScriptedUpstream) -> None:
    first, *_ = sent = await dialect(upstream, "ollama")
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "", "reasoning": "The"}
    assert all(entry["delta"]["role"] == "assistant" for chunk in sent for entry in chunk["choices"])
    assert "prompt_tokens_details" not in sent[-1]["usage"]


async def test_azure_begins_with_the_filters_verdict(upstream: ScriptedUpstream) -> None:
    first, second, *_ = await dialect(upstream, "azure")
    assert (first["choices"], first["id"], first["model"], first["object"]) == ([], "", "", "")
    assert first["prompt_filter_results"][0]["prompt_index"] == 0
    assert second["choices"][0]["content_filter_results"] == {}


async def test_llamacpp_has_timings_on_its_last_chunk(upstream: ScriptedUpstream) -> None:
    sent = await dialect(upstream, "llamacpp")
    assert [("timings" in chunk) for chunk in sent] == [False] * (len(sent) - 1) + [True]
    assert sent[-1]["timings"]["cache_n"] == 5
    assert sent[-1]["timings"]["prompt_n"] == 15


async def test_vllm_and_sglang_name_reasoning_differently(upstream: ScriptedUpstream) -> None:
    vllm = await dialect(upstream, "vllm")
    assert vllm[1]["choices"][0]["delta"] == {"reasoning": "The"}
    assert "completion_tokens_details" not in vllm[-1]["usage"]
    sglang = await dialect(upstream, "sglang")
    assert sglang[1]["choices"][0]["delta"] == {"reasoning_content": "The"}
    assert sglang[-1]["usage"]["reasoning_tokens"] == 1


async def test_openrouter_begins_with_a_comment_and_finishes_twice(upstream: ScriptedUpstream) -> None:
    reply = await say(upstream, {"dialect": "openrouter", "tokens": 1})
    assert reply.body.startswith(b": OPENROUTER PROCESSING\n\ndata: {")
    finishes = [c["choices"][0]["finish_reason"] for c in payloads(reply.body)]
    assert finishes == [None, "stop", "stop"]


async def test_tensorrt_ends_its_lines_with_a_space(upstream: ScriptedUpstream) -> None:
    reply = await say(upstream, {"dialect": "tensorrt"})
    assert all(line.endswith(b" ") for line in reply.body.split(b"\n") if line)


async def test_transformers_has_no_done(upstream: ScriptedUpstream) -> None:
    reply = await say(upstream, {"dialect": "transformers"})
    assert "[DONE]" not in [event.data for event in parse(reply.body)]
    assert payloads(reply.body)[-1]["usage"]["total_tokens"] == 20


async def test_a_trait_of_ones_own(upstream: ScriptedUpstream) -> None:
    mock = {
        "tokens": 0,
        "tool_calls": [{}, {}],
        "traits": {"tool_index": "zero", "tool_name_everywhere": True},
    }
    parts = [
        entry["delta"]["tool_calls"][0]
        for chunk in await chunks(upstream, mock)
        for entry in chunk["choices"]
        if "tool_calls" in entry["delta"]
    ]
    assert {part["index"] for part in parts} == {0}
    assert {part["function"]["name"] for part in parts} == {"get_weather"}
