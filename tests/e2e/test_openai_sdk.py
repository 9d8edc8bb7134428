"""What users of the `openai` package see of a healthy gateway."""

import asyncio
import dataclasses
import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk
from pydantic import BaseModel

from harness.openai_stand import MESSAGES, MODEL, Stand, extra, sdk, stand, valid
from sluicegate.testing import DIALECTS, Framing, Script, ToolCall, UsageScript

__all__ = ["sdk", "stand"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "A sluice lets water through and keeps the"
USAGE = UsageScript(input_tokens=100, cached_tokens=40)
# 60 at 1 USD a million, 40 at 0.1 and 8 at 4.
COST = 0.000096
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
FRAMINGS = {field.name: field.default for field in dataclasses.fields(Framing)}
ASKED: Any = {"stream": True, "stream_options": {"include_usage": True}}


def content(chunks: list[ChatCompletionChunk]) -> str:
    """The first choice's text."""
    choices = [choice for chunk in chunks for choice in chunk.choices if choice.index == 0]
    return "".join(choice.delta.content or "" for choice in choices)


def finishes(chunks: list[ChatCompletionChunk]) -> list[str]:
    return [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]


async def streamed(sdk: Stand, **members: Any) -> list[ChatCompletionChunk]:
    stream = await sdk.client.chat.completions.create(**{"model": MODEL, "messages": MESSAGES} | members)
    return [valid(chunk) async for chunk in stream]


# === completions ===


async def test_a_completion_has_its_text_its_usage_and_its_cost(sdk: Stand) -> None:
    sdk.upstream.script = Script(usage=USAGE)
    completion = valid(await sdk.client.chat.completions.create(model=MODEL, messages=MESSAGES))
    assert completion.choices[0].message.content == TEXT
    assert completion.choices[0].finish_reason == "stop"
    usage = completion.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (100, 8, 108)
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 40
    assert extra(usage)["cost"] == COST
    assert extra(usage)["cost_details"] == {
        "input_cost": 0.00006,
        "cached_input_cost": 0.000004,
        "cache_write_cost": 0,
        "output_cost": 0.000032,
        "reasoning_cost": 0,
    }
    line = await sdk.line(completion._request_id)
    assert (line["caller"], line["cost"], line["result"]) == ("team", "0.000096", "ok")


async def test_the_synchronous_client_sees_the_same(sdk: Stand) -> None:
    sdk.upstream.script = Script(usage=USAGE)

    def calls() -> None:
        client = sdk.sync_client.chat.completions
        completion = valid(client.create(model=MODEL, messages=MESSAGES))
        assert completion.choices[0].message.content == TEXT
        assert extra(completion.usage)["cost"] == COST
        with client.create(model=MODEL, messages=MESSAGES, stream=True) as stream:
            chunks = [valid(chunk) for chunk in stream]
        assert content(chunks) == TEXT
        assert all(chunk.choices for chunk in chunks)
        with client.create(model=MODEL, messages=MESSAGES, **ASKED) as stream:
            chunks = [valid(chunk) for chunk in stream]
        assert content(chunks) == TEXT
        assert extra(chunks[-1].usage)["cost"] == COST
        with client.stream(
            model=MODEL, messages=MESSAGES, **{"stream_options": ASKED["stream_options"]}
        ) as helper:
            helper.until_done()
            final = helper.get_final_completion()
        assert final.choices[0].message.content == TEXT
        assert extra(final.usage)["cost"] == COST

    await asyncio.to_thread(calls)
    assert len(sdk.upstream.requests) == 4


async def test_the_raw_response_has_the_headers(sdk: Stand) -> None:
    sdk.upstream.script = Script(headers={"x-ratelimit-remaining-requests": "99"})
    create = sdk.client.chat.completions.with_raw_response.create
    raw = await create(model=MODEL, messages=MESSAGES, extra_headers={"x-request-id": "sdk-raw-1"})
    assert raw.headers["x-request-id"] == raw.request_id == "sdk-raw-1"
    assert raw.headers["content-type"] == "application/json"
    assert raw.headers["x-ratelimit-remaining-requests"] == "99"
    assert raw.parse().choices[0].message.content == TEXT
    assert sdk.upstream.requests[0].header("x-request-id") == "sdk-raw-1"
    other = await create(model=MODEL, messages=MESSAGES)
    assert other.request_id not in (None, "sdk-raw-1")
    stream = await create(model=MODEL, messages=MESSAGES, stream=True)
    assert stream.headers["x-request-id"] not in ("sdk-raw-1", other.request_id)
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert content([chunk async for chunk in stream.parse()]) == TEXT
    streaming = sdk.client.chat.completions.with_streaming_response.create
    async with streaming(model=MODEL, messages=MESSAGES, stream=True) as response:
        lines = [line async for line in response.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"


async def test_the_clients_key_stays_with_the_gateway(sdk: Stand) -> None:
    await sdk.client.chat.completions.create(model=MODEL, messages=MESSAGES)
    assert sdk.upstream.requests[0].header("authorization") is None


async def test_a_parsed_completion(sdk: Stand) -> None:
    class Harbour(BaseModel):
        name: str
        boats: int

    sdk.upstream.script = Script(text='{"name": "Köln", "boats": 3}')
    completion = await sdk.client.chat.completions.parse(
        model=MODEL, messages=MESSAGES, response_format=Harbour
    )
    assert completion.choices[0].message.parsed == Harbour(name="Köln", boats=3)
    sent = sdk.upstream.requests[0].json()
    assert sent["response_format"]["json_schema"]["schema"]["required"] == ["name", "boats"]


# === streams ===


@pytest.mark.parametrize(
    "options", [{}, {"stream_options": {"include_usage": False}}], ids=["silent", "false"]
)
async def test_a_stream_has_no_usage_chunk_that_was_not_asked_for(sdk: Stand, options: Any) -> None:
    sdk.upstream.script = Script(usage=USAGE)
    stream = await sdk.client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True, **options)
    chunks = [valid(chunk) async for chunk in stream]
    assert content(chunks) == TEXT
    assert finishes(chunks) == ["stop"]
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)
    # It was asked for all the same: the request has its price.
    assert sdk.upstream.requests[0].json()["stream_options"] == {"include_usage": True}
    line = await sdk.line(stream.response.headers["x-request-id"])
    assert (line["input_tokens"], line["output_tokens"], line["cost"]) == (100, 8, "0.000096")


