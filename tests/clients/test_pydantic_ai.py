"""pydantic-ai in front of llama.cpp: its models of each API, a tool loop, whole and streamed."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from harness import needed

pytest.importorskip("pydantic_ai", reason=needed.PACKAGES)

pytest.importorskip("anthropic", reason=needed.PACKAGES)

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from clients.stand import Stand
from harness.tiny_model import ANSWER

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session")]

APIS = ("responses", "chat", "messages")


@contextlib.asynccontextmanager
async def model_of(api: str, stand: Stand) -> AsyncIterator[Model]:
    if api == "messages":
        base_url = stand.gateway.base_url
        async with AsyncAnthropic(base_url=base_url, api_key="none", max_retries=0) as messages:
            yield AnthropicModel(stand.model, provider=AnthropicProvider(anthropic_client=messages))
        return
    async with AsyncOpenAI(base_url=stand.base_url, api_key="none", max_retries=0) as client:
        provider = OpenAIProvider(openai_client=client)
        if api == "responses":
            yield OpenAIResponsesModel(stand.model, provider=provider)
        else:
            yield OpenAIChatModel(stand.model, provider=provider)


@pytest.mark.parametrize("api", APIS)
async def test_a_tool_loop(stand: Stand, api: str) -> None:
    cities: list[str] = []
    async with model_of(api, stand) as model:
        agent = Agent(model, model_settings=ModelSettings(temperature=0))

        @agent.tool_plain
        def get_weather(city: str) -> str:
            """The weather."""
            cities.append(city)
            return "sunny"

        whole = await agent.run("How is the weather?")
        assert whole.output == ANSWER
        async with agent.run_stream("How is the weather?") as streamed:
            assert await streamed.get_output() == ANSWER
    assert cities == ["Rome", "Rome"]
