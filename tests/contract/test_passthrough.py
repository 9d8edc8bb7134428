"""Paths of the operator's own: forwarded with our key, within our bounds, and recorded as all others are."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from harness.gateway_process import Line
from harness.wire_stand import MODEL, WireStand, dumps, event, sent_up, wire_stand
from raw_http import RawConnection, RawReply
from sluicegate.testing import Fault, Script, body, raw

pytestmark = pytest.mark.asyncio(loop_scope="module")

JSON = "application/json"
FILE = {"id": "file-1", "object": "file", "error": {"code": "bad_row", "message": "row 3"}}
USAGE = {"prompt_tokens": 14, "completion_tokens": 7, "total_tokens": 21}
BOUNDARY = "b0undary"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
KIB = 1 << 10
LIMIT = 1 << 20

CONFIG = {
    "server": {"max_body_bytes": LIMIT, "bounds": {"body_pause_seconds": 2.0}},
    "keys": [
        {"name": "any", "key": "sk-any"},
        {"name": "one-model", "key": "sk-model", "models": [MODEL]},
        {"name": "named", "key": "sk-named", "models": [MODEL], "endpoints": ["files"]},
        {"name": "chat-only", "key": "sk-chat", "endpoints": ["chat_completions"]},
        {"name": "frugal", "key": "sk-frugal", "limits": "few"},
    ],
    "limits": {"few": {"requests": "1/day"}},
    "upstreams": {
        "keyed": {
            "api_key": "sk-ours",
            "query": {"api-version": "1"},
            "forward_headers": ["range"],
            "reply_headers": ["content-range"],
        },
        "slow": {"deadlines": {"first_byte": 0.4}},
        "spare": {},
        "claude": {"api": "messages", "api_key": "sk-claude"},
        "gone": {"base_url": "http://127.0.0.1:9/v1"},
    },
    "models": {"renamed": "keyed/org/their model", "pair": ["gone/first", "spare/second"]},
    "passthrough": [
        {"path": "/v1/files/*", "upstream": "keyed", "name": "files"},
        {"path": "/v1/batches", "upstream": "keyed", "methods": ["POST"]},
        {"path": "/custom/*", "upstream": "slow"},
        {"path": "/v1/messages/batches/*", "upstream": "claude", "name": "message_batches"},
        {"path": "/v1/classify", "model": "json", "name": "classify"},
        {"path": "/v1/audio/alignments", "model": "form", "name": "alignments"},
        {"path": "/v1/engines/{model}/embeddings", "model": "path", "name": "engines"},
    ],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    async with wire_stand(tmp_path_factory.mktemp("gateway"), CONFIG) as stand:
        yield stand


_numbers = iter(range(1, 10_000))


@contextlib.asynccontextmanager
async def asking(
    wire: WireStand,
    script: Script,
    method: str,
    path: str,
    sent: bytes | None = None,
    headers: tuple[str, ...] = (),
    key: str | None = "sk-any",
) -> AsyncIterator[tuple[RawConnection, str]]:
    """A client that has sent its request, and the request's id."""
    wire.upstream.script = script
    request_id = f"pass-{next(_numbers)}"
    lines = [f"{method} {path} HTTP/1.1", "host: a", f"x-request-id: {request_id}", *headers]
    if key is not None:
        lines.append(f"authorization: Bearer {key}")
    if sent is not None:
        lines.append(f"content-length: {len(sent)}")
    async with RawConnection(*wire.address) as connection:
        await connection.send("\r\n".join([*lines, "", ""]).encode("latin-1") + (sent or b""))
        yield connection, request_id


async def ask(
    wire: WireStand,
    script: Script,
    method: str,
    path: str,
    sent: bytes | None = None,
    headers: tuple[str, ...] = (),
    key: str | None = "sk-any",
) -> tuple[RawReply, Line]:
    async with asking(wire, script, method, path, sent, headers, key) as (connection, request_id):
        reply = await connection.reply()
    return reply, await wire.gateway.wait_request(request_id=request_id)


