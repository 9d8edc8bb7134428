"""Recorded replies of real providers, sent to a gateway by an upstream with the provider's profile."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from harness import needed
from harness.wire_stand import CHAT, COMPLETIONS, WireStand, wire_stand
from recordings import APIS, CORPUS, listed, normal_form, recording
from sluicegate.testing import body

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CORPUS is None, reason=needed.RECORDINGS),
]

PROFILES = {
    "anthropic": "anthropic",
    "aws-bedrock-mantle": "bedrock",
    "azure-ai-foundry": "azure",
    "azure-openai": "azure",
    "deepseek": "deepseek",
    "google-vertex": "vertex",
    "groq": "groq",
    "llama.cpp": "llama_cpp",
    "lmstudio": "lm_studio",
    "mistral": "mistral",
    "ollama-cloud": "ollama",
    "ollama-local": "ollama",
    "openai": "openai",
    "openrouter": "openrouter",
    "perplexity": "perplexity",
    "tgi": "tgi",
    "together": "together",
    "vllm": "vllm",
    "xai": "xai",
}
"""By the provider of a recording."""

PATHS = {
    "chat": CHAT,
    "completions": COMPLETIONS,
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}

ENTRIES = [entry for entry in listed("expected.jsonl") if entry["provider"] in PROFILES]


def each(*apis: str) -> pytest.MarkDecorator:
    chosen = [entry for entry in ENTRIES if APIS[entry["api"]] in apis]
    return pytest.mark.parametrize(
        "entry", chosen or [{"file": "none"}], ids=lambda entry: entry["file"].removeprefix("streams/")
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    upstreams: dict[str, Any] = {}
    for name in PROFILES.values():
        upstreams[name] = {"profile": name, "api_key": "sk"}
        # Each is asked in the API of the recording, in which its reply is then forwarded.
        for api in ("responses", "messages"):
            upstreams[f"{name}-{api}"] = {**upstreams[name], "api": api}
    config = {"upstreams": upstreams, "models": {name: f"{name}/m" for name in upstreams}}
    async with wire_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
        yield stand


def request(entry: dict[str, Any], **members: Any) -> tuple[str, bytes]:
    api = APIS[entry["api"]]
    name = PROFILES[entry["provider"]]
    model = f"{name}-{api}" if api in ("responses", "messages") else name
    talks: dict[str, dict[str, Any]] = {
        "chat": {"messages": [{"role": "user", "content": "Hi"}]},
        "completions": {"prompt": "Hi"},
        "responses": {"input": "Hi", "store": False},
        "messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9},
    }
    return PATHS[api], json.dumps({"model": model, **talks[api], **members}).encode()


def said(message: dict[str, Any]) -> tuple[str, str]:
    """The text and the reasoning. Mistral has both as parts of the content."""
    content = message.get("content") or ""
    if isinstance(content, str):
        names = ("reasoning_content", "reasoning")
        return content, next((message[name] for name in names if message.get(name)), "")
    text = "".join(part.get("text", "") for part in content)
    return text, "".join(part["text"] for whole in content for part in whole.get("thinking", ()))


@each("chat", "completions", "responses", "messages")
async def test_the_usage_is_the_recorded_one(wire: WireStand, entry: dict[str, Any]) -> None:
    path, asked = request(entry, stream=True)
    exchange = await wire.ask(body(recording(entry)), path=path, body=asked)
    expected = {name: value for name, value in normal_form(entry).items() if value}
    assert {name: exchange.line.get(name) for name in expected} == expected


@each("chat")
async def test_text_reasoning_and_calls_are_the_recorded_ones(wire: WireStand, entry: dict[str, Any]) -> None:
    """Of the whole reply, for which the stream is read and folded."""
    path, asked = request(entry)
    exchange = await wire.ask(body(recording(entry)), path=path, body=asked)
    if exchange.reply.status != 200:
        pytest.skip("a recording of an error, or one without an end")
    completion = exchange.reply.json()
    choices = {str(choice["index"]): choice for choice in completion["choices"]}
    for index, expected in entry["choices"].items():
        message = choices[index]["message"]
        assert said(message) == (expected["text"], expected["reasoning"])
        calls = [call["function"] for call in message.get("tool_calls") or []]
        assert [(call["name"], call["arguments"]) for call in calls] == [
            (call["name"], call["arguments"]) for call in expected["tool_calls"]
        ]