async def test_a_stream_ends_with_the_usage_that_was_asked_for(sdk: Stand) -> None:
    sdk.upstream.script = Script(usage=USAGE)
    *chunks, last = await streamed(sdk, **ASKED)
    assert content(chunks) == TEXT
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)
    assert last.choices == []
    assert last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (100, 8)
    assert extra(last.usage)["cost"] == COST
    assert len({chunk.id for chunk in [*chunks, last]}) == 1


async def test_words_arrive_one_by_one(sdk: Stand) -> None:
    sdk.upstream.script = Script(tokens=3, pace=30)
    async with await sdk.client.chat.completions.create(
        model=MODEL, messages=MESSAGES, stream=True
    ) as stream:
        async with asyncio.timeout(10):
            async for chunk in stream:
                if chunk.choices[0].delta.content:
                    break
        assert chunk.choices[0].delta.content == "A"


async def test_reasoning_is_passed_on(sdk: Stand) -> None:
    sdk.upstream.script = Script(reasoning_tokens=4)
    completion = await sdk.client.chat.completions.create(model=MODEL, messages=MESSAGES)
    chunks = await streamed(sdk, **ASKED)
    deltas = [chunk.choices[0].delta for chunk in chunks[:-1]]
    reasoning = "".join(extra(delta).get("reasoning_content") or "" for delta in deltas)
    assert reasoning == extra(completion.choices[0].message)["reasoning_content"] == "The skipper wants to"
    assert content(chunks) == completion.choices[0].message.content == TEXT
    for usage in (completion.usage, chunks[-1].usage):
        assert extra(usage)["cost_details"]["reasoning_cost"] == 0.000016


async def test_tool_calls_come_whole_and_in_pieces(sdk: Stand) -> None:
    calls = (ToolCall(), ToolCall(name="other", arguments='{"gate": "5 €"}'))
    sdk.upstream.script = Script(tokens=2, tool_calls=calls)
    completion = await sdk.client.chat.completions.create(model=MODEL, messages=MESSAGES, tools=[WEATHER])
    message = valid(completion).choices[0].message
    assert completion.choices[0].finish_reason == "tool_calls"
    assert message.tool_calls is not None
    whole = [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls]
    assert [call[1:] for call in whole] == [(call.name, call.arguments) for call in calls]
    chunks = await streamed(sdk, tools=[WEATHER], stream=True)
    pieces: dict[int, list[str]] = {}
    for chunk in chunks:
        for call in chunk.choices[0].delta.tool_calls or ():
            assert call.function is not None
            piece = pieces.setdefault(call.index, ["", "", ""])
            for place, text in enumerate((call.id, call.function.name, call.function.arguments)):
                piece[place] += text or ""
    assert [tuple(piece) for piece in pieces.values()] == whole
    assert finishes(chunks) == ["tool_calls"]
    assert sdk.upstream.requests[1].json()["tools"] == [WEATHER]


