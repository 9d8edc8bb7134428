"""The OpenAI Agents SDK for Node.js in front of llama.cpp: a tool loop over both APIs."""

import pytest

from clients.nodejs import needs_node, run_script
from clients.stand import MOSTLY_CHAT, Stand
from harness.tiny_model import ANSWER

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session"), needs_node]


@pytest.mark.parametrize("stand", MOSTLY_CHAT, indirect=True)
async def test_all_of_it(stand: Stand) -> None:
    shown = await run_script("agents.mjs", stand.base_url, stand.model)
    loop = {"whole": ANSWER, "streamed": ANSWER, "text": ANSWER, "cities": ["Rome", "Rome"]}
    assert shown == {"responses": loop, "chat": loop}
