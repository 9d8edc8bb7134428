"""The gateway in front of a server that nobody here wrote: llama.cpp's own, with a model made on the spot."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio

from harness import needed

pytest.importorskip("xllamacpp", reason=needed.PACKAGES)
pytest.importorskip("gguf", reason=needed.PACKAGES)

from harness.gateway_process import GatewayProcess, Line
from harness.llama_cpp import CONTEXT, NAME, LlamaCppProcess
from harness.shared_gateway import shared_gateway
from harness.tiny_model import (
    ANSWER,
    CALL_BIAS,
    REASONING,
    TOOL_ARGUMENTS,
    TOOL_NAME,
    write_tiny_model,
)

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

MODEL = "river"
SHOWN = "quay/harbour-café"
"""The same model; its replies show this name in place of the server's."""
INPUT, CACHED_INPUT, OUTPUT = Decimal(3), Decimal("0.3"), Decimal(15)
"""USD per million tokens."""

CHAT: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Where does it go?"}],
    "temperature": 0,
}
STREAM: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
PLAIN: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}
WEATHER: dict[str, Any] = {
    "tools": [
        {
            "type": "function",
            "function": {
                "name": TOOL_NAME,
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}},
                    "required": ["city"],
                },
            },
        }
    ],
    "logit_bias": CALL_BIAS,
}
# What differs between two replies to one question, however they came.
CHANCE = ("id", "created", "timings")


# === the servers ===


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_model(path)
    return path


@pytest.fixture(scope="module")
def llama_cpp(model_file: Path) -> Iterator[LlamaCppProcess]:
    server = LlamaCppProcess.start(model_file, model_file.with_suffix(".log"))
    yield server
    server.stop()


def config(upstream: LlamaCppProcess) -> dict[str, Any]:
    return {
        "upstreams": {"llama": {"base_url": upstream.base_url}},
        "models": {
            MODEL: f"llama/{NAME}",
            SHOWN: {"routes": [f"llama/{NAME}"], "reply_model": "public"},
        },
        "prices": {NAME: {"input": str(INPUT), "cached_input": str(CACHED_INPUT), "output": str(OUTPUT)}},
        "cost": {"genai_prices": False},
    }


