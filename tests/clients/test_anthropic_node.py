"""Anthropic's package for Node.js in front of llama.cpp: plain calls, the stream helper, the tool runner."""

from typing import Any

import pytest

from clients.nodejs import needs_node, run_script
from clients.stand import MOSTLY_CHAT, Stand
from harness.tiny_model import ANSWER, REASONING

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session"), needs_node]


def text_of(message: dict[str, Any]) -> str:
    return "".join(block["text"] for block in message["content"] if block["type"] == "text")


@pytest.mark.parametrize("stand", MOSTLY_CHAT, indirect=True)
async def test_all_of_it(stand: Stand) -> None:
    shown = await run_script("anthropic_sdk.mjs", stand.gateway.base_url, stand.model)

    whole, streamed = shown["whole"], shown["streamed"]
    for message in (whole, streamed["message"]):
        thought, said = message["content"]
        assert (thought["type"], thought["thinking"].strip()) == ("thinking", REASONING.strip())
        assert (said["type"], said["text"]) == ("text", ANSWER)
        assert message["stop_reason"] == "end_turn"
    # The helper keeps the members of usage that it knows.
    assert whole["usage"]["cost"] > 0
    assert streamed["text"] == ANSWER
    assert streamed["types"][0] == "message_start"
    assert streamed["types"][-1] == "message_stop"
    assert streamed["message"]["usage"]["output_tokens"] == whole["usage"]["output_tokens"] > 0

    called = shown["call"]["message"]
    assert called["stop_reason"] == "tool_use"
    [call] = [block for block in called["content"] if block["type"] == "tool_use"]
    assert (call["name"], call["input"]) == ("get_weather", {"city": "Rome"})
    assert text_of(shown["answered"]["message"]) == ANSWER

    runner = shown["runner"]
    assert (runner["turns"], runner["cities"]) == (["tool_use", "end_turn"], ["Rome"])
    assert text_of(runner["message"]) == ANSWER