def code(reply: RawReply) -> str:
    said: str = reply.json()["error"]["code"]
    return said


# === what goes up ===


@pytest.mark.parametrize("method", METHODS)
async def test_each_method_is_forwarded(wire: WireStand, method: str) -> None:
    sent = None if method in ("GET", "DELETE") else b"\x00anything at all"
    reply, line = await ask(wire, body(dumps(FILE), content_type=JSON), method, "/v1/files/file-1", sent)
    assert (reply.status, reply.body) == (200, dumps(FILE))
    request = wire.request.request
    assert (request.method, wire.request.path, request.body) == (method, "/v1/files/file-1", sent or b"")
    assert (line["endpoint"], line["result"], line["upstream"]) == ("files", "ok", "keyed")
    assert line["caller"] == "any"
    assert "model" not in line
    assert "fault" not in line, "what is in it is its client's business"


async def test_our_key_goes_up_and_the_clients_does_not(wire: WireStand) -> None:
    given = (
        "cookie: a=b", "x-api-key: sk-any", "connection: close, x-mine", "x-mine: 1", "te: trailers",
        "proxy-authorization: Basic c2stYW55", "accept: text/plain", "openai-beta: assistants=v2",
    )  # fmt: skip
    await ask(wire, body(b"{}", content_type=JSON), "GET", "/v1/files", headers=given)
    headers = sent_up(wire)
    assert headers["authorization"] == ["Bearer sk-ours"]
    assert headers["accept"] == ["text/plain"]
    assert headers["openai-beta"] == ["assistants=v2"]
    for name in ("cookie", "x-api-key", "x-mine", "te", "proxy-authorization"):
        assert name not in headers, name
    assert "sk-any" not in str(wire.request.headers)


async def test_nothing_is_said_of_a_body_that_is_not_there(wire: WireStand) -> None:
    await ask(wire, body(b"{}", content_type=JSON), "DELETE", "/v1/files/a")
    assert not {"content-type", "transfer-encoding"} & sent_up(wire).keys()


async def test_path_and_query_are_the_clients(wire: WireStand) -> None:
    path = "/v1/files/a%20b/c%2Fd?purpose=batch&limit=2&x=%26"
    await ask(wire, body(b"{}", content_type=JSON), "GET", path)
    there, _, query = wire.request.request.target.partition("?")
    assert there == "/v1/files/a%20b/c%2Fd"
    assert query == "api-version=1&purpose=batch&limit=2&x=%26"


async def test_what_is_not_below_v1_is_at_the_servers_root(wire: WireStand) -> None:
    await ask(wire, body(b"{}", content_type=JSON), "GET", "/custom/thing")
    assert wire.request.path == "/custom/thing"


