"""The scripted upstream's Messages API in the dialects of other servers."""

from typing import Any

import pytest

from raw_http import ask
from sluicegate.testing import ScriptedUpstream, script_from
from sluicegate.testing.dialects import DialectName
from sse_reference import payloads

SAID = {"text": "A look.", "reasoning_tokens": 2, "tool_calls": [{"name": "f", "arguments": '{"q": "Rome"}'}]}


async def events(dialect: DialectName, **script: Any) -> list[dict[str, Any]]:
    async with ScriptedUpstream(script_from({**SAID, "dialect": dialect, **script})) as upstream:
        reply = await ask((upstream.host, upstream.port), path="/v1/messages")
    assert reply.status == 200
    return payloads(reply.body)


def kinds(found: list[dict[str, Any]]) -> list[str | None]:
    return [event.get("type") for event in found]


async def test_anthropics_own_closes_a_block_before_the_next_and_pings() -> None:
    found = kinds(await events("openai"))
    assert "ping" in found
    stops = [at for at, kind in enumerate(found) if kind == "content_block_stop"]
    assert [found[at + 1] for at in stops[:-1]] == ["content_block_start"] * 2
    assert found[-2:] == ["message_delta", "message_stop"]


async def test_llama_cpp_closes_all_blocks_at_the_end_and_signs_nothing() -> None:
    found = await events("llamacpp")
    assert kinds(found)[-5:] == [*["content_block_stop"] * 3, "message_delta", "message_stop"]
    assert "ping" not in kinds(found)
    assert found[-2]["usage"].keys() == {"output_tokens"}
    assert [e["delta"]["signature"] for e in found if "signature" in e.get("delta", {})] == [""]
    [call] = [e["content_block"] for e in found if e.get("content_block", {}).get("type") == "tool_use"]
    assert "input" not in call


async def test_ollama_guesses_the_input_and_sends_arguments_at_once() -> None:
    found = await events("ollama", usage={"input_tokens": 100})
    message = found[0]["message"]
    assert "stop_reason" not in message
    assert message["usage"]["input_tokens"] == 50
    assert found[-2]["usage"]["input_tokens"] == 100
    assert [e["delta"]["partial_json"] for e in found if "partial_json" in e.get("delta", {})] == [
        '{"q": "Rome"}'
    ]


async def test_bedrock_adds_an_event_without_type() -> None:
    found = await events("bedrock")
    assert kinds(found)[-3:] == ["message_delta", None, "message_stop"]
    assert found[-1]["usage"] == found[-3]["usage"]


@pytest.mark.parametrize(
    ("dialect", "reason", "said"),
    [
        ("openai", "content_filter", "refusal"),
        ("sglang", "content_filter", "end_turn"),
        ("openai", "repetition", "repetition"),
        ("vllm", "repetition", None),
    ],
)
async def test_reasons_for_the_end(dialect: DialectName, reason: str, said: str | None) -> None:
    found = await events(dialect, finish_reason=reason)
    assert found[-2]["delta"]["stop_reason"] == said
