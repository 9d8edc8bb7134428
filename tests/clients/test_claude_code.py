"""Claude Code in front of upstreams of each API: a turn in which it runs a command and hears its output."""

import json
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest
import pytest_asyncio

from clients.claude_code import COMMAND, COMMAND_TOOL, SAID_BY_COMMAND, blocks, run_claude_code
from clients.messages_stand import APIS, KEY, MessagesStand, messages_stand
from clients.nodejs import needs_node
from sluicegate.testing import Fault, Script, ToolCall, UsageScript

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module"), needs_node]

SECONDS = 60.0
TEXT = "It is sunny all day long."
CALL = ToolCall(
    name=COMMAND_TOOL, arguments=json.dumps({"command": COMMAND, "description": "Say where we are"})
)
MOSTLY_CHAT = [api if api == "chat" else pytest.param(api, marks=pytest.mark.nightly) for api in APIS]
USAGE = UsageScript(input_tokens=1200, cached_tokens=1000, output_tokens=30)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MessagesStand]:
    async with messages_stand(tmp_path_factory.mktemp("claude-code")) as stand:
        yield stand


@pytest.mark.parametrize("api", APIS)
async def test_a_tool_round_trip(stand: MessagesStand, api: str, tmp_path: Path) -> None:
    stand.upstream.enqueue(Script(tokens=3, reasoning_tokens=2, tool_calls=(CALL,), usage=USAGE))
    stand.upstream.script = Script(text=TEXT, usage=USAGE)
    asked = len(stand.upstream.requests)
    events = await run_claude_code(stand.base_url, KEY, api, "How is the weather?", tmp_path, SECONDS)

    [call] = blocks(events, "tool_use")
    assert (call["name"], call["input"]["command"]) == (COMMAND_TOOL, COMMAND)
    [result] = blocks(events, "tool_result")
    assert (result["tool_use_id"], result["content"]) == (call["id"], SAID_BY_COMMAND)
    assert not result["is_error"]
    ended = events[-1]
    assert (ended["type"], ended["subtype"], ended["result"]) == ("result", "success", TEXT)
    usage = ended["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (
        400,
        2000,
        60,
    )

    requests = list(stand.upstream.requests)[asked:]
    assert len(requests) == 2
    said = requests[-1].request.body
    assert SAID_BY_COMMAND.encode() in said
    assert call["id"].encode() in said
    await stand.gateway.wait_line(2, event="request", model=api)
    lines = stand.gateway.find(event="request", model=api)
    assert [(line["endpoint"], line["result"]) for line in lines] == [("messages", "ok")] * 2
    assert [Decimal(line["cost"]) for line in lines] == [Decimal("0.00042")] * 2


@pytest.mark.parametrize("api", MOSTLY_CHAT)
async def test_a_reply_that_broke_off_is_asked_for_again(
    stand: MessagesStand, api: str, tmp_path: Path
) -> None:
    stand.upstream.enqueue(Script(tokens=6, faults=(Fault(action="reset", events=4),)))
    stand.upstream.script = Script(text=TEXT)
    asked = len(stand.upstream.requests)
    events = await run_claude_code(stand.base_url, KEY, api, "How is the weather?", tmp_path, SECONDS)
    assert (events[-1]["subtype"], events[-1]["result"]) == ("success", TEXT)
    assert len(stand.upstream.requests) == asked + 2


@pytest.mark.parametrize("api", MOSTLY_CHAT)
async def test_a_prompt_that_is_too_long_is_recognised(
    stand: MessagesStand, api: str, tmp_path: Path
) -> None:
    """So that it can compact a conversation in place of giving up."""
    message = "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens."
    error = {"message": message, "type": "invalid_request_error", "code": "context_length_exceeded"}
    stand.upstream.script = Script(status=400, error=error)
    events = await run_claude_code(
        stand.base_url, KEY, api, "How is the weather?", tmp_path, SECONDS, succeeds=False
    )
    assert events[-1]["is_error"] is True
    assert events[-1]["result"].startswith("Prompt is too long")
