"""Anthropic's package for Python in front of llama.cpp: replies, the stream helper, the tool runner."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from harness import needed

pytest.importorskip("anthropic", reason=needed.PACKAGES)

import anthropic

from clients.stand import Stand
from harness.tiny_model import ANSWER, REASONING, TOOL_NAME

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(loop_scope="session")
async def client(stand: Stand) -> AsyncIterator[anthropic.AsyncAnthropic]:
    base_url = stand.gateway.base_url
    async with anthropic.AsyncAnthropic(base_url=base_url, api_key="none", max_retries=0) as client:
        yield client


def asked(stand: Stand, question: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": question}]
    # The package no longer has a parameter for it.
    body = {"temperature": 0}
    return {"model": stand.model, "max_tokens": 200, "messages": messages, "extra_body": body}


def check(message: anthropic.types.Message) -> None:
    thought, said = message.content
    assert (thought.type, thought.thinking.strip()) == ("thinking", REASONING.strip())
    assert (said.type, said.text) == ("text", ANSWER)
    assert message.stop_reason == "end_turn"


async def test_words(stand: Stand, client: anthropic.AsyncAnthropic) -> None:
    request = asked(stand, "Where does it go?")
    whole = await client.messages.create(**request)
    check(whole)
    async with client.messages.stream(**request) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        streamed = await stream.get_final_message()
    check(streamed)
    assert text == ANSWER
    assert streamed.usage.output_tokens == whole.usage.output_tokens > 0


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
async def test_a_tool_loop(stand: Stand, client: anthropic.AsyncAnthropic, streams: bool) -> None:
    cities: list[str] = []

    @anthropic.beta_async_tool(name=TOOL_NAME)
    async def get_weather(city: str) -> str:
        """The weather."""
        cities.append(city)
        return "sunny"

    runner: Any = client.beta.messages.tool_runner(
        **asked(stand, "How is the weather?"), tools=[get_weather], stream=streams
    )
    turns = [await turn.get_final_message() if streams else turn async for turn in runner]
    assert [turn.stop_reason for turn in turns] == ["tool_use", "end_turn"]
    assert cities == ["Rome"]
    assert "".join(block.text for block in turns[-1].content if block.type == "text") == ANSWER
