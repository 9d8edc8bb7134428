"""Messages to an upstream that has the same API: forwarded as they are, billed, and failed in their form."""

import json
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest
import pytest_asyncio

from harness.wire_stand import MODEL, Exchange, WireStand, sent_up, wire_stand
from raw_http import RawConnection, RawReply
from sluicegate.testing import Fault, Script, ScriptedUpstream, ToolCall, UsageScript

pytestmark = pytest.mark.asyncio(loop_scope="module")

MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
VERSION = "anthropic-version: 2023-06-01"
KEY = "x-api-key: sk-client"
AUTHORIZED = (KEY, VERSION)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    async with ScriptedUpstream() as gone:
        away = gone.base_url
    config = {
        "keys": [{"name": "team", "key": "sk-client"}],
        "upstreams": {
            "local": {"api": "messages", "api_key": "sk-upstream"},
            "bearer": {"api": "messages", "api_key": "sk-upstream", "key_header": "authorization"},
            "away": {"api": "messages", "base_url": away},
            "passing": {"api": "messages", "forward_authorization": True},
            "chats": {},
            "estimating": {"messages": {"count_tokens": "estimate"}},
            "silent": {"api": "messages", "deadlines": {"between_tokens": 0.2}},
            "mute": {"api": "messages", "messages": {"count_tokens": "off"}},
        },
        "models": {
            "spared": [f"away/{MODEL}", f"local/{MODEL}"],
            "away": f"away/{MODEL}",
            "bearer": f"bearer/{MODEL}",
            "passing": f"passing/{MODEL}",
            "chats": f"chats/{MODEL}",
            "mixed": [f"chats/{MODEL}", f"local/{MODEL}"],
            "estimating": f"estimating/{MODEL}",
            "silent": f"silent/{MODEL}",
            "mute": f"mute/{MODEL}",
        },
        "prices": {"mixed": {"input": "1", "cached_input": "1", "output": "1"}},
    }
    async with wire_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
        yield stand


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pinging(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    """A gateway that bridges its upstreams' silence."""
    config = {
        "upstreams": {
            "local": {"api": "messages"},
            "late": {"api": "messages", "deadlines": {"first_byte": 0.5}},
        },
        "models": {"late": f"late/{MODEL}"},
        "server": {"keepalive_seconds": 0.1},
    }
    async with wire_stand(tmp_path_factory.mktemp("pinging"), config) as stand:
        yield stand


def asked(*, model: str = MODEL, **members: Any) -> bytes:
    messages = [{"role": "user", "content": "Say something."}]
    return json.dumps({"model": model, "max_tokens": 100, "messages": messages} | members).encode()


async def ask(wire: WireStand, script: Script, *, path: str = MESSAGES, **members: Any) -> Exchange:
    headers = members.pop("headers", AUTHORIZED)
    return await wire.ask(script, path=path, headers=headers, body=asked(**members))


def events(body: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Name and data of each event; the two must agree."""
    found = []
    for block in body.decode().split("\n\n"):
        lines = [line for line in block.split("\n") if line]
        if not lines:
            continue
        name, data = lines
        assert name.startswith("event: ")
        value = json.loads(data.removeprefix("data: "))
        assert name == f"event: {value['type']}"
        found.append((value["type"], value))
    return found


def error_of(reply: RawReply, request_id: str | None = None) -> dict[str, Any]:
    """The error in Anthropic's form, which must have its whole shape."""
    assert reply.headers["content-type"] == "application/json"
    document = reply.json()
    assert set(document) == {"type", "error", "request_id"}
    assert document["type"] == "error"
    assert set(document["error"]) == {"type", "message"}
    assert document["request_id"] == reply.headers["x-request-id"] == reply.headers["request-id"]
    error: dict[str, Any] = document["error"]
    return error


# === what goes through ===


async def test_a_stream_goes_through_as_it_is_but_for_its_cost(wire: WireStand) -> None:
    script = Script(tokens=3, reasoning_tokens=2, tool_calls=(ToolCall(),))
    exchange = await ask(wire, script, stream=True)
    assert exchange.reply.status == 200
    assert exchange.reply.headers["content-type"].startswith("text/event-stream")
    names = [name for name, _ in events(exchange.body)]
    assert names[0] == "message_start"
    assert names[-2:] == ["message_delta", "message_stop"]
    assert "ping" in names
    [delta] = [data for name, data in events(exchange.body) if name == "message_delta"]
    assert delta["usage"]["cost"] > 0
    line = exchange.line
    assert (line["endpoint"], line["status"], line["result"]) == ("messages", 200, "ok")
    assert (line["model"], line["upstream"], line["finish_reason"]) == (MODEL, "local", "tool_use")
    assert line["streamed"] is True
    assert line["time_to_first_token"] > 0
    assert Decimal(line["cost"]) == Decimal(str(delta["usage"]["cost"]))


async def test_a_whole_message_goes_through(wire: WireStand) -> None:
    usage = UsageScript(input_tokens=100, cached_tokens=30, cache_write_tokens=20, output_tokens=10)
    exchange = await ask(wire, Script(tokens=2, usage=usage))
    message = exchange.reply.json()
    assert (message["type"], message["stop_reason"]) == ("message", "end_turn")
    # Of 100 input tokens 30 were read from the cache and 20 written to it; both stand beside `input_tokens`.
    assert message["usage"]["input_tokens"] == 50
    line = exchange.line
    assert (line["input_tokens"], line["cached_input_tokens"], line["output_tokens"]) == (100, 30, 10)
    # 50 at 1, 30 at 0.1, 20 at 1.25, 10 at 4 USD per million.
    assert line["cost"] == "0.000118"
    assert message["usage"]["cost"] == 0.000118


async def test_the_request_goes_up_as_it_came_but_for_the_models_name(wire: WireStand) -> None:
    body = b'{"model" : "bearer", "max_tokens":7,"x":1.50,"messages":[{"role":"user","content":"\\u0041"}]}'
    beta = "anthropic-beta: interleaved-thinking-2025-05-14"
    path = f"{MESSAGES}?beta=true"
    exchange = await wire.ask(Script(tokens=1), path=path, headers=(*AUTHORIZED, beta), body=body)
    assert exchange.reply.status == 200
    request = wire.request.request
    assert request.body == body.replace(b'"bearer"', b'"small"')
    assert request.target == "/v1/messages?beta=true"
    assert sent_up(wire)["anthropic-beta"] == ["interleaved-thinking-2025-05-14"]


async def test_fallback_to_the_next_upstream_with_messages(wire: WireStand) -> None:
    exchange = await ask(wire, Script(tokens=1), model="spared", stream=True)
    assert events(exchange.body)[-1][0] == "message_stop"
    assert (exchange.line["upstream"], exchange.line["attempts"]) == ("local", 2)


# === keys and headers ===


async def test_the_upstreams_key_goes_where_its_api_takes_it(wire: WireStand) -> None:
    await ask(wire, Script(tokens=1))
    headers = sent_up(wire)
    assert headers["x-api-key"] == ["sk-upstream"]
    assert "authorization" not in headers
    await ask(wire, Script(tokens=1), model="bearer")
    headers = sent_up(wire)
    assert headers["authorization"] == ["Bearer sk-upstream"]
    assert "x-api-key" not in headers


async def test_a_version_is_said_even_where_the_client_says_none(wire: WireStand) -> None:
    await ask(wire, Script(tokens=1), headers=(KEY,))
    assert sent_up(wire)["anthropic-version"] == ["2023-06-01"]
    await ask(wire, Script(tokens=1), headers=(KEY, "anthropic-version: 2099-01-01"))
    assert sent_up(wire)["anthropic-version"] == ["2099-01-01"]


@pytest.mark.parametrize("key", ["x-api-key: sk-client", "authorization: Bearer sk-client"])
async def test_a_client_presents_its_key_in_either_header(wire: WireStand, key: str) -> None:
    exchange = await ask(wire, Script(tokens=1), headers=(key,))
    assert (exchange.reply.status, exchange.line["caller"]) == (200, "team")
    assert "sk-client" not in str(wire.request.headers)


async def test_a_clients_own_credentials_go_up_where_the_upstream_says_so(wire: WireStand) -> None:
    await ask(wire, Script(tokens=1), model="passing", headers=(KEY,))
    assert sent_up(wire)["x-api-key"] == ["sk-client"]


@pytest.mark.parametrize("headers", [(), ("x-api-key: sk-other",), ("authorization: Bearer sk-other", KEY)])
async def test_another_key_is_refused_in_anthropics_form(wire: WireStand, headers: tuple[str, ...]) -> None:
    exchange = await ask(wire, Script(tokens=1), headers=headers)
    assert exchange.reply.status == 401
    assert error_of(exchange.reply)["type"] == "authentication_error"
    assert exchange.reply.headers["x-sluicegate-error"] == "invalid_api_key"
    assert (exchange.line["endpoint"], exchange.line["code"]) == ("messages", "invalid_api_key")


# === errors ===


@pytest.mark.parametrize(
    ("members", "status", "type", "code"),
    [
        ({"model": "nothing"}, 404, "not_found_error", "model_not_found"),
        ({"model": None}, 400, "invalid_request_error", "missing_model"),
        ({"stream": "yes"}, 400, "invalid_request_error", "invalid_body"),
        ({"model": "away"}, 502, "api_error", "connect"),
    ],
)
async def test_the_gateways_own_errors_are_in_anthropics_form(
    wire: WireStand, members: dict[str, Any], status: int, type: str, code: str
) -> None:
    exchange = await ask(wire, Script(tokens=1), **members)
    assert exchange.reply.status == status
    assert error_of(exchange.reply)["type"] == type
    assert exchange.reply.headers["x-sluicegate-error"] == code == exchange.line["code"]


async def test_what_the_front_refuses_is_in_anthropics_form(wire: WireStand) -> None:
    async with RawConnection(*wire.address) as connection:
        await connection.send(
            b"POST /v1/messages HTTP/1.1\r\nhost: a\r\nx-api-key: a\r\nx-api-key: b\r\n\r\n"
        )
        reply = await connection.reply()
    assert reply.status == 400
    assert error_of(reply)["type"] == "invalid_request_error"
    assert reply.headers["x-sluicegate-error"] == "malformed_request"


async def test_paths_that_are_not_there_are_told_in_anthropics_form(wire: WireStand) -> None:
    for method, path, status in (
        ("GET", "/v1/messages", 405),
        ("POST", "/v1/messages/batches", 404),
        ("GET", "/api/hello", 404),
    ):
        async with RawConnection(*wire.address) as connection:
            await connection.send(f"{method} {path} HTTP/1.1\r\nhost: a\r\n{VERSION}\r\n\r\n".encode())
            reply = await connection.reply()
        assert reply.status == status
        assert error_of(reply)["type"] == ("not_found_error" if status == 404 else "invalid_request_error")


@pytest.mark.parametrize(
    ("status", "type"),
    [
        (400, "invalid_request_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (529, "overloaded_error"),
    ],
)
async def test_an_upstreams_error_passes_to_the_byte_with_its_headers(
    wire: WireStand, status: int, type: str
) -> None:
    headers = {
        "retry-after": "7",
        "x-should-retry": "false",
        "request-id": "req_theirs",
        "anthropic-ratelimit-requests-remaining": "0",
    }
    exchange = await ask(wire, Script(status=status, headers=headers), stream=True)
    assert exchange.reply.status == status
    document = exchange.reply.json()
    assert document["error"]["type"] == type
    assert document["request_id"] == "req_mock"
    for name, value in headers.items():
        assert exchange.reply.headers[name] == value
    assert "x-sluicegate-error" not in exchange.reply.headers


async def test_an_upstream_that_refuses_the_gateways_key_is_not_the_clients_fault(wire: WireStand) -> None:
    exchange = await ask(wire, Script(status=401))
    assert exchange.reply.status == 502
    assert error_of(exchange.reply)["type"] == "api_error"
    assert exchange.reply.headers["x-sluicegate-error"] == "upstream_authentication"


async def test_an_error_of_another_form_is_written_in_the_clients(wire: WireStand) -> None:
    body = b'{"error":{"message":"too long for me","type":"x","code":"context_length_exceeded"}}'
    script = Script(status=400, body=(body,), content_type="application/json")
    exchange = await ask(wire, script)
    assert exchange.reply.status == 400
    error = error_of(exchange.reply)
    assert error == {"type": "invalid_request_error", "message": "prompt is too long: too long for me"}


async def test_an_error_in_the_stream_passes(wire: WireStand) -> None:
    exchange = await ask(wire, Script(tokens=5, faults=(Fault(action="error", events=5),)), stream=True)
    name, data = events(exchange.body)[-1]
    assert (name, data["error"]["type"]) == ("error", "overloaded_error")
    assert (exchange.line["status"], exchange.line["fault"]) == (200, "in_band_error")


async def test_a_stream_that_breaks_off_ends_in_an_error_of_anthropics_types(wire: WireStand) -> None:
    exchange = await ask(wire, Script(tokens=5, faults=(Fault(action="reset", events=5),)), stream=True)
    name, data = events(exchange.body)[-1]
    assert (name, data["type"], data["error"]["type"]) == ("error", "error", "api_error")
    assert exchange.line["fault"] == "truncated"


async def test_a_stream_that_stalls_ends_in_a_timeout(wire: WireStand) -> None:
    script = Script(tokens=5, faults=(Fault(action="stall", events=5),))
    exchange = await ask(wire, script, model="silent", stream=True)
    name, data = events(exchange.body)[-1]
    assert (name, data["error"]["type"]) == ("error", "timeout_error")
    assert exchange.line["fault"] == "between_tokens_timeout"


# === silence ===


async def test_silence_is_bridged_by_pings(pinging: WireStand) -> None:
    exchange = await ask(pinging, Script(tokens=1, head_delay=1.0), stream=True)
    names = [name for name, _ in events(exchange.body)]
    assert names[0] == "ping"
    assert names[-1] == "message_stop"


async def test_an_error_after_pings_is_an_event(pinging: WireStand) -> None:
    exchange = await ask(pinging, Script(tokens=1, head_delay=20.0), model="late", stream=True)
    assert exchange.reply.status == 200
    name, data = events(exchange.body)[-1]
    assert (name, data["error"]["type"]) == ("error", "timeout_error")
    assert data["request_id"] == exchange.reply.headers["x-request-id"]


# === counting ===


async def test_an_upstream_counts(wire: WireStand) -> None:
    exchange = await ask(wire, Script(usage=UsageScript(input_tokens=4711)), path=f"{COUNT}?beta=true")
    assert (exchange.reply.status, exchange.reply.json()) == (200, {"input_tokens": 4711})
    assert wire.request.request.target == "/v1/messages/count_tokens?beta=true"
    assert sent_up(wire)["x-api-key"] == ["sk-upstream"]
    line = exchange.line
    assert (line["endpoint"], line["result"]) == ("count_tokens", "ok")
    assert "cost" not in line or line["cost"] is None


async def test_the_first_upstream_that_counts_is_asked(wire: WireStand) -> None:
    exchange = await ask(wire, Script(usage=UsageScript(input_tokens=5)), path=COUNT, model="mixed")
    assert (exchange.reply.json(), exchange.line["upstream"]) == ({"input_tokens": 5}, "local")


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_an_upstream_that_cannot_count_is_asked_once_and_not_blamed(
    wire: WireStand, status: int
) -> None:
    exchange = await ask(wire, Script(status=status), path=COUNT)
    assert exchange.reply.status == 404
    assert error_of(exchange.reply)["type"] == "not_found_error"
    assert (exchange.line["result"], exchange.line["attempts"]) == ("refused", 1)
    assert exchange.line["code"] == "tokens_not_counted"


@pytest.mark.parametrize("model", ["chats", "mute"])
async def test_where_nobody_counts_a_client_is_told(wire: WireStand, model: str) -> None:
    seen = len(wire.upstream.requests)
    exchange = await ask(wire, Script(), path=COUNT, model=model)
    assert exchange.reply.status == 404
    assert error_of(exchange.reply)["type"] == "not_found_error"
    assert len(wire.upstream.requests) == seen


async def test_an_estimate_is_a_quarter_of_the_bytes_of_text(wire: WireStand) -> None:
    messages = [{"role": "user", "content": "x" * 400}]
    exchange = await ask(wire, Script(), path=COUNT, model="estimating", system="y" * 40, messages=messages)
    assert (exchange.reply.status, exchange.reply.json()) == (200, {"input_tokens": 110})
    assert (exchange.line["result"], exchange.line["endpoint"]) == ("ok", "count_tokens")


# === models ===


async def test_models_are_listed_in_the_form_of_the_client(wire: WireStand) -> None:
    async def get(path: str, *headers: str) -> RawReply:
        async with RawConnection(*wire.address) as connection:
            lines = [f"GET {path} HTTP/1.1", "host: a", KEY, *headers, "", ""]
            await connection.send("\r\n".join(lines).encode())
            return await connection.reply()

    page = (await get("/v1/models?limit=1000", VERSION)).json()
    ids = [entry["id"] for entry in page["data"]]
    assert MODEL in ids
    assert (page["has_more"], page["first_id"], page["last_id"]) == (False, ids[0], ids[-1])
    assert set(page["data"][0]) == {"type", "id", "display_name", "created_at"}
    one = (await get(f"/v1/models/{MODEL}", VERSION)).json()
    assert (one["type"], one["id"]) == ("model", MODEL)
    assert (await get("/v1/models")).json()["object"] == "list"
    missing = await get("/v1/models/nothing", VERSION)
    assert missing.status == 404
    assert error_of(missing)["type"] == "not_found_error"


# === metrics ===


async def test_the_endpoints_have_labels_of_their_own(wire: WireStand) -> None:
    await ask(wire, Script(tokens=1))
    await ask(wire, Script(), path=COUNT)
    samples = await wire.gateway.metrics()
    for endpoint in ("messages", "count_tokens"):
        counted = {"endpoint": endpoint, "model": MODEL, "status": "200"}
        assert samples.value("sluicegate_requests_total", **counted)
