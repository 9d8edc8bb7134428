"""Errors before and after the first byte: which shape, which words, and what is never in them."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

import sse_reference
from harness.wire_stand import (
    DONE,
    EMBEDDINGS,
    MODEL,
    Exchange,
    WireStand,
    chunk,
    completion,
    dumps,
    event,
    request_body,
    wire_stand,
)
from raw_http import RawConnection, RawReply
from sluicegate.testing import Fault, Script, ScriptedUpstream, Step, body, raw

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLIENT_KEY = "sk-client-4f1c9e"
UPSTREAM_KEY = "sk-upstream-77aa01"
HEADER_SECRET = "header-secret-5512"
SECRETS = (CLIENT_KEY, UPSTREAM_KEY, HEADER_SECRET, "127.0.0.1", "Traceback", ".rs", ".py")

TOKEN = event(chunk("a"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    async with ScriptedUpstream() as gone:
        away = gone.base_url
    config = {
        "keys": [{"name": "team", "key": CLIENT_KEY}],
        "upstreams": {
            "local": {"api_key": UPSTREAM_KEY, "headers": {"x-secret": HEADER_SECRET}},
            "away": {"base_url": away},
            "client-pays": {"forward_authorization": True},
        },
        "models": {"away": f"away/{MODEL}", "client-pays": f"client-pays/{MODEL}"},
    }
    async with wire_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
        yield stand


AUTHORIZED = (f"authorization: Bearer {CLIENT_KEY}",)


async def ask(wire: WireStand, script: Script, **options: Any) -> Exchange:
    options = {"headers": AUTHORIZED} | options
    exchange = await wire.ask(script, **options)
    assert_no_secret(exchange)
    return exchange


def assert_no_secret(exchange: Exchange) -> None:
    shown = [exchange.body.decode("utf-8", "replace"), str(exchange.reply.headers), json.dumps(exchange.line)]
    assert not [secret for secret in SECRETS for text in shown if secret in text]


def error_of(reply: RawReply) -> dict[str, Any]:
    """The error in an error reply, which must have its whole shape."""
    assert reply.headers["content-type"] == "application/json"
    document = reply.json()
    assert set(document) == {"error"}
    error: dict[str, Any] = document["error"]
    assert set(error) == {"message", "type", "code", "param"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)
    return error


# === before the first byte: the gateway's own ===


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"", 400, "invalid_body"),
        (b"not json", 400, "invalid_body"),
        (b'{"model":"small",}', 400, "invalid_body"),
        (b'{"model":"small"', 400, "invalid_body"),
        (b'{"model":"small"} x', 400, "invalid_body"),
        (b'["small"]', 400, "invalid_body"),
        (b"null", 400, "invalid_body"),
        (b'{"model":"\xff"}', 400, "invalid_body"),
        (b'\xef\xbb\xbf{"model":"small"}', 400, "invalid_body"),
        (b'{"model":"small","stream":1}', 400, "invalid_body"),
        (b'{"model":"small","x":' + b"[" * 100_000, 400, "invalid_body"),
        (b"{}", 400, "missing_model"),
        (b'{"model":null}', 400, "missing_model"),
        (b'{"model":""}', 400, "missing_model"),
        (b'{"model":7}', 400, "missing_model"),
        (b'{"model":"unknown"}', 404, "model_not_found"),
    ],
    ids=lambda value: repr(value[:24]) if isinstance(value, bytes) else "",
)
async def test_a_bad_request_is_told_and_no_upstream_is_asked(
    wire: WireStand, sent: bytes, status: int, code: str
) -> None:
    count = len(wire.upstream.requests)
    exchange = await ask(wire, Script(), body=sent)
    assert exchange.reply.status == status
    error = error_of(exchange.reply)
    assert (error["type"], error["code"]) == ("invalid_request_error", code)
    assert (exchange.line["status"], exchange.line["result"]) == (status, "refused")
    assert len(wire.upstream.requests) == count


async def test_an_invalid_body_is_told_with_its_place(wire: WireStand) -> None:
    exchange = await ask(wire, Script(), body=b'{"model":"small","messages":[}')
    assert "29" in error_of(exchange.reply)["message"]


async def test_an_unknown_model_is_named(wire: WireStand) -> None:
    exchange = await ask(wire, Script(), body=b'{"model":"gpt-\\u00e9"}')
    error = error_of(exchange.reply)
    assert "gpt-é" in error["message"]
    assert error["param"] == "model"
    assert exchange.line["requested_model"] == "gpt-é"


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ("authorization: Bearer wrong",),
        (f"authorization: Basic {CLIENT_KEY}",),
        ("authorization: Bearer",),
    ],
    ids=["none", "wrong", "another scheme", "empty"],
)
async def test_a_client_without_a_key_is_a_401(wire: WireStand, headers: tuple[str, ...]) -> None:
    count = len(wire.upstream.requests)
    exchange = await ask(wire, Script(), headers=headers)
    assert exchange.reply.status == 401
    assert exchange.reply.headers["www-authenticate"] == "Bearer"
    assert error_of(exchange.reply)["code"] == "invalid_api_key"
    assert "wrong" not in error_of(exchange.reply)["message"]
    assert len(wire.upstream.requests) == count


async def raw_ask(wire: WireStand, method: str, target: str, sent: bytes = b"") -> RawReply:
    async with RawConnection(*wire.address) as connection:
        head = (
            f"{method} {target} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(sent)}\r\n{AUTHORIZED[0]}\r\n\r\n"
        )
        await connection.send(head.encode() + sent)
        return await connection.reply()


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
async def test_another_method_is_a_405_that_says_which(wire: WireStand, method: str) -> None:
    reply = await raw_ask(wire, method, "/v1/chat/completions")
    assert (reply.status, reply.headers["allow"]) == (405, "POST, OPTIONS")
    assert error_of(reply)["code"] == "method_not_allowed"


@pytest.mark.parametrize("target", ["/", "/v1", "/v1/chat/completions/", "/v1/nothing", "/chat/completions"])
async def test_another_url_is_a_404_that_says_which(wire: WireStand, target: str) -> None:
    reply = await raw_ask(wire, "POST", target, request_body())
    assert reply.status == 404
    assert target in error_of(reply)["message"]
    assert error_of(reply)["code"] == "unknown_url"


# === before the first byte: the upstream's ===


async def test_an_upstreams_own_error_is_passed_on_byte_for_byte(wire: WireStand) -> None:
    sent = b'{ "error" : {"message":"Bad \\u00e9.","type":"x","param":"messages","code":"y","more":[1.0]} }\n'
    for status in (400, 404, 408, 413, 422, 500, 503, 529):
        exchange = await ask(wire, body(sent, status=status, content_type="application/json; charset=utf-8"))
        assert exchange.reply.status == status
        assert exchange.body == sent
        assert exchange.reply.headers["content-type"].startswith("application/json")
        assert exchange.line["code"] == "y"
        assert exchange.line["fault"] == "status"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "no stream"])
async def test_a_429_keeps_its_retry_after_and_its_limits(wire: WireStand, stream: bool) -> None:
    headers = {
        "retry-after": "7",
        "x-ratelimit-remaining-tokens": "0",
        "content-length": "3",
        "connection": "close",
    }
    script = Script(
        status=429, headers={name: headers[name] for name in ("retry-after", "x-ratelimit-remaining-tokens")}
    )
    exchange = await ask(wire, script, stream=stream)
    assert exchange.reply.status == 429
    assert exchange.reply.headers["retry-after"] == "7"
    assert exchange.reply.headers["x-ratelimit-remaining-tokens"] == "0"
    assert error_of(exchange.reply)["code"] == "rate_limit_exceeded"


OTHERS = {
    "flat": (b'{"object":"error","message":"Too long.","code":400}', "Too long."),
    "a string": (b'{"error":"Too long."}', "Too long."),
    "FastAPI": (b'{"detail":"Too long."}', "Too long."),
    "FastAPI's list": (b'{"detail":[{"loc":["body"],"msg":"Too long."}]}', "Too long."),
    "llms.py": (b'{"responseStatus":{"errorCode":"Error","message":"Too long."}}', "Too long."),
    "a list of errors": (b'{"status":400,"failures":[{"code":1},{"detail":"Too long."}]}', "Too long."),
    "no message": (b'{"status":{"code":[{"a":1}]}}', "upstream 'local'"),
    "HTML": (b"<html><h1>502 Bad Gateway</h1><p>nginx/1.25 at 127.0.0.1</p></html>", "upstream 'local'"),
    "text": (b"upstream connect error at 127.0.0.1:8000", "upstream 'local'"),
    "nothing": (b"", "upstream 'local'"),
    "half of an object": (b'{"error":{"message":"Too lo', "upstream 'local'"),
    "not UTF-8": (b"\xff\xfe", "upstream 'local'"),
    "an array": (b"[1]", "upstream 'local'"),
}


@pytest.mark.parametrize(("sent", "said"), OTHERS.values(), ids=OTHERS.keys())
@pytest.mark.parametrize("status", [400, 502])
async def test_any_other_error_body_becomes_an_error_in_the_clients_protocol(
    wire: WireStand, sent: bytes, said: str, status: int
) -> None:
    exchange = await ask(wire, body(sent, status=status, content_type="text/html"), stream=True)
    assert exchange.reply.status == status
    error = error_of(exchange.reply)
    assert said.lower() in error["message"].lower()
    assert "<" not in error["message"]
    assert error["type"] == "upstream_error"


@pytest.mark.parametrize("status", [301, 304, 307])
async def test_a_redirect_is_not_followed_and_not_passed_on(wire: WireStand, status: int) -> None:
    count = len(wire.upstream.requests)
    exchange = await ask(
        wire, Script(status=status, headers={"location": "http://127.0.0.1:1/v1"}, body=(b"x",))
    )
    assert exchange.reply.status == 502
    assert error_of(exchange.reply)["code"] == "status"
    assert len(wire.upstream.requests) == count + 1


@pytest.mark.parametrize("status", [401, 402, 403])
async def test_an_upstream_that_refuses_the_gateways_account_is_not_the_clients_fault(
    wire: WireStand, status: int
) -> None:
    """And such bodies quote parts of keys."""
    error = {
        "message": f"Incorrect API key provided: {UPSTREAM_KEY[:12]}**",
        "type": "x",
        "code": "y",
        "param": None,
    }
    exchange = await ask(wire, Script(status=status, error=error))
    assert exchange.reply.status == 502
    assert error_of(exchange.reply)["code"] == "upstream_authentication"
    assert UPSTREAM_KEY[:9] not in exchange.body.decode()


async def test_one_that_refuses_the_clients_own_key_is(wire: WireStand) -> None:
    error = {"message": "Incorrect API key provided.", "type": "x", "code": "invalid_api_key", "param": None}
    exchange = await ask(wire, Script(status=401, error=error), model="client-pays")
    assert (exchange.reply.status, exchange.reply.json()) == (401, {"error": error})


async def test_a_huge_error_body_is_bounded(wire: WireStand) -> None:
    exchange = await ask(wire, body(b"x" * 1_000_000, b"y" * 10_000_000, status=500))
    assert exchange.reply.status == 500
    assert len(exchange.body) < 4_000


SILENT = {
    "connect": (None, "connect", 502),
    "reset": (Script(faults=(Fault(action="reset", at="before_head"),)), "reset", 502),
    "empty": (body(b""), "empty", 502),
    "truncated": (body(dumps(completion())[:-1], "reset"), "truncated", 502),
    "protocol": (raw(b"220 smtp.example ESMTP\r\n"), "protocol", 502),
    "no reply": (body(b"Not here.", content_type="text/plain"), "protocol", 502),
    "decode": (Script(body=(b"no gzip",), headers={"content-encoding": "gzip"}), "decode", 502),
    "unknown coding": (Script(body=(b"?",), headers={"content-encoding": "x-unknown"}), "decode", 502),
}


@pytest.mark.parametrize(("script", "code", "status"), SILENT.values(), ids=SILENT.keys())
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "no stream"])
async def test_an_upstream_that_failed_is_named_with_what_it_did(
    wire: WireStand, script: Script | None, code: str, status: int, stream: bool
) -> None:
    model = MODEL if script else "away"
    exchange = await ask(wire, script or Script(), model=model, stream=stream)
    assert exchange.reply.status == status
    error = error_of(exchange.reply)
    assert (error["type"], error["code"], error["param"]) == ("upstream_error", code, None)
    assert f"'{exchange.line['upstream']}'" in error["message"]
    assert re.fullmatch(r"[A-Z].*\.", error["message"])
    assert (exchange.line["fault"], exchange.line["result"]) == (code, "failed")


async def test_a_document_that_is_too_large_is_an_error(wire: WireStand) -> None:
    """64 MiB by default; it must not grow without end."""
    piece = b"x" * (1 << 20)
    exchange = await ask(wire, body(b'{"a":"', *([piece] * 66), content_type="application/json"))
    assert exchange.reply.status == 502
    assert error_of(exchange.reply)["code"] == "too_large"


# === after the first byte ===

MIDWAY: dict[str, tuple[tuple[Step, ...], str]] = {
    "the end": ((), "truncated"),
    "a reset": (("reset",), "truncated"),
    "half an event and the end": ((TOKEN[:-9],), "truncated"),
    "half an event and a reset": ((TOKEN[:-9], "reset"), "truncated"),
    "half a line end and a reset": ((TOKEN[:-1], "reset"), "truncated"),
    "an event that is too large": ((b"data: " + b"x" * (17 << 20),), "too_large"),
}


@pytest.mark.parametrize(("steps", "code"), MIDWAY.values(), ids=MIDWAY.keys())
async def test_a_stream_that_breaks_off_says_so_in_one_event(
    wire: WireStand, steps: tuple[Step, ...], code: str
) -> None:
    sent = b": ping\n\n" + TOKEN
    exchange = await ask(wire, body(sent, *steps), stream=True)
    assert exchange.reply.status == 200
    assert exchange.reply.ended == "complete"
    assert exchange.body.startswith(sent)
    *_, last = sse_reference.parse(exchange.body)
    assert last.name == ""
    error = json.loads(last.data)["error"]
    assert set(error) == {"message", "type", "code", "param"}
    assert (error["type"], error["code"], error["param"]) == ("upstream_error", code, None)
    assert "'local'" in error["message"]
    assert exchange.body.count(b'"error"') == 1
    assert b"[DONE]" not in exchange.body
    assert (exchange.line["fault"], exchange.line["result"], exchange.line["status"]) == (code, "failed", 200)


async def test_the_exact_event(wire: WireStand) -> None:
    exchange = await ask(wire, body(TOKEN, "reset"), stream=True)
    assert exchange.body == TOKEN + (
        b'data: {"error":{"message":"upstream \'local\' broke off the reply before it was complete",'
        b'"type":"upstream_error","code":"truncated","param":null}}\n\n'
    )


async def test_a_length_that_is_not_reached_is_a_stream_that_breaks_off(wire: WireStand) -> None:
    script = Script(body=(TOKEN,), transfer="length", length_excess=10)
    exchange = await ask(wire, script, stream=True)
    *_, last = sse_reference.parse(exchange.body)
    assert json.loads(last.data)["error"]["code"] == "truncated"


async def test_a_document_that_breaks_off_is_cut_and_does_not_end_regularly(wire: WireStand) -> None:
    """It has no words for what happened."""
    exchange = await ask(wire, body(b"{}\n{", "reset", content_type="application/json"))
    assert exchange.body == b"{}\n"
    assert exchange.reply.ended != "complete"
    assert exchange.line["fault"] == "truncated"


@pytest.mark.parametrize("done", [True, False], ids=["with an end mark", "without"])
async def test_an_error_of_the_upstreams_is_not_said_twice(wire: WireStand, done: bool) -> None:
    error = {"message": "Overloaded.", "type": "server_error", "code": None, "param": None}
    sent = TOKEN + event({"error": error}) + (DONE if done else b"")
    exchange = await ask(wire, body(sent), stream=True)
    assert exchange.body == sent
    assert (exchange.line["fault"], exchange.line["result"]) == ("in_band_error", "failed")


async def test_a_finish_reason_abort_is_a_failure(wire: WireStand) -> None:
    """An engine that gave up, under 200 and with `[DONE]`."""
    sent = TOKEN + event(chunk(finish="abort")) + DONE
    exchange = await ask(wire, body(sent), stream=True)
    assert exchange.body == sent
    assert (exchange.line["fault"], exchange.line["result"]) == ("in_band_error", "failed")
    assert exchange.line["finish_reason"] == "abort"


async def test_a_document_with_an_error_under_200_is_passed_on_and_is_a_failure(wire: WireStand) -> None:
    sent = b'{"error":{"message":"Overloaded.","code":529}}'
    exchange = await ask(wire, body(sent, content_type="application/json"))
    assert exchange.body == sent
    assert (exchange.line["fault"], exchange.line["result"]) == ("in_band_error", "failed")


async def test_failures_under_200_are_failures_in_the_metrics(wire: WireStand) -> None:
    before = await wire.gateway.metrics()
    for sent in (
        TOKEN,
        TOKEN + event({"error": "x"}),
        TOKEN + event(chunk(finish="abort")) + DONE,
    ):
        await ask(wire, body(sent), stream=True)
    name = "sluicegate_requests_total"

    def gained(metrics: Any, **labels: str) -> float:
        return float(metrics.value(name, **labels) or 0) - float(before.value(name, **labels) or 0)

    after = await wire.gateway.wait_metrics(
        lambda metrics: gained(metrics, status="200", result="failed") == 3
    )
    assert gained(after, status="200", result="ok") == 0
    faults = "sluicegate_faults_total"
    in_band = (after.value(faults, kind="in_band_error") or 0) - (
        before.value(faults, kind="in_band_error") or 0
    )
    assert in_band == 2


async def test_embeddings_have_the_same_errors(wire: WireStand) -> None:
    exchange = await ask(
        wire,
        Script(faults=(Fault(action="close", at="before_head"),)),
        path=EMBEDDINGS,
        body=dumps({"model": MODEL, "input": "x"}),
    )
    assert exchange.reply.status == 502
    assert error_of(exchange.reply)["code"] == "reset"


async def test_no_secret_is_anywhere(wire: WireStand) -> None:
    """Last in this file: after all the errors above."""
    assert not [secret for secret in SECRETS[:3] if secret in wire.gateway.transcript()]
