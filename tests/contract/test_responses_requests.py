"""What an upstream of Chat Completions is asked for a response, and what it cannot be asked."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from harness.responses_stand import ALWAYS, NEVER, RESPONSES, ResponsesStand, request, responses_stand
from harness.responses_stream import check
from harness.wire_stand import MODEL
from sluicegate.testing import Script, ScriptedUpstream

pytestmark = pytest.mark.asyncio(loop_scope="module")

CASES = json.loads((Path(__file__).parents[1] / "corpus/responses_requests/to_chat.json").read_text())
PLAIN = [case for case in CASES if "chat" in case and "target" not in case]
# What was kept of earlier responses is looked up before any upstream is asked.
LOOKED_UP = (
    "what such an upstream can't do: previous_response_id",
    "a reference",
    "a reference by its id alone",
)
REFUSED = [
    case for case in CASES if "refusal" in case and "target" not in case and case["name"] not in LOOKED_UP
]
HOSTED: Any = [{"type": "file_search", "vector_store_ids": ["vs_1"]}]
TOOLS: Any = [{"type": "function", "name": "f"}, {"type": "web_search"}]


@dataclass(frozen=True)
class Stand(ResponsesStand):
    wire: Any
    native: ScriptedUpstream

    async def asked(self, model: str = MODEL, **members: Any) -> dict[str, Any]:
        """What the upstream was sent."""
        exchange = await self.ask(Script(), model=model, **members)
        assert exchange.reply.status == 200, exchange.body
        assert self.wire.request.path == "/v1/chat/completions"
        sent: dict[str, Any] = self.wire.request.json()
        return sent


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    async with ScriptedUpstream() as native:
        config: dict[str, Any] = {
            "upstreams": {
                "other": {
                    "chat": {
                        "instructions_role": "developer",
                        "reasoning_field": "reasoning",
                        "max_tokens_field": "max_completion_tokens",
                        "omit": ["prompt_cache_key"],
                    }
                },
                "silent": {"chat": {"reasoning_field": "none"}, "stream_options": False},
                "native": {"base_url": native.base_url, "api": "responses"},
            },
            "models": {
                "other": f"other/{MODEL}",
                "silent": f"silent/{MODEL}",
                "native": f"native/{MODEL}",
                "chat-first": [f"local/{MODEL}", f"native/{MODEL}"],
                "native-first": [f"native/{MODEL}", f"other/{MODEL}"],
                "both-chat": [f"local/{MODEL}", f"other/{MODEL}"],
            },
        }
        async with responses_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
            yield Stand(stand.wire, native)


def body_of(case: dict[str, Any]) -> bytes:
    return json.dumps(case["request"] | {"model": MODEL}, ensure_ascii=False).encode()


# === translation, through the wire ===


@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case["name"])
async def test_a_request_arrives_as_the_corpus_says(stand: Stand, case: dict[str, Any]) -> None:
    exchange = await stand.wire.ask(Script(), path=RESPONSES, body=body_of(case))
    assert exchange.reply.status == 200, exchange.body
    sent = stand.wire.request.json()
    if case["request"].get("stream"):
        assert sent.pop("stream_options") == {"include_usage": True}
    assert sent == case["chat"] | {"model": MODEL}
    assert exchange.line.get("left_out", []) == case.get("left_out", [])


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["name"])
async def test_a_request_that_cannot_be_put_is_refused(stand: Stand, case: dict[str, Any]) -> None:
    before = len(stand.wire.upstream.requests)
    exchange = await stand.wire.ask(Script(), path=RESPONSES, body=body_of(case))
    assert exchange.reply.status == 400, exchange.body
    error = exchange.reply.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == case["refusal"]
    assert error["message"]
    assert len(stand.wire.upstream.requests) == before
    assert (exchange.line["result"], exchange.line["code"]) == ("refused", "untranslatable")


async def test_a_stream_is_asked_with_its_usage(stand: Stand) -> None:
    sent = await stand.asked(stream=True)
    assert (sent["stream"], sent["stream_options"]) == (True, {"include_usage": True})
    assert "stream_options" not in await stand.asked()
    assert "stream_options" not in await stand.asked("silent", stream=True)
    assert (await stand.asked(ALWAYS))["stream"] is True
    assert (await stand.asked(NEVER, stream=True)).get("stream", False) is False


async def test_an_upstream_is_asked_in_its_own_words(stand: Stand) -> None:
    reasoning = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    asked: dict[str, Any] = {
        "instructions": "Be brief.",
        "input": [reasoning, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Why?"}],
        "max_output_tokens": 50,
        "prompt_cache_key": "k",
    }
    sent = await stand.asked(**asked)
    assert sent["messages"][0] == {"role": "system", "content": "Be brief."}
    assert sent["messages"][1]["reasoning_content"] == "Hm."
    assert (sent["max_tokens"], sent["prompt_cache_key"]) == (50, "k")
    sent = await stand.asked("other", **asked)
    assert sent["messages"][0] == {"role": "developer", "content": "Be brief."}
    assert sent["messages"][1]["reasoning"] == "Hm."
    assert sent["max_completion_tokens"] == 50
    assert "prompt_cache_key" not in sent
    sent = await stand.asked("silent", **asked)
    assert sent["messages"][1] == {"role": "assistant", "content": "Yes."}


async def test_what_the_upstream_is_not_told_is_in_the_log(stand: Stand) -> None:
    exchange = await stand.ask(Script(), tools=TOOLS)
    assert exchange.line["left_out"] == ["tools[1] (web_search)"]
    assert "left_out" not in (await stand.ask(Script())).line


# === which routes ===


async def test_what_only_one_route_can_do_goes_there(stand: Stand) -> None:
    stand.native.script = Script()
    exchange = await stand.ask(Script(), model="chat-first", tools=HOSTED, stream=True)
    assert check(exchange.body).text
    line = exchange.line
    assert (line["upstream"], line["failed_attempts"]) == ("native", ["local: untranslatable"])
    assert line["result"] == "ok"
    exchange = await stand.ask(Script(), model="chat-first", stream=True)
    assert exchange.line["upstream"] == "local"


async def test_a_retry_may_go_to_an_upstream_of_the_other_kind(stand: Stand) -> None:
    stand.native.script = Script(status=503)
    exchange = await stand.ask(Script(), model="native-first", stream=True, instructions="Be brief.")
    assert check(exchange.body, complete=True).response["instructions"] == "Be brief."
    assert (exchange.line["upstream"], exchange.line["attempts"]) == ("other", 2)
    assert stand.wire.request.json()["messages"][0]["role"] == "developer"
    stand.native.script = Script()
    exchange = await stand.ask(Script(status=503), model="chat-first")
    assert exchange.line["upstream"] == "native"
    assert stand.native.requests[-1].json()["input"] == "Say something."


async def test_the_error_is_of_the_upstream_that_was_asked(stand: Stand) -> None:
    error = {"message": "Busy.", "type": "server_error", "param": None, "code": "busy"}
    stand.native.script = Script(status=503, error=error)
    for model in ("native-first", "chat-first"):
        exchange = await stand.ask(Script(), model=model, tools=HOSTED)
        assert (exchange.reply.status, exchange.reply.json()) == (503, {"error": error})
        assert exchange.line["result"] == "failed"


async def test_a_request_that_no_route_can_be_asked_is_refused(stand: Stand) -> None:
    exchange = await stand.ask(Script(), model="both-chat", tools=HOSTED)
    assert exchange.reply.status == 400
    assert exchange.reply.json()["error"]["param"] == "tools[0]"


# === bodies ===


@pytest.mark.parametrize(
    ("body", "param"),
    [(b'{"model": "small"', None), (b"[]", None), (b'{"input": "hi"}', "model")],
)
async def test_a_body_that_is_no_request_is_refused(stand: Stand, body: bytes, param: str | None) -> None:
    exchange = await stand.wire.ask(Script(), path=RESPONSES, body=body)
    assert exchange.reply.status == 400
    error = exchange.reply.json()["error"]
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"


async def test_a_key_and_headers_are_treated_as_for_chat(stand: Stand) -> None:
    headers = ("authorization: Bearer client", "traceparent: 00-1-2-01")
    await stand.wire.ask(Script(), path=RESPONSES, body=request(), headers=headers)
    assert stand.wire.request.header("authorization") is None
    assert stand.wire.request.header("traceparent") == "00-1-2-01"


@pytest.mark.parametrize("streams", [True, False])
async def test_what_bounds_a_reply_does_not_bound_a_request(tmp_path: Path, streams: bool) -> None:
    async with responses_stand(tmp_path, {"server": {"max_reply_bytes": 8192}}) as stand:
        text = "x" * 20_000
        exchange = await stand.ask(Script(tokens=3), input=text, stream=streams)
        assert exchange.reply.status == 200, exchange.body
        assert stand.wire.request.json()["messages"] == [{"role": "user", "content": text}]