async def test_the_stream_helper_with_two_choices_tools_and_logprobs(sdk: Stand) -> None:
    sdk.upstream.script = Script(tokens=3, tool_calls=(ToolCall(),))
    async with sdk.client.chat.completions.stream(
        model=MODEL,
        messages=MESSAGES,
        n=2,
        logprobs=True,
        top_logprobs=2,
        tools=[WEATHER],
        stream_options={"include_usage": True},
    ) as stream:
        kinds = {event.type async for event in stream}
        completion = await stream.get_final_completion()
    assert kinds >= {"chunk", "content.delta", "content.done", "logprobs.content.done"}
    assert kinds >= {"tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"}
    assert [choice.index for choice in completion.choices] == [0, 1]
    texts = {choice.message.content for choice in completion.choices}
    assert len(texts) == 2
    for choice in completion.choices:
        assert choice.finish_reason == "tool_calls"
        assert choice.message.tool_calls is not None
        assert json.loads(choice.message.tool_calls[0].function.arguments)["city"] == "Rome"
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert [len(token.top_logprobs) for token in choice.logprobs.content] == [2, 2, 2]
    assert extra(completion.usage)["cost"] > 0


async def test_two_choices_with_logprobs_as_one_document(sdk: Stand) -> None:
    create = sdk.client.chat.completions.create
    completion = valid(await create(model=MODEL, messages=MESSAGES, n=2, logprobs=True, top_logprobs=1))
    assert [choice.index for choice in completion.choices] == [0, 1]
    for choice in completion.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert "".join(token.token for token in choice.logprobs.content) == choice.message.content


async def test_a_refusal_is_passed_on(sdk: Stand) -> None:
    sdk.upstream.script = Script(refusal="I will not lift it.")
    async with sdk.client.chat.completions.stream(model=MODEL, messages=MESSAGES) as stream:
        completion = await stream.get_final_completion()
    assert completion.choices[0].message.refusal == "I will not lift it."


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
async def test_every_dialect_gives_the_same_text_and_cost(sdk: Stand, dialect: Any) -> None:
    sdk.upstream.script = Script(dialect=dialect, usage=UsageScript(input_tokens=100))
    completion = await sdk.client.chat.completions.create(model=MODEL, messages=MESSAGES)
    assert completion.choices[0].message.content == TEXT
    assert extra(completion.usage)["cost"] == 0.000132
    # Not `valid`: some upstreams have chunks of their own kind, and they are passed on as they came.
    stream = await sdk.client.chat.completions.create(model=MODEL, messages=MESSAGES, **ASKED)
    chunks = [chunk async for chunk in stream]
    assert content(chunks) == TEXT
    costs = [extra(chunk.usage)["cost"] for chunk in chunks if chunk.usage and "cost" in extra(chunk.usage)]
    assert costs
    assert set(costs) == {0.000132}


@pytest.mark.parametrize(
    "framing",
    [
        Framing(line_ending="crlf"),
        Framing(line_ending="cr"),
        Framing(bom=True),
        Framing(space_after_colon=False, trailing_space=True),
        Framing(data_lines=3),
        Framing(done_markers=0),
        Framing(final_blank_line=False),
        Framing(ensure_ascii=True, json_spaces=True),
        Framing(keepalive_first=True, keepalive_every_events=2),
        Framing(events_per_write=100),
        Framing(piece_bytes=1),
        Framing(wire_bytes=7),
    ],
    ids=lambda framing: "-".join(name for name in FRAMINGS if getattr(framing, name) != FRAMINGS[name]),
)
async def test_every_framing_gives_the_same_text_and_cost(sdk: Stand, framing: Framing) -> None:
    sdk.upstream.script = Script(tokens=40, framing=framing, usage=UsageScript(input_tokens=100))
    chunks = await streamed(sdk, **ASKED)
    assert content(chunks).startswith(TEXT)
    assert "Köln" in content(chunks)
    assert len([chunk for chunk in chunks if content([chunk])]) == 40
    assert finishes(chunks) == ["stop"]
    assert extra(chunks[-1].usage)["cost"] == 0.00026


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
async def test_an_upstream_that_compresses(sdk: Stand, compression: Any) -> None:
    sdk.upstream.script = Script(compression=compression, usage=USAGE)
    completion = await sdk.client.chat.completions.create(model=MODEL, messages=MESSAGES)
    chunks = await streamed(sdk, **ASKED)
    assert content(chunks) == completion.choices[0].message.content == TEXT
    assert extra(chunks[-1].usage)["cost"] == extra(completion.usage)["cost"] == COST