@dataclass(frozen=True)
class Pair:
    """The same server twice: as it is, and through a gateway."""

    direct: httpx.AsyncClient
    proxied: httpx.AsyncClient
    gateway: GatewayProcess

    async def both(self, path: str, body: dict[str, Any]) -> tuple[httpx.Response, httpx.Response]:
        """The two replies to one request: the server's own, and the gateway's."""
        # Whatever part of a prompt the server has read before is cached: let that be all of it, for both.
        first = await self.direct.post(
            path, json=body | {"model": NAME, "stream": False, "max_tokens": 1, "n": 1}
        )
        assert first.status_code == 200, first.text
        return await self.direct.post(path, json=body | {"model": NAME}), await self.post(path, body)

    async def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        return await self.proxied.post(path, json=body)

    async def line(self, response: httpx.Response) -> Line:
        """The log line of a reply."""
        return await self.gateway.wait_request(request_id=response.headers["x-request-id"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(llama_cpp: LlamaCppProcess, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    async with (
        shared_gateway(config(llama_cpp), tmp_path_factory.mktemp("gateway")) as gateway,
        httpx.AsyncClient(base_url=llama_cpp.base_url, timeout=30) as direct,
        httpx.AsyncClient(base_url=gateway.api_url, timeout=30) as proxied,
    ):
        yield Pair(direct, proxied, gateway)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(pair: Pair) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=pair.gateway.api_url, api_key="none", max_retries=0, timeout=30
    ) as client:
        yield client


# === reading ===


def events(response: httpx.Response) -> list[dict[str, Any]]:
    """The payloads of a stream that ends as it should."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    blocks = response.text.split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""]
    return [json.loads(block.removeprefix("data: ")) for block in blocks[:-2]]


def said(payloads: list[dict[str, Any]], member: str = "content", index: int = 0) -> str:
    choices = [choice for payload in payloads for choice in payload["choices"]]
    return "".join(choice["delta"].get(member) or "" for choice in choices if choice["index"] == index)


def without_chance(payload: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in payload.items() if name not in CHANCE}


def without_cost(payload: dict[str, Any]) -> dict[str, Any]:
    """`payload` as it was before the gateway had it; its cost must be right."""
    if payload.get("usage") is None:
        return payload
    usage = dict(payload["usage"])
    check_cost(usage)
    del usage["cost"], usage["cost_details"]
    return payload | {"usage": usage}


def check_cost(usage: dict[str, Any]) -> None:
    details = usage["cost_details"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    amounts = (
        (usage["prompt_tokens"] - cached) * INPUT,
        cached * CACHED_INPUT,
        usage["completion_tokens"] * OUTPUT,
    )
    shown = (details["input_cost"], details["cached_input_cost"], details["output_cost"])
    # JSON's numbers, read as floats, show decimals of this size exactly.
    assert [Decimal(repr(cost)) * 1_000_000 for cost in shown] == list(amounts)
    assert Decimal(repr(usage["cost"])) * 1_000_000 == sum(amounts)


# === the same, but for the cost ===


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/chat/completions", CHAT),
        ("/chat/completions", CHAT | PLAIN),
        ("/chat/completions", CHAT | {"n": 2}),
        ("/chat/completions", CHAT | PLAIN | {"logprobs": True, "top_logprobs": 2}),
        ("/chat/completions", CHAT | {"temperature": 1, "seed": 7}),
        ("/completions", {"model": MODEL, "prompt": "Once upon", "temperature": 0}),
    ],
    ids=["thinking", "plain", "two", "logprobs", "seeded", "completions"],
)
async def test_a_document_is_the_servers_own_with_its_cost(
    pair: Pair, path: str, body: dict[str, Any]
) -> None:
    direct, proxied = await pair.both(path, body)
    assert (direct.status_code, proxied.status_code) == (200, 200)
    theirs, ours = without_chance(direct.json()), without_chance(proxied.json())
    assert theirs["usage"]["completion_tokens"] > 0
    assert "cost" not in theirs["usage"]
    assert without_cost(ours) == theirs
    # Nothing was written anew: the members stand in their order, too.
    assert json.dumps(without_cost(ours)) == json.dumps(theirs)
    line = await pair.line(proxied)
    assert (line["model"], line["upstream_model"], line["result"]) == (MODEL, NAME, "ok")
    assert line["output_tokens"] == theirs["usage"]["completion_tokens"]
    assert Decimal(line["cost"]) == Decimal(repr(ours["usage"]["cost"]))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/chat/completions", CHAT),
        ("/chat/completions", CHAT | PLAIN),
        ("/chat/completions", CHAT | WEATHER),
        ("/chat/completions", CHAT | PLAIN | {"logprobs": True, "top_logprobs": 2}),
        ("/chat/completions", CHAT | {"temperature": 1, "seed": 7}),
        ("/chat/completions", CHAT | {"ignore_eos": True, "max_tokens": 500}),
        ("/completions", {"model": MODEL, "prompt": "Once upon", "temperature": 0}),
    ],
    ids=["thinking", "plain", "tools", "logprobs", "seeded", "long", "completions"],
)
async def test_a_stream_is_the_servers_own_with_its_cost(pair: Pair, path: str, body: dict[str, Any]) -> None:
    direct, proxied = await pair.both(path, body | STREAM)
    theirs = [without_chance(payload) for payload in events(direct)]
    ours = [without_chance(payload) for payload in events(proxied)]
    calls = [
        call
        for payload in (*theirs, *ours)
        for choice in payload["choices"]
        for call in choice.get("delta", {}).get("tool_calls", ())
    ]
    for call in calls:
        call.pop("id", None)
    assert len(theirs) > 8
    assert [json.dumps(without_cost(payload)) for payload in ours] == [
        json.dumps(payload) for payload in theirs
    ]
    assert "cost" in ours[-1]["usage"]
    line = await pair.line(proxied)
    assert (line["result"], line["streamed"]) == ("ok", True)
    assert line["output_tokens"] == theirs[-1]["usage"]["completion_tokens"]
    assert line["events"] == len(theirs) + 1


@pytest.mark.parametrize("stream", [{}, STREAM], ids=["document", "stream"])
async def test_only_the_name_differs_where_the_public_one_is_shown(
    pair: Pair, stream: dict[str, Any]
) -> None:
    direct, proxied = await pair.both("/chat/completions", CHAT | stream | {"model": SHOWN})
    theirs, ours = (
        [without_chance(payload) for payload in (events(reply) if stream else [reply.json()])]
        for reply in (direct, proxied)
    )
    assert {payload["model"] for payload in theirs} == {NAME}
    assert [without_cost(payload) for payload in ours] == [payload | {"model": SHOWN} for payload in theirs]


async def test_the_bytes_of_a_stream_stay_as_they_are(pair: Pair) -> None:
    """Where nothing is asked for, nothing is added: only the usage chunk is taken out."""
    direct, proxied = await pair.both("/chat/completions", CHAT | STREAM)
    hidden = await pair.post("/chat/completions", CHAT | {"stream": True})
    shown = [blank(block) for block in proxied.text.split("\n\n")]
    usage = [block for block in shown if '"usage"' in block]
    assert len(usage) == 1
    assert [blank(block) for block in hidden.text.split("\n\n")] == [b for b in shown if b not in usage]
    assert [block for block in shown if block not in usage] == [
        blank(block) for block in direct.text.split("\n\n") if '"usage"' not in block
    ]
    line = await pair.line(hidden)
    assert (line["output_tokens"], Decimal(line["cost"]) > 0) == (25, True)


def blank(block: str) -> str:
    """An event's bytes with the two members that chance writes, each of one length, blanked."""
    payload = block.removeprefix("data: ")
    if payload in ("", "[DONE]"):
        return block
    values = json.loads(payload)
    return block.replace(values["id"], "ID").replace(str(values["created"]), "CREATED")


# === what the model says ===


async def test_the_words_come_through_the_openai_package(client: openai.AsyncOpenAI) -> None:
    messages: Any = CHAT["messages"]
    create = client.chat.completions.create
    completion = await create(model=MODEL, messages=messages, temperature=0)
    choice = completion.choices[0]
    assert choice.message.content == ANSWER
    assert choice.message.model_extra == {"reasoning_content": REASONING}
    assert choice.finish_reason == "stop"
    assert completion.model == NAME
    assert completion.usage is not None
    # A word is a token; so are the end of thinking and the end of the reply.
    assert completion.usage.completion_tokens == len((REASONING + ANSWER).split()) + 2
    stream = await create(model=MODEL, messages=messages, temperature=0, stream=True)
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ANSWER
    words = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content]
    assert len(words) == len(ANSWER.split())


async def test_a_tool_call_comes_through_the_helper(client: openai.AsyncOpenAI) -> None:
    async with client.chat.completions.stream(
        **{
            "model": MODEL,
            "messages": CHAT["messages"],
            "temperature": 0,
            **WEATHER,
            "tool_choice": "required",
        },
        stream_options={"include_usage": True},
    ) as stream:
        pieces = [e.arguments_delta async for e in stream if e.type == "tool_calls.function.arguments.delta"]
        completion = await stream.get_final_completion()
    choice = completion.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert (call.function.name, call.function.arguments) == (TOOL_NAME, TOOL_ARGUMENTS)
    assert len(pieces) > 1
    assert (choice.message.model_extra or {})["reasoning_content"] == REASONING
    assert completion.usage is not None
    assert (completion.usage.model_extra or {})["cost"] > 0
    # The way back: what the function said.
    turns: Any = [
        *CHAT["messages"],
        {"role": "assistant", "tool_calls": [call.model_dump(include={"id", "type", "function"})]},
        {"role": "tool", "tool_call_id": call.id, "content": "Sunny."},
    ]
    answer = await client.chat.completions.create(model=MODEL, messages=turns, temperature=0)
    assert answer.choices[0].message.content == ANSWER


async def test_two_choices_interleaved_in_a_stream(pair: Pair) -> None:
    """Not compared with the server's own: which choice is first there is a matter of chance."""
    body = CHAT | PLAIN | STREAM | {"n": 2, "logprobs": True}
    payloads = events(await pair.post("/chat/completions", body))
    assert [said(payloads, index=index).strip() for index in (0, 1)] == [ANSWER.strip()] * 2
    indices = [choice["index"] for payload in payloads for choice in payload["choices"]]
    assert indices not in (sorted(indices), sorted(indices, reverse=True))
    # This server counts one choice's tokens only, and what it says is what counts.
    check_cost(payloads[-1]["usage"])
    assert payloads[-1]["usage"]["completion_tokens"] == len(ANSWER.split()) + 1


async def test_the_gateways_models(pair: Pair) -> None:
    listing = (await pair.proxied.get("/models")).json()
    assert [model["id"] for model in listing["data"]] == [MODEL, SHOWN]
    assert (await pair.proxied.get(f"/models/{SHOWN}")).json()["id"] == SHOWN
    assert [model["id"] for model in (await pair.direct.get("/models")).json()["data"]] == [NAME]


# === refused ===


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/chat/completions", {"messages": "none"}, 400),
        ("/chat/completions", CHAT | {"max_tokens": "many"}, 400),
        ("/chat/completions", CHAT | {"messages": [{"role": "user", "content": "x" * (CONTEXT + 1)}]}, 400),
        ("/chat/completions", CHAT | {"tools": 3}, 500),
        ("/embeddings", {"input": "river"}, 501),
    ],
    ids=["messages", "type", "context", "tools", "embeddings"],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_the_server_refuses_is_passed_on(
    pair: Pair, path: str, body: dict[str, Any], status: int, stream: bool
) -> None:
    direct = await pair.direct.post(path, json=body | {"model": NAME, "stream": stream})
    proxied = await pair.post(path, body | {"model": MODEL, "stream": stream})
    assert (direct.status_code, proxied.status_code) == (status, status)
    assert proxied.content == direct.content
    assert proxied.headers["content-type"] == "application/json"
    line = await pair.line(proxied)
    assert (line["status"], line["fault"]) == (status, "status")
    assert line["result"] == ("refused" if status == 400 else "failed")


