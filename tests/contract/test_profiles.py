"""What reaches a server of each profile: path, query, the header with the key, the members of requests."""

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from harness.wire_stand import CHAT, EMBEDDINGS, Exchange, WireStand, sent_up, wire_stand
from sluicegate.config import profile, profiles
from sluicegate.testing import DialectName, Script, UsageScript

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES = [one.name for one in profiles()]
KEY = "sk-upstream"
MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"

PATHS = {"chat": "/chat/completions", "responses": "/responses", "messages": "/messages"}
ASKED = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES}
KEY_HEADERS = {
    "anthropic": ("x-api-key", KEY),
    "azure": ("api-key", KEY),
    "azure_deployments": ("api-key", KEY),
}
"""Where they are not a bearer token."""

# What clients of OpenAI's send that other servers refuse, and what means the same everywhere.
EXTRAS: dict[str, Any] = {
    "max_completion_tokens": 50,
    "metadata": {"a": "b"},
    "prompt_cache_key": "k",
    "seed": 7,
    "service_tier": "auto",
    "store": False,
    "temperature": 0.50,
    "user": "u",
}
SENT: dict[str, dict[str, Any]] = {
    "mistral": {"max_tokens": 50, "metadata": {"a": "b"}, "random_seed": 7},
    "gemini": {"max_completion_tokens": 50, "seed": 7, "service_tier": "auto", "user": "u"},
    "vertex": {"max_completion_tokens": 50, "seed": 7, "service_tier": "auto", "user": "u"},
    "cohere": {"max_tokens": 50, "seed": 7, "user": "u"},
    "cerebras": {key: EXTRAS[key] for key in ("max_completion_tokens", "metadata", "seed", "store", "user")},
}
"""Of the extras, where more is changed than the name of the bound."""
MAX_TOKENS = {
    "deepseek", "fireworks", "mistralrs", "ollama", "perplexity", "tgi", "together", "transformers",
}  # fmt: skip
"""They call the bound so; the others are sent what the client sends."""
ASKS_NO_USAGE = {"mistral", "mistralrs", "perplexity"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    """Each profile's upstream at the scripted one, below the path that its base URL has."""
    upstreams: dict[str, Any] = {
        "scripted": {},
        **{name: {"profile": name, "api_key": KEY} for name in NAMES},
        "vertex-claude": {"profile": "vertex", "api": "messages", "api_key": KEY},
        "own": {
            "api_key": KEY,
            "api": ["chat", "messages"],
            "key_header": "X-Key",
            "paths": {"/v1/embeddings": "/v2/embed/embeddings", "/v1/messages": "/m/{model}/messages"},
            "query": {"version": "2 b"},
            "chat": {"omit": ["n"], "rename": {"seed": "random_seed"}, "add": {"safe": {"a": [1, None]}}},
        },
        "over": {
            "profile": "mistral",
            "api_key": KEY,
            "dialect": None,
            "chat": {"omit": [], "rename": {"top_k": "k"}},
        },
    }
    models = {name: f"{name}/a b" for name in upstreams} | {"dots": "azure_deployments/.."}
    config = {"upstreams": upstreams, "models": models}
    async with wire_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
        yield stand


async def ask(wire: WireStand, name: str, api: str, **members: Any) -> Exchange:
    said = [{"role": "user", "content": "Hi"}]
    talks: dict[str, dict[str, Any]] = {
        "chat": {"messages": said},
        "responses": {"input": said, "store": False},
        "messages": {"messages": said, "max_tokens": 9},
    }
    body = json.dumps({"model": name, **talks[api], **members}).encode()
    exchange = await wire.ask(Script(tokens=2), path=ASKED[api], body=body)
    assert exchange.reply.status == 200, exchange.body
    return exchange


def target(wire: WireStand) -> str:
    return wire.request.request.target.removeprefix(urlsplit(wire.upstream.base_url).path)


@pytest.mark.parametrize("name", NAMES)
async def test_a_request_has_the_path_and_the_key_of_its_profile(wire: WireStand, name: str) -> None:
    apis = {"both": ["chat", "responses"]}.get(profile(name).apis, [profile(name).apis])
    for api in apis:
        await ask(wire, name, api)
        expected = PATHS[api]
        if name == "azure_deployments":
            expected = f"/openai/deployments/a%20b{expected}?api-version=2024-10-21"
        elif name == "vertex":
            expected = f"/endpoints/openapi{expected}"
        assert target(wire) == expected
        header, value = KEY_HEADERS.get(name, ("authorization", f"Bearer {KEY}"))
        headers = sent_up(wire)
        assert headers[header] == [value]
        credentials = {"authorization", "x-api-key", "api-key"}
        assert credentials & headers.keys() == {header}
        assert ("model" in wire.request.json()) is (name != "azure_deployments")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "anthropic"])