@pytest.mark.parametrize("size", [0, 1, 64 * KIB, LIMIT - 1])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_of_any_form_goes_up_to_the_byte(wire: WireStand, size: int, chunked: bool) -> None:
    sent = (bytes(range(256)) * (size // 256 + 1))[:size]
    script = body(b"{}", content_type=JSON)
    kind = "content-type: application/x-anything; a=b"
    if chunked:
        headers = (kind, "transfer-encoding: chunked")
        async with asking(wire, script, "PUT", "/v1/files/a", headers=headers) as (connection, _):
            for start in range(0, size, 100_000):
                part = sent[start : start + 100_000]
                await connection.send(b"%x\r\n%b\r\n" % (len(part), part))
            await connection.send(b"0\r\n\r\n")
            reply = await connection.reply()
    else:
        reply, _ = await ask(wire, script, "PUT", "/v1/files/a", sent, (kind,))
    assert reply.status == 200
    assert wire.request.body == sent
    assert sent_up(wire)["content-type"] == ["application/x-anything; a=b"]


async def test_a_body_that_is_too_large_is_refused(wire: WireStand) -> None:
    reply, line = await ask(wire, Script(), "POST", "/v1/files", b"x" * (LIMIT + 1))
    assert (reply.status, code(reply), line["endpoint"]) == (413, "request_too_large", "files")


# === Anthropic's ===

VERSION = "anthropic-version: 2023-06-01"
BATCHES = "/v1/messages/batches"


async def test_an_upstream_of_messages_alone_is_asked_as_one(wire: WireStand) -> None:
    script = body(dumps({"type": "message_batch", "id": "msgbatch_1"}), content_type=JSON)
    given = (VERSION, "anthropic-beta: files", "x-api-key: sk-any")
    reply, line = await ask(wire, script, "POST", BATCHES, b'{"requests":[]}', given, key=None)
    assert (reply.status, line["endpoint"], line["caller"]) == (200, "message_batches", "any")
    headers = sent_up(wire)
    assert headers["x-api-key"] == ["sk-claude"]
    assert (headers["anthropic-version"], headers["anthropic-beta"]) == (["2023-06-01"], ["files"])
    assert "authorization" not in headers
    await ask(wire, script, "GET", BATCHES)
    assert sent_up(wire)["anthropic-version"] == ["2023-06-01"], "it is asked for no other way"


async def test_errors_are_in_the_form_of_the_client(wire: WireStand) -> None:
    refused, _ = await ask(wire, Script(), "GET", BATCHES, headers=(VERSION,), key="sk-chat")
    assert refused.status == 403
    assert refused.json()["type"] == "error"
    assert refused.json()["error"]["type"] == "permission_error"
    missing, _ = await ask(wire, Script(), "GET", BATCHES, headers=(VERSION,), key=None)
    assert (missing.status, missing.json()["error"]["type"]) == (401, "authentication_error")
    error = dumps({"type": "error", "error": {"type": "not_found_error", "message": "no batch"}})
    script = body(error, content_type=JSON, status=404)
    passed, _ = await ask(wire, script, "GET", f"{BATCHES}/a", headers=(VERSION,))
    assert (passed.status, passed.body) == (404, error)
    translated, _ = await ask(wire, script, "GET", f"{BATCHES}/a")
    assert translated.json()["error"]["message"] == "no batch"
    assert "type" not in translated.json()
    large, _ = await ask(wire, Script(), "POST", BATCHES, b"x" * (LIMIT + 1), (VERSION,))
    assert (large.status, large.json()["error"]["type"]) == (413, "request_too_large")


# === where it goes ===


async def test_a_model_in_the_body_is_routed_and_renamed(wire: WireStand) -> None:
    answer = dumps({"label": "good", "usage": USAGE})
    sent = b'{ "model":"renamed", "input":"a", "x":1.50}'
    reply, line = await ask(wire, body(answer, content_type=JSON), "POST", "/v1/classify", sent)
    assert reply.body.startswith(b'{"label":"good","usage":{"prompt_tokens":14,')
    assert wire.request.body == b'{ "model":"org/their model", "input":"a", "x":1.50}'
    assert (line["endpoint"], line["model"], line["upstream"]) == ("classify", "renamed", "keyed")
    assert (line["input_tokens"], line["output_tokens"]) == (14, 7)


async def test_its_usage_is_billed(wire: WireStand) -> None:
    sent = dumps({"model": MODEL, "input": "a"})
    script = body(dumps({"usage": USAGE}), content_type=JSON)
    reply, line = await ask(wire, script, "POST", "/v1/classify", sent)
    assert reply.json()["usage"]["cost"] == 0.000042
    assert line["cost"] == "0.000042"


async def test_a_model_in_a_form_is_routed_and_renamed(wire: WireStand) -> None:
    part = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="model"\r\n\r\n'
    end = f"\r\n--{BOUNDARY}--\r\n"
    kind = (f"content-type: multipart/form-data; boundary={BOUNDARY}",)
    sent = f"{part}renamed{end}".encode()
    script = body(b"1\n00:00", content_type="application/x-subrip")
    reply, line = await ask(wire, script, "POST", "/v1/audio/alignments", sent, kind)
    assert reply.body == b"1\n00:00"
    assert wire.request.body == f"{part}org/their model{end}".encode()
    assert line["model"] == "renamed"


async def test_a_model_in_the_path_is_routed_and_renamed(wire: WireStand) -> None:
    script = body(dumps({"data": [], "usage": USAGE}), content_type=JSON)
    sent = b'{"input": "a {model}"}'
    reply, line = await ask(wire, script, "POST", "/v1/engines/renamed/embeddings?a={model}", sent)
    assert reply.status == 200
    target = wire.request.request.target
    assert target == "/v1/engines/org%2Ftheir%20model/embeddings?api-version=1&a={model}"
    assert wire.request.body == sent
    assert (line["endpoint"], line["model"], line["input_tokens"]) == ("engines", "renamed", 14)


async def test_a_model_that_is_not_served_is_refused(wire: WireStand) -> None:
    count = len(wire.upstream.requests)
    for path, sent in (("/v1/engines/other/embeddings", b""), ("/v1/classify", b'{"model":"other"}')):
        reply, _ = await ask(wire, Script(), "POST", path, sent)
        assert (reply.status, code(reply)) == (404, "model_not_found")
    assert len(wire.upstream.requests) == count


async def test_a_request_for_a_model_goes_on_to_the_next_upstream(wire: WireStand) -> None:
    script = body(b"{}", content_type=JSON)
    reply, line = await ask(wire, script, "POST", "/v1/engines/pair/embeddings", b"any body")
    assert (reply.status, line["attempts"], line["upstream"]) == (200, 2, "spare")
    assert (wire.request.path, wire.request.body) == ("/v1/engines/second/embeddings", b"any body")


@pytest.mark.parametrize(
    "path",
    ["/v1/files/../chat/completions", "/v1/files/%2e%2e/models", "/v1/files/..%2fmodels", "/v1/files/.%5C.."],
)
async def test_a_path_does_not_lead_out_of_what_is_passed_on(wire: WireStand, path: str) -> None:
    count = len(wire.upstream.requests)
    reply, _ = await ask(wire, Script(), "GET", path)
    assert (reply.status, code(reply)) == (404, "unknown_url")
    assert len(wire.upstream.requests) == count


async def test_another_method_is_told_which_there_are(wire: WireStand) -> None:
    reply, _ = await ask(wire, Script(), "GET", "/v1/batches")
    assert (reply.status, code(reply)) == (405, "method_not_allowed")
    assert reply.headers["allow"] == "POST, OPTIONS"
    reply, _ = await ask(wire, Script(), "POST", "/v1/batches/1", b"")
    assert (reply.status, code(reply)) == (404, "unknown_url")


# === who may ===


@pytest.mark.parametrize(
    ("key", "path", "refused"),
    [
        (None, "/v1/files", "invalid_api_key"),
        ("sk-wrong", "/v1/files", "invalid_api_key"),
        ("sk-model", "/v1/files", "endpoint_not_allowed"),
        ("sk-chat", "/v1/files", "endpoint_not_allowed"),
        ("sk-named", "/v1/batches", "endpoint_not_allowed"),
        ("sk-chat", "/v1/classify", "endpoint_not_allowed"),
        ("sk-model", "/v1/engines/renamed/embeddings", "model_not_allowed"),
    ],
)
async def test_whose_rights_do_not_name_it_is_refused(
    wire: WireStand, key: str | None, path: str, refused: str
) -> None:
    count = len(wire.upstream.requests)
    reply, line = await ask(wire, Script(), "POST", path, b'{"model":"small"}', key=key)
    assert (reply.status, code(reply)) == (401 if refused == "invalid_api_key" else 403, refused)
    assert line["result"] == "refused"
    assert len(wire.upstream.requests) == count


async def test_whose_rights_name_it_may_call(wire: WireStand) -> None:
    reply, line = await ask(wire, body(b"{}", content_type=JSON), "GET", "/v1/files", key="sk-named")
    assert (reply.status, line["caller"]) == (200, "named")


async def test_it_counts_towards_limits(wire: WireStand) -> None:
    script = body(b"{}", content_type=JSON)
    reply, _ = await ask(wire, script, "GET", "/v1/files", key="sk-frugal")
    assert reply.status == 200
    reply, _ = await ask(wire, script, "GET", "/v1/files", key="sk-frugal")
    assert (reply.status, code(reply)) == (429, "limit_exceeded")


# === what comes back ===


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (JSON, b' {"a" : 1.50,\r\n "error": {"message": "kept"}}\n'),
        (JSON, b'"text"'),
        (JSON, b"[1, 2"),
        (JSON, b"no JSON at all"),
        (JSON, b'{"id":1}{"id":2}'),
        ("application/jsonl", b'{"usage":{"prompt_tokens":1}}\n{}\n'),
        ("text/html", b"<html>"),
        ("application/octet-stream", bytes(range(256))),
        ("text/event-stream", b"event: run.created\r\ndata: {}\r\n\r\n: hm\n\nevent: done\ndata: [DONE]\n\n"),
        ("text/event-stream", b"event: error\ndata: {\"error\": {\"message\": \"x\"}}\n\ndata: more\n\n"),
        ("text/event-stream", b"data: 1\n\ndata: 2\n\n"),
    ],
)  # fmt: skip
async def test_a_reply_of_any_form_is_forwarded_to_the_byte(
    wire: WireStand, kind: str, content: bytes
) -> None:
    cut = len(content) // 2
    script = body(content[:cut], content[cut:], content_type=kind, status=201)
    reply, line = await ask(wire, script, "POST", "/v1/files", b"{}")
    assert (reply.status, reply.body) == (201, content)
    assert reply.headers["content-type"] == kind
    assert line["result"] == "ok"
    assert "fault" not in line