async def test_a_prompt_that_is_too_long_is_the_packages_bad_request(client: openai.AsyncOpenAI) -> None:
    messages: Any = [{"role": "user", "content": "x" * (CONTEXT + 1)}]
    with pytest.raises(openai.BadRequestError, match="exceeds the available context size") as raised:
        await client.chat.completions.create(model=MODEL, messages=messages, stream=True)
    assert raised.value.type == "exceed_context_size_error"


# === many, and none ===


async def test_fifty_streams_at_once_come_whole(pair: Pair) -> None:
    async def one(number: int) -> tuple[str, dict[str, Any]]:
        messages = [{"role": "user", "content": f"Boat {number:02}?"}]
        payloads = events(await pair.post("/chat/completions", CHAT | STREAM | {"messages": messages}))
        return said(payloads), payloads[-1]["usage"]

    results = await asyncio.gather(*(one(number) for number in range(50)))
    for text, usage in results:
        assert text == ANSWER
        assert usage["completion_tokens"] == 25
        check_cost(usage)


async def test_a_client_that_leaves_frees_the_servers_slot(pair: Pair) -> None:
    """It would decode for nobody: its slots are few, and each reply here takes seconds of one."""
    body = CHAT | {"stream": True, "ignore_eos": True, "max_tokens": CONTEXT - 100}
    for _ in range(40):
        async with pair.proxied.stream("POST", "/chat/completions", json=body) as response:
            async for text in response.aiter_lines():
                if "content" in text:
                    break
    request_id = response.headers["x-request-id"]
    line = await pair.gateway.wait_request(request_id=request_id)
    assert (line["result"], line["client_left"]) == ("client_left", True)
    assert 0 < line["output_tokens"] < CONTEXT - 100
    async with asyncio.timeout(5):
        completion = await pair.post("/chat/completions", CHAT)
    assert completion.status_code == 200


