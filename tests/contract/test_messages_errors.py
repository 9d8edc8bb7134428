"""Errors and headers between clients and upstreams of which one speaks Messages and the other does not."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from harness.responses_stream import check
from harness.wire_stand import CHAT, MODEL, Exchange, WireStand, sent_up, wire_stand
from sluicegate.testing import Script, ToolCall

pytestmark = pytest.mark.asyncio(loop_scope="module")

MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    config = {
        "upstreams": {
            "chat": {},
            "messages": {"api": "messages", "forward_authorization": True},
            "responses": {"api": "responses"},
        },
        "models": {api: f"{api}/{MODEL}" for api in ("chat", "messages", "responses")},
    }
    async with wire_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
        yield stand


async def ask(
    wire: WireStand, path: str, model: str, script: Script, *, headers: tuple[str, ...] = (), **members: Any
) -> Exchange:
    asked = {"messages": [{"role": "user", "content": "Hi"}]}
    if path == RESPONSES:
        asked = {"input": asked["messages"]}
    body = {"model": model, **asked, **({"max_tokens": 9} if path == MESSAGES else {}), **members}
    return await wire.ask(script, path=path, headers=headers, body=json.dumps(body).encode())


def failing(status: int, body: Any, headers: Mapping[str, str] | None = None) -> Script:
    """Exactly this error body."""
    text = json.dumps(body).encode()
    return Script(status=status, body=(text,), content_type="application/json", headers=headers or {})


# === errors ===


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("status", "error", "shown"),
    [
        pytest.param(
            400,
            {
                "message": "This model's maximum context length is 8192 tokens.",
                "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded",
            },
            {
                "type": "invalid_request_error",
                "message": "prompt is too long: This model's maximum context length is 8192 tokens.",
            },
            id="too long: Claude Code compacts at these words",
        ),
        pytest.param(
            429,
            {"message": "Slow down", "type": "requests", "code": None},
            {"type": "rate_limit_error", "message": "Slow down"},
            id="rate limit",
        ),
        pytest.param(
            500, "out of memory", {"type": "api_error", "message": "out of memory"}, id="a string (LM Studio)"
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("upstream", ["chat", "responses"])
async def test_an_error_of_openais_form_for_a_messages_client(
    wire: WireStand, upstream: str, status: int, error: Any, shown: Mapping[str, str], streams: bool
) -> None:
    script = failing(status, {"error": error}, {"retry-after": "7"})
    exchange = await ask(wire, MESSAGES, upstream, script, stream=streams)
    assert exchange.reply.status == status
    document = exchange.reply.json()
    assert (document["type"], document["error"]) == ("error", shown)
    assert exchange.reply.headers["retry-after"] == "7"


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
async def test_an_overloaded_messages_upstream_is_unavailable_to_others(wire: WireStand, path: str) -> None:
    error = {"type": "overloaded_error", "message": "Overloaded"}
    exchange = await ask(wire, path, "messages", failing(529, {"type": "error", "error": error}))
    assert exchange.reply.status == 503, "529 is no registered status"
    found = exchange.reply.json()["error"]
    assert (found["type"], found["message"]) == ("overloaded_error", "Overloaded")


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
async def test_a_clients_own_wrong_key_keeps_its_status_and_its_words(wire: WireStand, path: str) -> None:
    error = {"type": "authentication_error", "message": "invalid x-api-key"}
    script = failing(401, {"type": "error", "error": error, "request_id": "req_1"})
    exchange = await ask(wire, path, "messages", script, headers=("authorization: Bearer theirs",))
    assert exchange.reply.status == 401
    found = exchange.reply.json()["error"]
    assert (found["type"], found["message"]) == ("authentication_error", "invalid x-api-key")


async def test_a_messages_upstreams_words_reach_a_messages_client_unchanged(wire: WireStand) -> None:
    error = {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"}
    body = {"type": "error", "error": error, "request_id": "req_1"}
    exchange = await ask(wire, MESSAGES, "messages", failing(400, body))
    assert (exchange.reply.status, exchange.body) == (400, json.dumps(body).encode())


# === headers ===


@pytest.mark.parametrize(("upstream", "goes"), [("messages", True), ("chat", False), ("responses", False)])
async def test_anthropics_headers_go_up_to_messages_upstreams_alone(
    wire: WireStand, upstream: str, goes: bool
) -> None:
    headers = ("anthropic-version: 2023-06-01", "anthropic-beta: interleaved-thinking-2025-05-14")
    await ask(wire, MESSAGES, upstream, Script(tokens=1), headers=headers)
    found = [name for name in sent_up(wire) if name.startswith("anthropic-")]
    assert bool(found) == goes, found


OPENAI = {"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-tokens": "149984"}
ANTHROPIC = {"anthropic-ratelimit-requests-limit": "60", "anthropic-ratelimit-tokens-remaining": "149984"}


@pytest.mark.parametrize("status", [200, 429])
@pytest.mark.parametrize(
    ("path", "upstream", "said", "shown"),
    [(MESSAGES, "chat", OPENAI, ANTHROPIC), (CHAT, "messages", ANTHROPIC, OPENAI)],
)
async def test_rate_limits_are_said_in_the_clients_words(
    wire: WireStand, path: str, upstream: str, said: dict[str, str], shown: dict[str, str], status: int
) -> None:
    exchange = await ask(wire, path, upstream, Script(tokens=1, status=status, headers=said))
    assert exchange.reply.status == status
    assert (said | shown).items() <= exchange.reply.headers.items()


# === custom tools ===


@pytest.mark.parametrize("streams", [False, True])
async def test_a_custom_tool_that_a_messages_upstream_calls_is_one_again(
    wire: WireStand, streams: bool
) -> None:
    patch = '*** Begin Patch\n+é "x"\\n\n*** End Patch'
    call = ToolCall(name="apply_patch", arguments=json.dumps({"input": patch}), id="toolu_1", piece=5)
    tool = {"type": "custom", "name": "apply_patch", "description": "Edits files."}
    script = Script(tokens=2, tool_calls=(call,))
    exchange = await ask(wire, RESPONSES, "messages", script, tools=[tool], stream=streams, store=False)
    [told] = wire.request.json()["tools"]
    assert told["input_schema"]["required"] == ["input"]
    output = check(exchange.body).output if streams else exchange.reply.json()["output"]
    [made] = [item for item in output if item["type"] == "custom_tool_call"]
    assert (made["name"], made["call_id"], made["input"]) == ("apply_patch", "toolu_1", patch)