async def test_an_upstream_that_refuses_to_be_asked_for_usage(sdk: Stand) -> None:
    sdk.upstream.script = Script(refuse_stream_options=True)
    chunks = await streamed(sdk, stream=True)
    assert content(chunks) == TEXT
    asked = ["stream_options" in record.json() for record in sdk.upstream.requests]
    assert asked == [True, False]


async def test_fifty_streams_at_once_are_not_mixed_up(sdk: Stand) -> None:
    async def one(number: int) -> tuple[int, float]:
        text = " ".join(f"boat-{number}-{word}" for word in range(20))
        mock = {"text": text, "pace": 0.005, "usage": {"input_tokens": number}}
        chunks = await streamed(sdk, **ASKED, extra_body={"mock": mock})
        assert content(chunks) == text
        assert chunks[-1].usage is not None
        return chunks[-1].usage.prompt_tokens, extra(chunks[-1].usage)["cost"]

    results = await asyncio.gather(*(one(number) for number in range(1, 51)))
    assert [tokens for tokens, _ in results] == list(range(1, 51))
    assert [round(cost * 1_000_000) for _, cost in results] == [number + 80 for number in range(1, 51)]


# === upstreams that answer in the other form ===


async def test_a_stream_is_made_of_an_upstreams_document(sdk: Stand) -> None:
    sdk.upstream.script = Script(stream=False, usage=USAGE, reasoning_tokens=2, tool_calls=(ToolCall(),))
    chunks = await streamed(sdk, tools=[WEATHER], **ASKED)
    assert content(chunks) == TEXT
    assert finishes(chunks) == ["tool_calls"]
    assert extra(chunks[-1].usage)["cost"] > COST
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}


async def test_a_completion_is_made_of_an_upstreams_stream(sdk: Stand) -> None:
    sdk.upstream.script = Script(stream=True, usage=UsageScript(input_tokens=100, placement="always"))
    completion = valid(await sdk.client.chat.completions.create(model=MODEL, messages=MESSAGES, n=2))
    assert completion.object == "chat.completion"
    assert len(completion.choices) == 2
    assert completion.choices[0].message.content == TEXT
    assert completion.choices[0].finish_reason == "stop"
    assert extra(completion.usage)["cost"] > 0


# === other endpoints ===


async def test_older_completions(sdk: Stand) -> None:
    sdk.upstream.script = Script(usage=USAGE)
    completion = valid(await sdk.client.completions.create(model=MODEL, prompt="Once", logprobs=1))
    assert completion.choices[0].text == TEXT
    assert extra(completion.usage)["cost"] == COST
    create = sdk.client.completions.create
    chunks = [chunk async for chunk in await create(model=MODEL, prompt="Once", stream=True)]
    assert "".join(chunk.choices[0].text for chunk in chunks) == TEXT
    assert all(chunk.usage is None for chunk in chunks)
    *chunks, last = [chunk async for chunk in await create(model=MODEL, prompt="Once", **ASKED)]
    assert "".join(chunk.choices[0].text for chunk in chunks) == TEXT
    assert last.choices == []
    assert extra(last.usage)["cost"] == COST


async def test_embeddings(sdk: Stand) -> None:
    sdk.upstream.script = Script(usage=UsageScript(input_tokens=7))
    packed = valid(await sdk.client.embeddings.create(model=MODEL, input=["a", "b"]))
    plain = await sdk.client.embeddings.create(model=MODEL, input=["a", "b"], encoding_format="float")
    assert len(packed.data) == 2
    assert [entry.embedding for entry in packed.data] == [entry.embedding for entry in plain.data]
    assert packed.usage.prompt_tokens == 7
    assert extra(packed.usage)["cost"] == 0.000007
    # The package asks for base64 by itself: both forms went through.
    assert [record.json()["encoding_format"] for record in sdk.upstream.requests] == ["base64", "float"]


async def test_models(sdk: Stand) -> None:
    assert [valid(model).id async for model in await sdk.client.models.list()] == [
        "small",
        "impatient",
        "native",
    ]
    assert (await sdk.client.models.retrieve(MODEL)).id == MODEL
    with pytest.raises(openai.NotFoundError):
        await sdk.client.models.retrieve("nothing")
