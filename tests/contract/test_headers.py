"""Headers cross the gateway where they are named, by it or by an upstream's configuration, and else not."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from harness.wire_stand import (
    DONE,
    MODEL,
    REPORTED,
    WireStand,
    assert_billed_as_reported,
    chunk,
    completion,
    dumps,
    event,
    priced,
    request_body,
    sent_up,
    usage_chunk,
    wire_stand,
)
from sluicegate.testing import Script, raw

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
STREAM = event(chunk("a")) + event(chunk(finish="stop")) + event(usage_chunk(REPORTED)) + DONE
DOCUMENT = dumps(completion(usage=REPORTED))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    config = {
        "upstreams": {
            "keyed": {"api_key": "sk-ours", "headers": {"x-org": "ours"}},
            "passing": {"forward_authorization": True},
            "naming": {"forward_headers": ["X-Tenant", "x-latin"], "reply_headers": ["X-Region"]},
        },
        "models": {name: f"{name}/{MODEL}" for name in ("keyed", "passing", "naming")},
    }
    async with wire_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
        yield stand


# === the request's headers ===


@pytest.mark.parametrize(
    "header",
    [
        "connection: keep-alive",
        "keep-alive: timeout=5",
        "proxy-authorization: Basic c2VjcmV0",
        "proxy-authenticate: Basic",
        "proxy-connection: keep-alive",
        "te: trailers",
        "trailer: x-checksum",
        "upgrade: h2c",
    ],
)
async def test_a_hop_by_hop_header_does_not_go_up(wire: WireStand, header: str) -> None:
    await wire.stream(Script(tokens=1), headers=(header,))
    assert header.partition(":")[0] not in sent_up(wire)


async def test_what_the_connection_header_names_does_not_either(wire: WireStand) -> None:
    await wire.stream(
        Script(tokens=1),
        model="naming",
        headers=("connection: X-Latin, close", "x-latin: 1", "x-tenant: 2"),
    )
    headers = sent_up(wire)
    assert "x-latin" not in headers
    assert headers["x-tenant"] == ["2"]


@pytest.mark.parametrize("header", ["authorization: Bearer sk-theirs", "x-api-key: sk-theirs", "cookie: a=b"])
async def test_a_clients_credentials_do_not_go_up(wire: WireStand, header: str) -> None:
    await wire.stream(Script(tokens=1), headers=(header,))
    assert "sk-theirs" not in str(wire.request.headers)
    assert header.partition(":")[0] not in sent_up(wire)


async def test_the_configured_ones_do_in_their_place(wire: WireStand) -> None:
    await wire.stream(
        Script(tokens=1), model="keyed", headers=("authorization: Bearer sk-theirs", "X-Org: theirs")
    )
    headers = sent_up(wire)
    assert headers["authorization"] == ["Bearer sk-ours"]
    assert headers["x-org"] == ["ours"]


async def test_authorization_goes_up_where_the_upstream_says_so(wire: WireStand) -> None:
    await wire.stream(Script(tokens=1), model="passing", headers=("authorization: Bearer sk-theirs",))
    assert sent_up(wire)["authorization"] == ["Bearer sk-theirs"]


USUAL_UP = {
    "content negotiation": "accept: text/event-stream",
    "language": "accept-language: de",
    "idempotency": "idempotency-key: i-1",
    "client": "user-agent: test/1",
    "trace": "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "trace state": "tracestate: a=b",
    "baggage": "baggage: a=b",
    "Zipkin": "b3: 0",
    "Zipkin's many": "x-b3-sampled: 0",
    "OpenAI": "openai-beta: assistants=v2",
    "OpenAI's SDKs": "x-stainless-lang: python",
}

NEVER_UP = {
    "cookie": "cookie: session=secret",
    "other credentials": "x-api-key: secret",
    "a proxy's token": "x-forwarded-access-token: secret",
    "addresses": "x-forwarded-for: 10.0.0.1",
    "where it came from": "referer: https://intra.example",
    "whose account": "openai-organization: org-theirs",
    "project": "openai-project: proj-theirs",
    "anything else": "x-anything: 1",
}


@pytest.mark.parametrize("header", USUAL_UP.values(), ids=USUAL_UP.keys())
async def test_the_usual_ones_go_up(wire: WireStand, header: str) -> None:
    await wire.stream(Script(tokens=1), headers=(header,))
    name, _, value = header.partition(": ")
    assert sent_up(wire)[name] == [value]


@pytest.mark.parametrize("header", NEVER_UP.values(), ids=NEVER_UP.keys())
@pytest.mark.parametrize("model", [MODEL, "keyed", "naming"])
async def test_all_others_do_not(wire: WireStand, header: str, model: str) -> None:
    await wire.stream(Script(tokens=1), model=model, headers=(header, "authorization: Bearer sk-theirs"))
    assert header.partition(":")[0] not in sent_up(wire)


async def test_a_client_chooses_the_account_where_the_key_is_its_own(wire: WireStand) -> None:
    account = ("openai-organization: org-theirs", "openai-project: proj-theirs")
    await wire.stream(
        Script(tokens=1), model="passing", headers=(*account, "authorization: Bearer sk-theirs")
    )
    assert sent_up(wire)["openai-organization"] == ["org-theirs"]
    assert sent_up(wire)["openai-project"] == ["proj-theirs"]


async def test_those_that_the_configuration_names_go_up(wire: WireStand) -> None:
    sent = ("x-tenant: a", "X-Tenant: b", "x-latin: \xe9", "x-other: 1")
    await wire.stream(Script(tokens=1), model="naming", headers=sent)
    headers = sent_up(wire)
    assert headers["x-tenant"] == ["a", "b"]
    assert headers["x-latin"] == ["\xe9"]
    assert "x-other" not in headers
    assert headers["host"] == [f"{wire.upstream.host}:{wire.upstream.port}"]


async def test_the_length_is_that_of_the_body_as_it_is_sent(wire: WireStand) -> None:
    await wire.stream(Script(tokens=1))
    headers = sent_up(wire)
    assert headers["content-length"] == [str(len(wire.request.body))]
    assert "transfer-encoding" not in headers
    assert len(wire.request.body) > len(request_body(stream=True)), "it is not the client's"


@pytest.mark.parametrize("accepted", [(), ("accept-encoding: gzip, br, zstd",)], ids=["nothing", "all"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "no stream"])
async def test_upstreams_are_asked_not_to_compress(
    wire: WireStand, accepted: tuple[str, ...], stream: bool
) -> None:
    await wire.ask(Script(tokens=1), headers=accepted, stream=stream)
    assert sent_up(wire)["accept-encoding"] == ["identity"]


# === the reply's headers ===


async def test_hop_by_hop_headers_do_not_come_down(wire: WireStand) -> None:
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: x\r\nconnection: close, cf-ray\r\ncf-ray: 1\r\n"
        b"keep-alive: timeout=5\r\nproxy-authenticate: Basic\r\ntrailer: x-sum\r\nupgrade: h2c\r\n"
        b"set-cookie: session=secret\r\nserver: uvicorn\r\nalt-svc: h3\r\nretry-after: 2\r\n\r\n"
    )
    exchange = await wire.ask(raw(head + STREAM), **ASKED)
    headers = exchange.reply.headers
    dropped = {"cf-ray", "keep-alive", "proxy-authenticate", "trailer", "upgrade", "set-cookie", "alt-svc"}
    assert not dropped & headers.keys()
    assert headers["retry-after"] == "2"
    assert headers.get("server") != "uvicorn"
    assert headers.get("connection") != "close, x-private"
    assert exchange.body == priced(STREAM)


USUAL_DOWN = {
    "content-language": "de",
    "openai-processing-ms": "12",
    "openai-version": "2020-10-01",
    "x-ratelimit-remaining-requests": "7",
    "anthropic-ratelimit-tokens-reset": "2030-01-01T00:00:00Z",
    "retry-after": "3",
    "retry-after-ms": "3000",
    "x-should-retry": "false",
    "request-id": "req_1",
    "apim-request-id": "a1",
}

NEVER_DOWN = {
    "set-cookie": "__cf_bm=secret",
    "strict-transport-security": "max-age=31536000",
    "access-control-allow-origin": "*",
    "access-control-expose-headers": "x",
    "openai-organization": "org-ours",
    "openai-project": "proj-ours",
    "anthropic-organization-id": "org-ours",
    "authorization": "Bearer secret",
    "alt-svc": "h3",
    "via": "1.1 inside",
    "x-powered-by": "inside",
    "x-region": "inside-1",
    "x-anything": "1",
}


@pytest.mark.parametrize("members", [ASKED, {}], ids=["stream", "no stream"])
@pytest.mark.parametrize("status", [200, 429])
async def test_the_usual_ones_do_and_all_others_do_not(
    wire: WireStand, members: dict[str, Any], status: int
) -> None:
    script = Script(tokens=1, status=status, headers=USUAL_DOWN | NEVER_DOWN)
    headers = (await wire.ask(script, **members)).reply.headers
    assert USUAL_DOWN.items() <= headers.items()
    assert not NEVER_DOWN.keys() & headers.keys()


@pytest.mark.parametrize("status", [200, 429])
async def test_those_that_the_configuration_names_come_down(wire: WireStand, status: int) -> None:
    script = Script(tokens=1, status=status, headers=NEVER_DOWN)
    headers = (await wire.ask(script, model="naming")).reply.headers
    assert headers["x-region"] == "inside-1"
    assert not (NEVER_DOWN.keys() - {"x-region"}) & headers.keys()


async def test_a_stream_is_not_to_be_cached_or_buffered(wire: WireStand) -> None:
    head = (
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: max-age=60\r\n"
        "x-accel-buffering: yes\r\n\r\n"
    )
    async with wire.connected(raw(head.encode() + STREAM), stream=True) as caller:
        text = (await caller.connection.reader.readuntil(b"\r\n\r\n")).decode().lower()
    assert re.findall(r"cache-control: (.*)\r", text) == ["no-cache"]
    assert re.findall(r"x-accel-buffering: (.*)\r", text) == ["no"]
    assert re.findall(r"content-type: (.*)\r", text) == ["text/event-stream; charset=utf-8"]


@pytest.mark.parametrize("transfer", ["length", "chunked", "close"])
async def test_a_length_is_never_forwarded_with_a_body_that_changes(wire: WireStand, transfer: Any) -> None:
    """Kept, it cut streams after their first chunk elsewhere."""
    stream = await wire.ask(Script(body=(STREAM,), transfer=transfer), **ASKED)
    assert stream.body == priced(STREAM)
    document = await wire.ask(Script(body=(DOCUMENT,), transfer=transfer, content_type="application/json"))
    assert document.body == priced(DOCUMENT)
    for exchange in (stream, document):
        assert exchange.reply.ended == "complete"
        if "content-length" in exchange.reply.headers:
            assert int(exchange.reply.headers["content-length"]) == len(exchange.body)
        assert_billed_as_reported(exchange.line)
