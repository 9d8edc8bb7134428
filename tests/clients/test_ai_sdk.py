"""The AI SDK in front of llama.cpp: its Responses, chat and Messages models, whole, streamed, in a loop."""

import pytest

from clients.nodejs import needs_node, run_script
from clients.stand import MOSTLY_CHAT, Stand
from harness.tiny_model import ANSWER, REASONING

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session"), needs_node]


@pytest.mark.parametrize("stand", MOSTLY_CHAT, indirect=True)
async def test_all_of_it(stand: Stand) -> None:
    shown = await run_script("ai_sdk.mjs", stand.base_url, stand.model)
    for api, seen in shown.items():
        assert seen["errors"] == [], api
        for reply in (seen["whole"], seen["stream"]):
            assert reply["text"] == ANSWER, api
            assert reply["finish"] == "stop", api
            assert reply["usage"]["outputTokens"] > 0, api
        assert seen["stream"]["usage"]["outputTokens"] == seen["whole"]["usage"]["outputTokens"], api
        assert "error" not in seen["stream"]["parts"], api
        assert seen["loop"] == {"text": ANSWER, "cities": ["Rome"], "steps": 2, "finish": "stop"}, api
    # The Responses model of this SDK shows summaries only.
    assert shown["chat"]["stream"]["reasoning"] == REASONING
    assert shown["messages"]["stream"]["reasoning"] == REASONING