async def test_usage_is_read_wherever_it_is(wire: WireStand) -> None:
    counted = {"input_tokens": 14, "output_tokens": 7}
    for script in (
        body(dumps({"usage": USAGE}), content_type=JSON),
        body(event({"type": "x"}), event({"usage": USAGE}), b"data: [DONE]\n\n"),
    ):
        reply, line = await ask(wire, script, "POST", "/v1/files", b"{}")
        assert reply.body == b"".join(step for step in script.body if isinstance(step, bytes)), (
            "it has no price"
        )
        assert {name: line.get(name) for name in counted} == counted
        assert "cost" not in line


async def test_events_come_one_by_one(wire: WireStand) -> None:
    first = b"event: x\ndata: 1\n\n"
    script = body(first, 30.0, b"data: 2\n\n")
    async with asking(wire, script, "POST", "/v1/files", b"{}") as (connection, request_id):
        await connection.head()
        assert await connection.chunk() == first
    line = await wire.gateway.wait_request(request_id=request_id)
    assert line["result"] == "client_left"


@pytest.mark.parametrize("status", [200, 204])
async def test_no_content_is_a_reply(wire: WireStand, status: int) -> None:
    head = (
        b"HTTP/1.1 204 No Content\r\n\r\n"
        if status == 204
        else b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
    )
    async with asking(wire, raw(head), "DELETE", "/v1/files/a") as (connection, request_id):
        reply = await connection.head()
        assert (reply.status, reply.headers.get("content-length", "0")) == (status, "0")
    assert (await wire.gateway.wait_request(request_id=request_id))["result"] == "ok"