async def test_a_forwarded_request_has_the_members_that_its_server_takes(wire: WireStand, name: str) -> None:
    await ask(wire, name, "chat", stream=True, **EXTRAS)
    sent = wire.request.json()
    bound = "max_tokens" if name in MAX_TOKENS else "max_completion_tokens"
    usual = {bound if key == "max_completion_tokens" else key: value for key, value in EXTRAS.items()}
    extras = {key: value for key, value in sent.items() if key not in ("model", "messages", "stream")}
    asks_usage = extras.pop("stream_options", None) == {"include_usage": True}
    assert asks_usage is (name not in ASKS_NO_USAGE)
    assert extras == SENT.get(name, usual) | {"temperature": 0.5}


@pytest.mark.parametrize("name", [name for name in NAMES if profile(name).apis != "messages"])
async def test_a_translated_request_has_the_bound_by_its_servers_name(wire: WireStand, name: str) -> None:
    await ask(wire, name, "messages")
    sent = wire.request.json()
    calls_it = {"openai", "azure", "groq", "cerebras"}
    assert sent["max_completion_tokens" if name in calls_it else "max_tokens"] == 9
    assert target(wire).startswith(("/chat/completions", "/endpoints/openapi", "/openai/deployments"))


@pytest.mark.parametrize("path", ["/completions", "/embeddings", "/audio/speech", "/images/generations"])
async def test_a_deployment_is_named_in_the_path_of_every_endpoint(wire: WireStand, path: str) -> None:
    body = json.dumps({"model": "azure_deployments", "input": "Hi", "prompt": "Hi", "voice": "a"})
    exchange = await wire.ask(Script(), path=f"/v1{path}", body=body.encode())
    assert exchange.reply.status == 200
    assert target(wire) == f"/openai/deployments/a%20b{path}?api-version=2024-10-21"
    assert "model" not in wire.request.json()


async def test_a_deployment_that_takes_forms_is_named_in_the_path(wire: WireStand) -> None:
    part = b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
    form = part % (b"model", b"azure_deployments") + part % (b"file", b"RIFF") + b"--b--\r\n"
    exchange = await wire.ask(
        Script(),
        path="/v1/audio/transcriptions",
        headers=("content-type: multipart/form-data; boundary=b",),
        body=form,
    )
    assert exchange.reply.status == 200, exchange.body
    assert target(wire) == "/openai/deployments/a%20b/audio/transcriptions?api-version=2024-10-21"


async def test_an_older_client_of_a_newer_server_calls_the_bound_by_its_newer_name(wire: WireStand) -> None:
    await ask(wire, "openai", "chat", max_tokens=7)
    assert wire.request.json()["max_completion_tokens"] == 7
    await ask(wire, "openai", "chat", max_tokens=7, max_completion_tokens=5)
    sent = wire.request.json()
    assert (sent.get("max_tokens"), sent["max_completion_tokens"]) == (None, 5)


async def test_reasoning_of_earlier_turns_goes_where_the_server_reads_it(wire: WireStand) -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [thinking, {"type": "text", "text": "Yes"}]},
        {"role": "user", "content": "Why?"},
    ]
    for name, member in (("groq", "reasoning"), ("deepseek", "reasoning_content"), ("openai", None)):
        await ask(wire, name, "messages", messages=turns)
        turn = wire.request.json()["messages"][1]
        assert {key: value for key, value in turn.items() if "reasoning" in key} == (
            {} if member is None else {member: "Hm."}
        )


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", ["chat", "messages"])
async def test_claude_on_vertex_is_named_in_the_path(wire: WireStand, api: str, stream: bool) -> None:
    exchange = await ask(wire, "vertex-claude", api, stream=stream)
    verb = "streamRawPredict" if stream else "rawPredict"
    assert target(wire) == f"/publishers/anthropic/models/a%20b:{verb}"
    sent = wire.request.json()
    assert sent["anthropic_version"] == "vertex-2023-10-16"
    assert "model" not in sent
    assert sent.get("stream", False) is stream
    assert sent_up(wire)["authorization"] == [f"Bearer {KEY}"]
    assert exchange.line["output_tokens"] == 2


async def test_a_client_of_vertex_may_say_the_version_itself(wire: WireStand) -> None:
    await ask(wire, "vertex-claude", "messages", anthropic_version="vertex-2027-01-01")
    assert wire.request.json()["anthropic_version"] == "vertex-2027-01-01"


