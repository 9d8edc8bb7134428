"""A question and a tool loop, as the packages of OpenAI and Anthropic put them.

Each takes the packages, the way (which is what the model is called) and the question. Asking gives the text
and the usage; calling gives the cities that the tool was asked for, and the text of the answer.
"""

import json
from typing import Any, Protocol

import anthropic
import openai

from harness.tiny_model import TOOL_NAME

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
LIMIT = 200


class Packages(Protocol):
    """Clients of both packages, each with its address."""

    @property
    def openai(self) -> openai.AsyncOpenAI: ...

    @property
    def anthropic(self) -> anthropic.AsyncAnthropic: ...


async def _ask_chat(packages: Packages, way: str, text: str, streams: bool) -> tuple[str, Any]:
    messages: Any = [{"role": "user", "content": text}]
    request: dict[str, Any] = {"model": way, "messages": messages, "temperature": 0, "max_tokens": LIMIT}
    completions = packages.openai.chat.completions
    if streams:
        async with completions.stream(**request, stream_options={"include_usage": True}) as stream:
            completion: Any = await stream.get_final_completion()
    else:
        completion = await completions.create(**request)
    assert completion.choices[0].finish_reason == "stop"
    return completion.choices[0].message.content, completion.usage


async def _call_chat(packages: Packages, way: str, text: str, told: str) -> tuple[list[str], str]:
    tools = [{"type": "function", "function": {"name": TOOL_NAME, "parameters": PARAMETERS}}]
    messages: list[Any] = [{"role": "user", "content": text}]
    request: dict[str, Any] = {"model": way, "temperature": 0, "tools": tools, "max_tokens": LIMIT}
    async with packages.openai.chat.completions.stream(messages=messages, **request) as stream:
        message = (await stream.get_final_completion()).choices[0].message
    calls = message.tool_calls or []
    messages.append(message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
    for call in messages[-1].get("tool_calls", ()):
        call["function"].pop("parsed_arguments", None)
        call.pop("index", None)
    messages += [{"role": "tool", "tool_call_id": call.id, "content": told} for call in calls]
    final = await packages.openai.chat.completions.create(messages=messages, **request)
    return [json.loads(call.function.arguments)["city"] for call in calls], final.choices[
        0
    ].message.content or ""


async def _ask_responses(packages: Packages, way: str, text: str, streams: bool) -> tuple[str, Any]:
    request: dict[str, Any] = {
        "model": way, "input": text, "temperature": 0, "max_output_tokens": LIMIT, "store": False,
    }  # fmt: skip
    if streams:
        async with packages.openai.responses.stream(**request) as stream:
            response: Any = await stream.get_final_response()
    else:
        response = await packages.openai.responses.create(**request)
    assert response.status == "completed", response
    return response.output_text, response.usage


async def _call_responses(packages: Packages, way: str, text: str, told: str) -> tuple[list[str], str]:
    tools: Any = [{"type": "function", "name": TOOL_NAME, "parameters": PARAMETERS}]
    conversation: list[Any] = [{"role": "user", "content": text}]
    request: dict[str, Any] = {
        "model": way, "temperature": 0, "tools": tools, "store": False, "max_output_tokens": LIMIT,
    }  # fmt: skip
    async with packages.openai.responses.stream(input=conversation, **request) as stream:
        response = await stream.get_final_response()
    calls = [item for item in response.output if item.type == "function_call"]
    conversation += [
        item.model_dump(exclude_unset=True, exclude={"parsed_arguments"}) for item in response.output
    ]
    conversation += [
        {"type": "function_call_output", "call_id": call.call_id, "output": told} for call in calls
    ]
    final = await packages.openai.responses.create(input=conversation, **request)
    return [json.loads(call.arguments)["city"] for call in calls], final.output_text


async def _ask_messages(packages: Packages, way: str, text: str, streams: bool) -> tuple[str, Any]:
    messages: Any = [{"role": "user", "content": text}]
    request: dict[str, Any] = {"model": way, "messages": messages, "max_tokens": LIMIT}
    # The package has no parameter for it.
    request["extra_body"] = {"temperature": 0}
    if streams:
        async with packages.anthropic.messages.stream(**request) as stream:
            message: Any = await stream.get_final_message()
    else:
        message = await packages.anthropic.messages.create(**request)
    assert message.stop_reason == "end_turn", message
    return _text(message), message.usage


async def _call_messages(packages: Packages, way: str, text: str, told: str) -> tuple[list[str], str]:
    tools: Any = [{"name": TOOL_NAME, "input_schema": PARAMETERS}]
    messages: list[Any] = [{"role": "user", "content": text}]
    request: dict[str, Any] = {"model": way, "max_tokens": LIMIT, "tools": tools}
    request["extra_body"] = {"temperature": 0}
    async with packages.anthropic.messages.stream(messages=messages, **request) as stream:
        message: Any = await stream.get_final_message()
    calls = [block for block in message.content if block.type == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": told} for call in calls]
    messages += [
        {"role": "assistant", "content": [block.to_dict() for block in message.content]},
        {"role": "user", "content": results},
    ]
    final = await packages.anthropic.messages.create(messages=messages, **request)
    return [call.input["city"] for call in calls], _text(final)


def _text(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


ASKING: dict[str, Any] = {"chat": _ask_chat, "responses": _ask_responses, "messages": _ask_messages}
CALLING: dict[str, Any] = {"chat": _call_chat, "responses": _call_responses, "messages": _call_messages}