async def test_an_error_of_the_upstream_is_the_clients(wire: WireStand) -> None:
    error = dumps({"error": {"message": "No such file", "type": "invalid_request_error", "code": "nope"}})
    for status in (404, 409, 422, 500):
        script = body(error, content_type=JSON, status=status)
        reply, line = await ask(wire, script, "GET", "/v1/files/a")
        assert (reply.status, reply.body) == (status, error)
        assert line["attempts"] == 1


async def test_a_part_of_a_file_comes_where_its_headers_are_passed_on(wire: WireStand) -> None:
    head = b"HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 2-4/9\r\ncontent-length: 3\r\n"
    script = raw(head + b"content-type: application/pdf\r\n\r\nabc")
    reply, _ = await ask(wire, script, "GET", "/v1/files/a/content", headers=("range: bytes=2-4",))
    assert sent_up(wire)["range"] == ["bytes=2-4"]
    assert (reply.status, reply.body) == (206, b"abc")
    assert reply.headers["content-range"] == "bytes 2-4/9"


async def test_a_redirect_does_not_lead_around_the_gateway(wire: WireStand) -> None:
    head = b"HTTP/1.1 302 Found\r\nlocation: http://inside/x\r\ncontent-length: 0\r\n\r\n"
    reply, _ = await ask(wire, raw(head), "GET", "/v1/files/a/content")
    assert (reply.status, code(reply)) == (502, "status")
    assert "location" not in reply.headers


