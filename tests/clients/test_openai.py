"""OpenAI's package for Python in front of llama.cpp: replies, the stream helpers, a tool loop."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from harness import needed

pytest.importorskip("anthropic", reason=needed.PACKAGES)

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from clients.stand import Stand
from harness.tiny_model import ANSWER, CALL_WORD
from real.chats import ASKING, CALLING

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session")]


@dataclass(frozen=True, slots=True)
class Packages:
    openai: AsyncOpenAI
    anthropic: AsyncAnthropic


@pytest_asyncio.fixture(loop_scope="session")
async def packages(stand: Stand) -> AsyncIterator[Packages]:
    async with (
        AsyncOpenAI(base_url=stand.base_url, api_key="none", max_retries=0) as first,
        AsyncAnthropic(base_url=stand.gateway.base_url, api_key="none", max_retries=0) as second,
    ):
        yield Packages(first, second)


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_words(stand: Stand, packages: Packages, api: str) -> None:
    whole, streamed = [
        await ASKING[api](packages, stand.model, "Where does it go?", streams) for streams in (False, True)
    ]
    assert (whole[0], streamed[0]) == (ANSWER, ANSWER)
    assert whole[1].total_tokens == streamed[1].total_tokens > 0


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_tool_loop(stand: Stand, packages: Packages, api: str) -> None:
    called = await CALLING[api](packages, stand.model, f"The {CALL_WORD} in Rome?", "sunny")
    assert called == (["Rome"], ANSWER)
