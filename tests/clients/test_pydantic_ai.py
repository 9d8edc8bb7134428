"""pydantic-ai in front of llama.cpp: both APIs, a tool loop, whole and streamed."""

import pytest

pytest.importorskip("pydantic_ai")

from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from clients.stand import Stand
from harness.tiny_model import ANSWER

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session")]

APIS = {"responses": OpenAIResponsesModel, "chat": OpenAIChatModel}


@pytest.mark.parametrize("api", APIS)
async def test_a_tool_loop(stand: Stand, api: str) -> None:
    cities: list[str] = []
    client = AsyncOpenAI(base_url=stand.base_url, api_key="none", max_retries=0)
    async with client:
        model = APIS[api](stand.model, provider=OpenAIProvider(openai_client=client))
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