async def test_a_server_that_dies_in_the_middle_of_a_stream(model_file: Path, tmp_path: Path) -> None:
    server = LlamaCppProcess.start(model_file, tmp_path / "llama.log")
    body = CHAT | STREAM | {"ignore_eos": True, "max_tokens": CONTEXT - 100}
    try:
        async with shared_gateway(config(server), tmp_path) as gateway:
            async with gateway.client.stream("POST", "/v1/chat/completions", json=body) as response:
                assert response.status_code == 200
                text = ""
                async for piece in response.aiter_text():
                    if not text:
                        server.kill()
                    text += piece
            assert text.endswith("\n\n")
            *payloads, last = (
                block.removeprefix("data: ") for block in text.removesuffix("\n\n").split("\n\n")
            )
            # What came before is whole; then the gateway says what happened, and not that all is well.
            assert all(json.loads(payload)["choices"] for payload in payloads)
            error = json.loads(last)["error"]
            assert (error["code"], error["type"]) == ("truncated", "upstream_error")
            assert "llama" in error["message"]
            line = await gateway.wait_request()
            assert (line["status"], line["result"], line["fault"]) == (200, "failed", "truncated")
            assert line["estimated"] is True
            assert 0 < line["output_tokens"] <= len(payloads)
            assert Decimal(line["cost"]) > 0
            # The gateway goes on: without its upstream, and with it once it is back.
            gone = await gateway.client.post("/v1/chat/completions", json=CHAT)
            assert (gone.status_code, gone.json()["error"]["code"]) == (502, "connect")
            server = LlamaCppProcess.start(model_file, tmp_path / "again.log", server.port)
            back = await gateway.client.post("/v1/chat/completions", json=CHAT)
            assert back.json()["choices"][0]["message"]["content"] == ANSWER
    finally:
        server.kill()
