"""`/v1/responses` before llama.cpp: by its Chat Completions, and by its own Responses, repaired."""

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio

from harness import needed

pytest.importorskip("xllamacpp", reason=needed.PACKAGES)
pytest.importorskip("gguf", reason=needed.PACKAGES)

from harness.gateway_process import GatewayProcess
from harness.llama_cpp import NAME, LlamaCppProcess
from harness.responses_stream import Streamed, check, same_answer, text_of
from harness.shared_gateway import shared_gateway
from harness.strict_openai import missing_members, validate
from harness.tiny_model import ANSWER, CALL_WORD, REASONING, TOOL_ARGUMENTS, TOOL_NAME, write_tiny_model

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

CHAT = "by-chat"
NATIVE = "by-responses"
MODELS = [CHAT, NATIVE]
ASKED: dict[str, Any] = {"input": "Where does it go?", "temperature": 0}
PLAIN: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}
THINKING: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": True}}
TOOL: Any = {
    "type": "function",
    "name": TOOL_NAME,
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@dataclass(frozen=True)
class Stand:
    gateway: GatewayProcess
    http: httpx.AsyncClient
    client: openai.AsyncOpenAI

    async def stream(self, **members: Any) -> Streamed:
        reply = await self.http.post("/responses", json={**ASKED, **members, "stream": True})
        assert reply.status_code == 200, reply.text
        return check(reply.content, complete=True)


@pytest.fixture(scope="module")
def llama_cpp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaCppProcess]:
    path: Path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_model(path)
    server = LlamaCppProcess.start(path, path.with_suffix(".log"))
    yield server
    server.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(llama_cpp: LlamaCppProcess, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    config = {
        "upstreams": {
            "chat": {"base_url": llama_cpp.base_url},
            "native": {"base_url": llama_cpp.base_url, "api": "both", "repair": True},
        },
        "models": {CHAT: f"chat/{NAME}", NATIVE: f"native/{NAME}"},
        "prices": {NAME: {"input": 3, "cached_input": 0.3, "output": 15}},
        "cost": {"genai_prices": False},
    }
    async with (
        shared_gateway(config, tmp_path_factory.mktemp("gateway")) as gateway,
        httpx.AsyncClient(base_url=gateway.api_url, timeout=30) as http,
        openai.AsyncOpenAI(base_url=gateway.api_url, api_key="none", max_retries=0, timeout=30) as client,
    ):
        yield Stand(gateway, http, client)


@pytest.mark.parametrize("model", MODELS)
async def test_a_stream_keeps_every_promise(stand: Stand, model: str) -> None:
    streamed = await stand.stream(model=model)
    assert streamed.text == ANSWER
    assert streamed.response["status"] == "completed"
    usage = streamed.response["usage"]
    assert usage["output_tokens"] >= len(ANSWER.split())
    assert usage["cost"] > 0


@pytest.mark.parametrize("model", MODELS)
async def test_reasoning_is_an_item(stand: Stand, model: str) -> None:
    streamed = await stand.stream(model=model, **THINKING)
    reasoning, message = streamed.output
    assert "".join(part["text"] for part in reasoning["content"]).strip() == REASONING.strip()
    assert message["content"][0]["text"].strip() == ANSWER.strip()


@pytest.mark.parametrize("model", MODELS)
async def test_a_response_is_the_same_whole(stand: Stand, model: str) -> None:
    streamed = await stand.stream(model=model)
    reply = await stand.http.post("/responses", json={**ASKED, "model": model})
    response = reply.json()
    validate(response)
    assert not missing_members(response)
    assert text_of(response) == ANSWER
    # What llama.cpp has cached of a prompt, and so its cost, differs between the first time and the second.
    same_answer(streamed.response | {"usage": None}, response | {"usage": None})
    line = await stand.gateway.wait_request(request_id=reply.headers["x-request-id"])
    assert (line["endpoint"], line["result"]) == ("responses", "ok")
    assert float(line["cost"]) == pytest.approx(response["usage"]["cost"])


@pytest.mark.parametrize("model", MODELS)
async def test_a_reply_that_is_cut_short_is_incomplete(stand: Stand, model: str) -> None:
    streamed = await stand.stream(model=model, max_output_tokens=5, **PLAIN)
    if model == CHAT:
        assert streamed.response["incomplete_details"] == {"reason": "max_output_tokens"}
        assert streamed.output[-1]["status"] == "incomplete"
    assert streamed.text.strip()
    assert ANSWER.strip().startswith(streamed.text.strip())


@pytest.mark.parametrize("model", MODELS)
async def test_a_loop_of_tool_calls(stand: Stand, model: str) -> None:
    conversation: list[Any] = [{"role": "user", "content": f"The {CALL_WORD} in Rome?"}]
    asked: dict[str, Any] = {"model": model, "tools": [TOOL], "temperature": 0, "store": False}
    async with stand.client.responses.stream(input=conversation, **asked) as stream:
        response = await stream.get_final_response()
    [call] = [item for item in response.output if item.type == "function_call"]
    assert call.name == TOOL_NAME
    assert json.loads(call.arguments) == json.loads(TOOL_ARGUMENTS)
    conversation += [
        item.model_dump(exclude_unset=True, exclude={"parsed_arguments"}) for item in response.output
    ]
    conversation.append({"type": "function_call_output", "call_id": call.call_id, "output": "sunny"})
    async with stand.client.responses.stream(input=conversation, **asked) as stream:
        final = await stream.get_final_response()
    assert final.output_text == ANSWER


async def test_its_chat_goes_to_its_chat(stand: Stand) -> None:
    messages: Any = [{"role": "user", "content": "Where does it go?"}]
    completion = await stand.client.chat.completions.create(model=NATIVE, messages=messages, temperature=0)
    assert completion.choices[0].message.content == ANSWER