async def test_a_reply_that_breaks_off_cuts_the_client(wire: WireStand) -> None:
    part = b"HTTP/1.1 200 OK\r\ncontent-type: application/pdf\r\ncontent-length: 10\r\n\r\nabc"
    async with asking(wire, raw(part), "GET", "/v1/files/a/content") as (connection, request_id):
        reply = await connection.reply()
    assert (reply.body, reply.ended) == (b"abc", "eof")
    line = await wire.gateway.wait_request(request_id=request_id)
    assert (line["result"], line["fault"]) == ("failed", "truncated")


async def test_its_deadlines_are_the_upstreams(wire: WireStand) -> None:
    script = Script(faults=(Fault(action="stall", at="before_head"),))
    reply, line = await ask(wire, script, "GET", "/custom/thing")
    assert (reply.status, code(reply)) == (504, "first_byte_timeout")
    assert line["fault"] == "first_byte_timeout"


# === what is sent twice ===


@pytest.mark.parametrize("method", METHODS)
async def test_only_what_may_be_done_twice_takes_a_connection_that_was_idle(
    wire: WireStand, method: str
) -> None:
    sent = None if method in ("GET", "DELETE") else b"{}"
    connections = []
    for each in ("GET", method):
        script = body(b"{}", content_type=JSON)
        reply, _ = await ask(wire, script, each, "/v1/files/a", sent if each == method else None)
        assert reply.status == 200
        connections.append(wire.request.connection)
    # Whether an upstream has got what was written to a dead connection cannot be known.
    once = method in ("POST", "PATCH")
    assert (connections[0] != connections[1]) == once


async def test_a_post_whose_connection_dies_is_sent_once(wire: WireStand) -> None:
    count = len(wire.upstream.requests)
    reply, line = await ask(wire, raw("reset"), "POST", "/v1/batches", b"{}")
    assert (reply.status, code(reply)) == (502, "reset")
    assert len(wire.upstream.requests) == count + 1
    assert line["attempts"] == 1


async def test_metrics_name_what_the_configuration_does(wire: WireStand) -> None:
    await ask(wire, body(b"{}", content_type=JSON), "GET", "/v1/files/some-secret-id")
    metrics = await wire.gateway.metrics()
    assert metrics.value("sluicegate_requests_total", endpoint="files", status="200")
    assert "some-secret-id" not in metrics.text


async def test_many_at_once_get_their_own(wire: WireStand) -> None:
    wire.upstream.script = Script()

    async def one(number: int) -> None:
        step = {"base64": base64.b64encode(b"reply %d" % number).decode()}
        sent = json.dumps({"mock": {"body": [step], "content_type": "text/plain"}}).encode()
        async with RawConnection(*wire.address) as connection:
            lines = ("POST /v1/files HTTP/1.1", "host: a", "authorization: Bearer sk-any")
            head = "\r\n".join([*lines, f"content-length: {len(sent)}", "", ""]).encode()
            await connection.send(head + sent)
            assert (await connection.reply()).body == f"reply {number}".encode()

    await asyncio.gather(*map(one, range(24)))
