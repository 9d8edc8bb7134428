"""langchain-openai in front of llama.cpp: both APIs, whole and streamed, with a tool."""

from typing import Any

import pytest

from harness import needed

pytest.importorskip("langchain_openai", reason=needed.PACKAGES)

from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from clients.stand import Stand
from harness.tiny_model import ANSWER, TOOL_ARGUMENTS, TOOL_NAME

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session")]

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": TOOL_NAME,
        "description": "The weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.mark.parametrize("uses_responses", [False, True], ids=["chat", "responses"])
async def test_words_and_tools(stand: Stand, uses_responses: bool) -> None:
    model = ChatOpenAI(
        model=stand.model,
        base_url=stand.base_url,
        api_key=SecretStr("none"),
        temperature=0,
        max_retries=0,
        use_responses_api=uses_responses,
        stream_usage=True,
    )
    whole = await model.ainvoke("Where does it go?")
    assert whole.text == ANSWER
    assert isinstance(whole, AIMessage)
    assert whole.usage_metadata
    gathered: AIMessageChunk | None = None
    async for chunk in model.astream("Where does it go?"):
        assert isinstance(chunk, AIMessageChunk)
        gathered = chunk if gathered is None else gathered + chunk
    assert gathered
    assert gathered.text == ANSWER
    assert gathered.usage_metadata
    assert gathered.usage_metadata["output_tokens"] == whole.usage_metadata["output_tokens"]

    with_tools = model.bind_tools([WEATHER])
    question = HumanMessage("How is the weather?")
    called: AIMessageChunk | None = None
    async for chunk in with_tools.astream([question]):
        assert isinstance(chunk, AIMessageChunk)
        called = chunk if called is None else called + chunk
    assert called
    [call] = called.tool_calls
    assert (call["name"], call["args"]) == (TOOL_NAME, {"city": "Rome"})
    assert called.tool_call_chunks[0]["args"] == TOOL_ARGUMENTS
    told = ToolMessage("sunny", tool_call_id=call["id"])
    answered = await with_tools.ainvoke([question, called, told])
    assert answered.text == ANSWER