async def test_tokens_are_counted_on_vertex_with_the_model_in_the_body(wire: WireStand) -> None:
    asked = {"model": "vertex-claude", "messages": [{"role": "user", "content": "Hi"}]}
    exchange = await wire.ask(Script(), path=f"{MESSAGES}/count_tokens", body=json.dumps(asked).encode())
    assert exchange.reply.status == 200
    assert target(wire) == "/publishers/anthropic/models/count-tokens:rawPredict"
    assert wire.request.json()["model"] == "a b"


SCRIPTED = {
    "azure": "azure",
    "deepseek": "deepseek",
    "gemini": "gemini",
    "groq": "groq",
    "llama_cpp": "llamacpp",
    "mistral": "mistral",
    "ollama": "ollama",
    "openai": "openai",
    "openrouter": "openrouter",
    "perplexity": "perplexity",
    "sglang": "sglang",
    "transformers": "transformers",
    "vertex": "gemini",
    "vllm": "vllm",
    "xai": "xai",
}
"""The scripted upstream's word for how such a server streams."""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("name", "dialect"), SCRIPTED.items(), ids=SCRIPTED)
async def test_usage_is_counted_as_the_server_means_it(
    wire: WireStand, name: str, dialect: DialectName, stream: bool
) -> None:
    script = Script(tokens=4, reasoning_tokens=3, dialect=dialect, usage=UsageScript(cached_tokens=5))
    body = json.dumps({"model": name, "messages": [{"role": "user", "content": "Hi"}], "stream": stream})
    exchange = await wire.ask(script, body=body.encode())
    line = exchange.line
    assert (line["input_tokens"], line["output_tokens"]) == (12, 7), line
    # The others do not tell them.
    tells_cached = name not in ("ollama", "perplexity")
    assert line.get("cached_input_tokens", 0) == (5 if tells_cached else 0), line


# === an upstream's own settings ===


async def test_paths_the_query_and_the_key_are_an_upstreams_own(wire: WireStand) -> None:
    await ask(wire, "own", "chat")
    assert target(wire) == "/chat/completions?version=2+b"
    assert sent_up(wire)["x-key"] == [KEY]
    assert "authorization" not in sent_up(wire)
    body = json.dumps({"model": "own", "input": "Hi"}).encode()
    assert (await wire.ask(Script(), path=EMBEDDINGS, body=body)).reply.status == 200
    assert target(wire) == "/v2/embed/embeddings?version=2+b"
    asking = {"model": "own", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}
    body = json.dumps(asking).encode()
    asked = await wire.ask(Script(), path=f"{MESSAGES}?beta=true", body=body)
    assert asked.reply.status == 200
    assert target(wire) == "/m/a%20b/messages?version=2+b&beta=true"
    headers = sent_up(wire)
    assert (headers["x-key"], headers.get("x-api-key")) == ([KEY], None)


async def test_members_are_changed_in_place(wire: WireStand) -> None:
    body = b'{"n" : 1,  "seed": 7, "model":"own","messages":[{"role":"user","content":"Hi"}], "x": 1.50}'
    assert (await wire.ask(Script(), body=body)).reply.status == 200
    assert wire.request.body == (
        b'{"random_seed": 7, "model":"a b","messages":[{"role":"user","content":"Hi"}], "x": 1.50,'
        b'"safe":{"a": [1, null]}}'
    )


async def test_a_large_body_is_changed_as_well(wire: WireStand) -> None:
    text = "x" * 600_000
    await ask(wire, "own", "chat", messages=[{"role": "user", "content": text}], seed=3, n=1)
    sent = wire.request.json()
    assert (sent["messages"][0]["content"], sent["random_seed"]) == (text, 3)
    assert "n" not in sent
    assert sent["safe"] == {"a": [1, None]}


async def test_what_an_upstream_says_goes_before_its_profile(wire: WireStand) -> None:
    await ask(wire, "over", "chat", seed=1, top_k=2, store=False, max_completion_tokens=3)
    sent = wire.request.json()
    sent = {key: value for key, value in sent.items() if key not in ("model", "messages")}
    assert sent == {"random_seed": 1, "k": 2, "store": False, "max_tokens": 3}


async def test_a_model_whose_name_no_path_can_have_is_not_sent_elsewhere(wire: WireStand) -> None:
    before = len(wire.upstream.requests)
    exchange = await wire.ask(Script(), model="dots")
    assert (exchange.reply.status, exchange.line["fault"]) == (500, "internal")
    assert len(wire.upstream.requests) == before
