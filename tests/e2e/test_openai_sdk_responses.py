"""What users of the `openai` package see of `/v1/responses`, over either kind of upstream."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from harness.openai_stand import MODEL, NATIVE, Stand, extra, sdk, stand
from harness.strict_openai import validate
from sluicegate.testing import Fault, Script, ToolCall, UsageScript

__all__ = ["sdk", "stand"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODELS = [MODEL, NATIVE]
TEXT = "A sluice lets water through and keeps the"
USAGE = UsageScript(input_tokens=100, cached_tokens=40)
COST = 0.000096
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": True,
}


def strict(value: BaseModel) -> Any:
    """`value`, once it is certain that it is what the package says: the package itself takes what comes."""
    validate(value.model_dump(by_alias=True, exclude_unset=True))
    return value


@pytest.mark.parametrize("model", MODELS)
async def test_a_response_has_its_text_its_usage_and_its_cost(sdk: Stand, model: str) -> None:
    sdk.upstream.script = Script(usage=USAGE)
    response = strict(await sdk.client.responses.create(model=model, input="Say something."))
    assert response.output_text == TEXT
    assert (response.status, response.error) == ("completed", None)
    assert (response.usage.input_tokens, response.usage.output_tokens) == (100, 8)
    assert response.usage.input_tokens_details.cached_tokens == 40
    assert extra(response.usage)["cost"] == COST
    line = await sdk.line(response._request_id)
    assert (line["caller"], line["endpoint"], line["cost"]) == ("team", "responses", "0.000096")


@pytest.mark.parametrize("model", MODELS)
async def test_a_stream_has_every_event(sdk: Stand, model: str) -> None:
    sdk.upstream.script = Script(usage=USAGE, reasoning_tokens=2)
    stream = await sdk.client.responses.create(model=model, input="Say something.", stream=True)
    events = [strict(event) async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == TEXT
    assert len(deltas) == 8
    final = events[-1].response
    assert final.output_text == TEXT
    assert extra(final.usage)["cost"] > 0
    assert {event.response.id for event in events if hasattr(event, "response")} == {final.id}


@pytest.mark.parametrize("model", MODELS)
async def test_the_stream_helper(sdk: Stand, model: str) -> None:
    sdk.upstream.script = Script(usage=USAGE, reasoning_tokens=2, tool_calls=(ToolCall(),))
    async with sdk.client.responses.stream(model=model, input="Say something.", tools=[WEATHER]) as stream:
        kinds = {event.type async for event in stream}
        final = await stream.get_final_response()
    assert kinds >= {
        "response.created", "response.reasoning_text.delta", "response.output_text.done",
        "response.function_call_arguments.delta", "response.completed",
    }  # fmt: skip
    assert final.output_text == TEXT
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert final.output[2].parsed_arguments == {"city": "Rome", "unit": "celsius"}


@pytest.mark.parametrize("model", MODELS)
async def test_the_synchronous_client_sees_the_same(sdk: Stand, model: str) -> None:
    sdk.upstream.script = Script(usage=USAGE)

    def calls() -> None:
        client = sdk.sync_client.responses
        assert strict(client.create(model=model, input="hi")).output_text == TEXT
        with client.create(model=model, input="hi", stream=True) as stream:
            last = [strict(event) for event in stream][-1]
        assert last.response.output_text == TEXT
        with client.stream(model=model, input="hi") as helper:
            helper.until_done()
            final = helper.get_final_response()
        assert final.output_text == TEXT
        assert extra(final.usage)["cost"] == COST

    await asyncio.to_thread(calls)
    assert len(sdk.upstream.requests) == 3


@pytest.mark.parametrize("model", MODELS)
async def test_a_structured_output(sdk: Stand, model: str) -> None:
    class Harbour(BaseModel):
        name: str
        boats: int

    sdk.upstream.script = Script(text='{"name": "K\u00f6ln", "boats": 3}')
    response = await sdk.client.responses.parse(model=model, input="A harbour.", text_format=Harbour)
    assert response.output_parsed == Harbour(name="K\u00f6ln", boats=3)
    async with sdk.client.responses.stream(model=model, input="A harbour.", text_format=Harbour) as stream:
        final = await stream.get_final_response()
    assert final.output_parsed == Harbour(name="K\u00f6ln", boats=3)
    sent = [record.json() for record in sdk.upstream.requests]
    schemas: dict[str, Callable[[Any], Any]] = {
        MODEL: lambda body: body["response_format"]["json_schema"]["schema"],
        NATIVE: lambda body: body["text"]["format"]["schema"],
    }
    assert [schemas[model](body)["required"] for body in sent] == [["name", "boats"]] * 2


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("streams", [True, False])
async def test_a_loop_of_tool_calls(sdk: Stand, model: str, streams: bool) -> None:
    async def turn(conversation: list[Any]) -> Any:
        asked: dict[str, Any] = {"model": model, "input": conversation, "tools": [WEATHER], "store": False}
        if not streams:
            return await sdk.client.responses.create(**asked)
        async with sdk.client.responses.stream(**asked) as stream:
            return await stream.get_final_response()

    conversation: list[Any] = [{"role": "user", "content": "The weather in Rome?"}]
    calls = (ToolCall(id="call_1"), ToolCall(id="call_2", arguments='{"city":"Oslo"}'))
    sdk.upstream.script = Script(tokens=0, reasoning_tokens=2, tool_calls=calls)
    response = await turn(conversation)
    asked = [item for item in response.output if item.type == "function_call"]
    assert [json.loads(item.arguments)["city"] for item in asked] == ["Rome", "Oslo"]
    conversation += [
        item.model_dump(exclude_unset=True, exclude={"parsed_arguments"}) for item in response.output
    ]
    conversation += [
        {"type": "function_call_output", "call_id": item.call_id, "output": "sunny"} for item in asked
    ]
    sdk.upstream.script = Script()
    assert (await turn(conversation)).output_text == TEXT
    sent = sdk.upstream.requests[-1].json()
    if model == MODEL:
        user, assistant, *outputs = sent["messages"]
        assert user == conversation[0]
        assert [call["id"] for call in assistant["tool_calls"]] == ["call_1", "call_2"]
        assert assistant["reasoning_content"] == "The skipper"
        assert outputs == [
            {"role": "tool", "tool_call_id": f"call_{number}", "content": "sunny"} for number in (1, 2)
        ]
    else:
        assert sent["input"] == conversation


async def test_a_custom_tool(sdk: Stand) -> None:
    sdk.upstream.script = Script(
        tokens=0, tool_calls=(ToolCall(name="run", arguments='{"input":"ls -la\\n"}'),)
    )
    tools: Any = [{"type": "custom", "name": "run"}]
    stream = await sdk.client.responses.create(model=MODEL, input="List it.", tools=tools, stream=True)
    events: list[Any] = [strict(event) async for event in stream]
    text = "".join(e.delta for e in events if e.type == "response.custom_tool_call_input.delta")
    assert text == events[-1].response.output[0].input == "ls -la\n"


@pytest.mark.parametrize("model", MODELS)
async def test_what_is_cut_short_is_incomplete(sdk: Stand, model: str) -> None:
    sdk.upstream.script = Script(finish_reason="length", usage=USAGE)
    response = strict(await sdk.client.responses.create(model=model, input="hi", max_output_tokens=8))
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    stream = await sdk.client.responses.create(model=model, input="hi", stream=True)
    events: list[Any] = [strict(event) async for event in stream]
    assert events[-1].type == "response.incomplete"
    assert extra(events[-1].response.usage)["cost"] == COST


async def test_what_cannot_be_asked_is_a_bad_request_that_names_it(sdk: Stand) -> None:
    tools: Any = [WEATHER, {"type": "file_search", "vector_store_ids": ["vs_1"]}]
    with pytest.raises(openai.BadRequestError) as caught:
        await sdk.client.responses.create(model=MODEL, input="hi", tools=tools)
    assert (caught.value.param, caught.value.type) == ("tools[1]", "invalid_request_error")
    assert not sdk.upstream.requests


@pytest.mark.parametrize("model", MODELS)
async def test_errors_are_of_the_packages_classes(sdk: Stand, model: str) -> None:
    create = sdk.client.responses.create
    sdk.upstream.script = Script(status=429, headers={"retry-after": "3"})
    with pytest.raises(openai.RateLimitError) as limited:
        await create(model=model, input="hi", stream=True)
    assert limited.value.response.headers["retry-after"] == "3"
    sdk.upstream.script = Script(faults=(Fault(action="reset", at="before_head"),))
    with pytest.raises(openai.InternalServerError):
        await create(model=model, input="hi")
    with pytest.raises(openai.NotFoundError):
        await create(model="nothing", input="hi")
    with pytest.raises(openai.AuthenticationError):
        await sdk.client.with_options(api_key="sk-wrong").responses.create(model=model, input="hi")


@pytest.mark.parametrize("model", MODELS)
async def test_a_stream_that_breaks_off_says_so(sdk: Stand, model: str) -> None:
    sdk.upstream.script = Script(faults=(Fault(action="close", events=6),))
    kinds: list[str] = []
    stream = await sdk.client.responses.create(model=model, input="hi", stream=True)
    async for event in stream:
        kinds.append(event.type)
        strict(event)
    assert kinds[-2:] == ["error", "response.failed"]


async def test_fifty_streams_at_once_are_not_mixed_up(sdk: Stand) -> None:
    async def one(number: int) -> tuple[str, int]:
        text = " ".join(f"boat-{number}-{word}" for word in range(20))
        mock = {"text": text, "pace": 0.005, "usage": {"input_tokens": number}}
        body = {"mock": mock}
        async with sdk.client.responses.stream(model=MODEL, input="hi", extra_body=body) as stream:
            final = await stream.get_final_response()
        assert final.output_text == text
        assert final.usage is not None
        return final.id, final.usage.input_tokens

    results = await asyncio.gather(*(one(number) for number in range(1, 51)))
    assert [tokens for _, tokens in results] == list(range(1, 51))
    assert len({response_id for response_id, _ in results}) == 50
