"""The OpenAI Agents SDK for Python in front of llama.cpp: a tool loop over both APIs, whole and streamed."""

from typing import Any

import pytest

from harness import needed

pytest.importorskip("agents", reason=needed.PACKAGES)

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)
from openai import AsyncOpenAI

from clients.stand import Stand
from harness.tiny_model import ANSWER

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session")]

APIS = {"responses": OpenAIResponsesModel, "chat": OpenAIChatCompletionsModel}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", APIS)
async def test_a_tool_loop(stand: Stand, api: str, streamed: bool) -> None:
    cities: list[str] = []

    @function_tool
    def get_weather(city: str) -> str:
        """The weather."""
        cities.append(city)
        return "sunny"

    client = AsyncOpenAI(base_url=stand.base_url, api_key="none", max_retries=0)
    async with client:
        agent = Agent(
            name="Guide",
            model=APIS[api](stand.model, client),
            model_settings=ModelSettings(temperature=0, include_usage=True),
            tools=[get_weather],
        )
        question: Any = (agent, "How is the weather?")
        config = RunConfig(tracing_disabled=True)
        if streamed:
            run = Runner.run_streamed(*question, run_config=config)
            async for _ in run.stream_events():
                pass
            result: Any = run
        else:
            result = await Runner.run(*question, run_config=config)
    assert result.final_output == ANSWER
    assert cities == ["Rome"]
    usage = result.context_wrapper.usage
    assert usage.requests == 2
    assert usage.output_tokens > 0
