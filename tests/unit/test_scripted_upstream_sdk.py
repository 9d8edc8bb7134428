"""The openai package, as users have it, talks to the scripted upstream."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import openai
import pytest

from sluicegate.testing import Fault, Script, ScriptedUpstream, ToolCall
from sluicegate.testing.pytest_plugin import scripted_upstream

__all__ = ["scripted_upstream"]

MESSAGES: Any = [{"role": "user", "content": "hi"}]


@pytest.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream() as upstream:
        yield upstream


@pytest.fixture
async def client(upstream: ScriptedUpstream) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=upstream.base_url, api_key="any", max_retries=0) as client:
        yield client


async def test_a_completion(client: openai.AsyncOpenAI) -> None:
    completion = await client.chat.completions.create(model="gpt-x", messages=MESSAGES)
    assert completion.model == "gpt-x"
    assert completion.choices[0].message.content == "A sluice lets water through and keeps the"
    assert completion.usage is not None
    assert completion.usage.total_tokens == 20


async def test_a_stream(upstream: ScriptedUpstream, client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="m", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == "A sluice lets water through and keeps the"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 8
    record = await upstream.requests[0].ended()
    assert record.complete
    assert not record.client_left


async def test_the_stream_helper_with_tools_choices_and_logprobs(
    upstream: ScriptedUpstream, client: openai.AsyncOpenAI
) -> None:
    upstream.script = Script(tokens=3, tool_calls=(ToolCall(), ToolCall(name="other", arguments="{}")))
    async with client.chat.completions.stream(
        model="m", messages=MESSAGES, n=2, logprobs=True, top_logprobs=1
    ) as stream:
        async for _ in stream:
            pass
        completion = await stream.get_final_completion()
    assert [choice.index for choice in completion.choices] == [0, 1]
    for choice in completion.choices:
        assert choice.finish_reason == "tool_calls"
        assert choice.message.tool_calls is not None
        assert [call.function.name for call in choice.message.tool_calls] == ["get_weather", "other"]
        assert json.loads(choice.message.tool_calls[0].function.arguments)["city"] == "Rome"
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert len(choice.logprobs.content) == 3
        assert len(choice.logprobs.content[0].top_logprobs) == 1


async def test_a_refusal_through_the_helper(upstream: ScriptedUpstream, client: openai.AsyncOpenAI) -> None:
    upstream.script = Script(refusal="I will not.")
    async with client.chat.completions.stream(model="m", messages=MESSAGES) as stream:
        completion = await stream.get_final_completion()
    assert completion.choices[0].message.refusal == "I will not."


async def test_a_response(client: openai.AsyncOpenAI) -> None:
    response = await client.responses.create(model="m", input="hi")
    assert response.status == "completed"
    assert response.output_text == "A sluice lets water through and keeps the"
    assert response.usage is not None
    assert response.usage.total_tokens == 20


async def test_a_streamed_response(upstream: ScriptedUpstream, client: openai.AsyncOpenAI) -> None:
    upstream.script = Script(tokens=5, reasoning_tokens=3, tool_calls=(ToolCall(),))
    async with client.responses.stream(model="m", input="hi") as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert final.output_text == "A sluice lets water through"


async def test_older_completions_embeddings_and_models(client: openai.AsyncOpenAI) -> None:
    completion = await client.completions.create(model="m", prompt="hi")
    assert completion.choices[0].text == "A sluice lets water through and keeps the"
    stream = await client.completions.create(model="m", prompt="hi", stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == completion.choices[0].text
    packed = await client.embeddings.create(model="m", input=["a", "b"])
    plain = await client.embeddings.create(model="m", input=["a", "b"], encoding_format="float")
    assert [entry.embedding for entry in packed.data] == [entry.embedding for entry in plain.data]
    assert [model.id async for model in await client.models.list()] == ["mock-1"]
    assert (await client.models.retrieve("mock-1")).id == "mock-1"


async def test_errors_are_the_packages_own(upstream: ScriptedUpstream, client: openai.AsyncOpenAI) -> None:
    upstream.script = Script(status=429)
    with pytest.raises(openai.RateLimitError):
        await client.chat.completions.create(model="m", messages=MESSAGES)
    upstream.script = Script(faults=(Fault(action="error", events=3),))
    stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    with pytest.raises(openai.APIError, match="The server had an error"):
        async for _ in stream:
            pass
    upstream.script = Script(faults=(Fault(action="reset", at="before_head"),))
    with pytest.raises(openai.APIConnectionError):
        await client.chat.completions.create(model="m", messages=MESSAGES)


# === Without an event loop, and as a process ===


def test_in_a_thread() -> None:
    with (
        ScriptedUpstream.in_thread(Script(tokens=2)) as upstream,
        openai.OpenAI(base_url=upstream.base_url, api_key="any") as client,
    ):
        completion = client.chat.completions.create(model="m", messages=MESSAGES)
        assert completion.choices[0].message.content == "A sluice"
        record = upstream.requests.wait_sync().wait_ended()
        assert record.complete
        with pytest.raises(TimeoutError):
            upstream.requests.wait_sync(2, seconds=0.01)
        port = upstream.port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_a_thread_that_cannot_listen_says_so(scripted_upstream: ScriptedUpstream) -> None:
    with pytest.raises(OSError, match="in use"), ScriptedUpstream.in_thread(port=scripted_upstream.port):
        pass


async def test_the_fixture_serves_asynchronous_tests_too(scripted_upstream: ScriptedUpstream) -> None:
    async with httpx.AsyncClient(base_url=scripted_upstream.base_url) as client:
        assert (await client.get("/models")).status_code == 200
    record = await scripted_upstream.requests.wait()
    assert (await record.ended()).complete


@pytest.fixture
def mock_process() -> Iterator[subprocess.Popen[str]]:
    code = (
        "from sluicegate.testing import run_mock; "
        "raise SystemExit(run_mock(port=0, tokens=3, models=('a', 'b')))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_mock_serves_until_it_is_told_to_stop(
    mock_process: subprocess.Popen[str], number: signal.Signals
) -> None:
    assert mock_process.stdout is not None
    line = mock_process.stdout.readline()
    base_url = line.split(" ")[3]
    assert line == f"scripted upstream on {base_url} (models: a, b)\n"
    reply = httpx.post(f"{base_url}/chat/completions", json={"model": "m", "messages": []})
    assert reply.json()["choices"][0]["message"]["content"] == "A sluice lets"
    os.kill(mock_process.pid, number)
    assert mock_process.wait(10) == 0
    assert "sluicegate serve --upstream http://127.0.0.1:" in mock_process.stdout.readline()
    assert mock_process.stdout.read() == ""


def test_it_needs_the_standard_library_only() -> None:
    code = (
        "import sys; before = set(sys.modules); import sluicegate.testing; "
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert set(done.stdout.split()) <= sys.stdlib_module_names | {"sluicegate"}
    assert "sluicegate._core" not in done.stdout
