"""openai for Node.js, in front of llama.cpp: plain calls, stream helpers, tool loops."""

import pytest

from clients.nodejs import needs_node, run_script
from clients.stand import MOSTLY_CHAT, Stand
from harness.tiny_model import ANSWER, REASONING, TOOL_ARGUMENTS

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session"), needs_node]


@pytest.mark.parametrize("stand", MOSTLY_CHAT, indirect=True)
async def test_all_of_it(stand: Stand) -> None:
    shown = await run_script("openai_sdk.mjs", stand.base_url, stand.model)

    assert shown["whole"]["output_text"] == ANSWER
    streamed = shown["streamed"]
    assert streamed["text"] == streamed["output_text"] == ANSWER
    assert [item["type"] for item in streamed["response"]["output"]] == ["reasoning", "message"]
    assert streamed["types"][0] == "response.created"
    assert streamed["types"][-1] == "response.completed"
    usage = streamed["response"]["usage"]
    assert usage["output_tokens"] == shown["whole"]["usage"]["output_tokens"] > 0
    assert usage["cost"] > 0

    [call] = shown["call"]["response"]["output"]
    assert (call["type"], call["name"], call["arguments"]) == ("function_call", "get_weather", TOOL_ARGUMENTS)
    assert shown["answered"]["output_text"] == ANSWER

    [choice] = shown["chat"]["choices"]
    assert choice["message"]["content"] == ANSWER
    # Of a member that it does not know the helper keeps the last piece.
    assert REASONING.endswith(choice["message"]["reasoning_content"])
    assert shown["chat"]["usage"]["cost"] > 0
    assert shown["tools"] == {"content": ANSWER, "cities": ["Rome"]}
