"""Anthropic's own package in front of upstreams of each API: replies, tools, errors, counting, models."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from harness import needed

pytest.importorskip("anthropic", reason=needed.PACKAGES)

import anthropic

from clients.messages_stand import APIS, KEY, MessagesStand, messages_stand
from sluicegate.testing import Fault, Script, ToolCall, UsageScript

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOOL: Any = {
    "name": "get_weather",
    "description": "The weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
ASKED: Any = [{"role": "user", "content": "How is the weather?"}]
TEXT = "Sunny all day long."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MessagesStand]:
    async with messages_stand(tmp_path_factory.mktemp("anthropic")) as stand:
        yield stand


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(stand: MessagesStand) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=stand.base_url, api_key=KEY, max_retries=0) as client:
        yield client


@pytest.mark.parametrize("api", APIS)
async def test_a_whole_message(stand: MessagesStand, client: anthropic.AsyncAnthropic, api: str) -> None:
    stand.upstream.script = Script(text=TEXT, usage=UsageScript(input_tokens=12, cached_tokens=5))
    message = await client.messages.create(model=api, max_tokens=100, messages=ASKED)
    assert [block.text for block in message.content] == [TEXT]
    assert (message.stop_reason, message.role) == ("end_turn", "assistant")
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens) == (7, 5)
    assert usage.output_tokens > 0


@pytest.mark.parametrize("api", APIS)
async def test_a_tool_round_trip_in_streams(
    stand: MessagesStand, client: anthropic.AsyncAnthropic, api: str
) -> None:
    stand.upstream.script = Script(tokens=2, reasoning_tokens=3, tool_calls=(ToolCall(),))
    async with client.messages.stream(model=api, max_tokens=100, messages=ASKED, tools=[TOOL]) as stream:
        called = await stream.get_final_message()
    assert called.stop_reason == "tool_use"
    [call] = [block for block in called.content if block.type == "tool_use"]
    assert (call.name, call.input) == ("get_weather", {"city": "Rome", "unit": "celsius"})

    stand.upstream.script = Script(text=TEXT)
    answered: Any = [
        *ASKED,
        {"role": "assistant", "content": [block.to_dict() for block in called.content]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}],
        },
    ]
    async with client.messages.stream(model=api, max_tokens=100, messages=answered, tools=[TOOL]) as stream:
        text = "".join([part async for part in stream.text_stream])
        final = await stream.get_final_message()
    assert text == TEXT
    assert final.stop_reason == "end_turn"
    sent = stand.upstream.requests[-1].request.body
    assert b"sunny" in sent
    assert call.id.encode() in sent


def body_of(error: anthropic.APIStatusError) -> dict[str, Any]:
    assert isinstance(error.body, dict)
    return error.body


@pytest.mark.parametrize("api", APIS)
async def test_errors_are_the_packages_own(
    stand: MessagesStand, client: anthropic.AsyncAnthropic, api: str
) -> None:
    stand.upstream.script = Script(status=429, headers={"retry-after": "7"})
    with pytest.raises(anthropic.RateLimitError) as limited:
        await client.messages.create(model=api, max_tokens=100, messages=ASKED)
    assert limited.value.response.headers["retry-after"] == "7"
    assert body_of(limited.value)["error"]["type"] == "rate_limit_error"

    stand.upstream.script = Script(tokens=5, faults=(Fault(action="reset", events=4),))
    with pytest.raises(anthropic.APIStatusError):
        async with client.messages.stream(model=api, max_tokens=100, messages=ASKED) as stream:
            await stream.get_final_message()


async def test_refusals_are_the_packages_own(stand: MessagesStand, client: anthropic.AsyncAnthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as missing:
        await client.messages.create(model="nothing", max_tokens=100, messages=ASKED)
    body = body_of(missing.value)
    assert body["error"]["type"] == "not_found_error"
    assert missing.value.request_id == body["request_id"]
    async with anthropic.AsyncAnthropic(base_url=stand.base_url, api_key="no", max_retries=0) as stranger:
        with pytest.raises(anthropic.AuthenticationError):
            await stranger.messages.create(model="chat", max_tokens=100, messages=ASKED)
    async with anthropic.AsyncAnthropic(base_url=stand.base_url, auth_token=KEY, max_retries=0) as bearer:
        stand.upstream.script = Script(tokens=1)
        await bearer.messages.create(model="messages", max_tokens=100, messages=ASKED)


async def test_tokens_are_counted_and_models_listed(
    stand: MessagesStand, client: anthropic.AsyncAnthropic
) -> None:
    stand.upstream.script = Script(usage=UsageScript(input_tokens=77))
    assert (await client.messages.count_tokens(model="messages", messages=ASKED)).input_tokens == 77
    with pytest.raises(anthropic.NotFoundError):
        await client.messages.count_tokens(model="chat", messages=ASKED)
    assert [model.id async for model in client.models.list(limit=2)] == [*APIS]
    assert (await client.models.retrieve("chat")).display_name == "chat"
