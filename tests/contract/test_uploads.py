"""Forms: sent on as they come, with the model's name replaced in place."""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
import pytest_asyncio

from harness.wire_stand import MODEL, Exchange, WireStand, sent_up, wire_stand
from raw_http import RawConnection
from sluicegate.testing import Fault, Script, UsageScript, raw
from sluicegate.testing.forms import Part, parts_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

TRANSCRIPTIONS = "/v1/audio/transcriptions"
FORMS = {
    TRANSCRIPTIONS: ("transcriptions", {}, "file"),
    "/v1/audio/translations": ("translations", {}, "file"),
    "/v1/images/edits": ("image_edits", {"prompt": "a boat"}, "image"),
    "/v1/images/variations": ("image_variations", {}, "image"),
}
BOUNDARY = "----b0undary"
TYPE = f"content-type: multipart/form-data; boundary={BOUNDARY}"
KIB, MIB = 1 << 10, 1 << 20
HELD = 64 * KIB
LIMIT = 4 * MIB
AUDIO = bytes(range(256)) * 8
PATIENCE = 20.0


def field(name: str, value: str) -> bytes:
    head = f'Content-Disposition: form-data; name="{name}"'
    return f"--{BOUNDARY}\r\n{head}\r\n\r\n{value}\r\n".encode()


def file(content: bytes = AUDIO, name: str = "file") -> bytes:
    head = f'Content-Disposition: form-data; name="{name}"; filename="a.wav"\r\nContent-Type: audio/wav'
    return f"--{BOUNDARY}\r\n{head}\r\n\r\n".encode() + content + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def large(size: int) -> bytes:
    """Content in which no two blocks are the same."""
    return b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(size // 32))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WireStand]:
    config = {
        "server": {"max_body_bytes": LIMIT, "bounds": {"body_pause_seconds": 1.0}},
        "upstreams": {
            "keyed": {"api_key": "sk-ours"},
            "spare": {},
            "hasty": {"deadlines": {"first_byte": 0.5}},
        },
        "models": {
            "renamed": "keyed/a-rather-longer-name",
            "pair": [f"local/{MODEL}", "spare/second"],
            "hasty": f"hasty/{MODEL}",
        },
    }
    async with wire_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
        yield stand


def parts(wire: WireStand) -> list[Part]:
    """The form that the upstream got."""
    found = parts_of(wire.request.request)
    assert found is not None, wire.request.body[-200:]
    return found


async def upload(wire: WireStand, script: Script, *pieces: bytes, path: str = TRANSCRIPTIONS) -> Exchange:
    return await wire.ask(script, path=path, headers=(TYPE,), body=form(*pieces))


@contextlib.asynccontextmanager
async def sending(
    wire: WireStand, script: Script, request_id: str, *, length: int | None = None
) -> AsyncIterator[RawConnection]:
    """A client that has sent the head of a form; chunked, where its length is not given."""
    wire.upstream.script = script
    framing = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    async with RawConnection(*wire.address) as connection:
        lines = (f"POST {TRANSCRIPTIONS} HTTP/1.1", "host: a", TYPE, framing, f"x-request-id: {request_id}")
        await connection.send("\r\n".join([*lines, "", ""]).encode())
        yield connection


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


# === what goes up ===


@pytest.mark.parametrize("path", FORMS)
async def test_each_form_is_forwarded_to_the_byte(wire: WireStand, path: str) -> None:
    name, fields, kind = FORMS[path]
    sent = form(field("model", MODEL), *(field(*pair) for pair in fields.items()), file(name=kind))
    exchange = await wire.ask(Script(), path=path, headers=(TYPE,), body=sent)
    assert exchange.reply.status == 200
    assert (wire.request.path, wire.request.body) == (path, sent)
    assert sent_up(wire)["content-length"] == [str(len(sent))]
    assert (exchange.line["endpoint"], exchange.line["model"]) == (name, MODEL)


@pytest.mark.parametrize("size", [0, 1, HELD - 1, HELD, HELD + 1, 3 * MIB])
@pytest.mark.parametrize("first", [True, False], ids=["model-first", "file-first"])
async def test_the_model_is_renamed_wherever_it_stands(wire: WireStand, size: int, first: bool) -> None:
    content = large(size)
    named, told = field("model", "renamed"), field("language", "en")
    pieces = (named, told, file(content)) if first else (told, file(content), named)
    exchange = await upload(wire, Script(), *pieces)
    assert exchange.reply.status == 200, exchange.body
    got = {part.name: part.content for part in parts(wire)}
    assert got == {"model": b"a-rather-longer-name", "language": b"en", "file": content}
    assert sent_up(wire)["authorization"] == ["Bearer sk-ours"]
    changed = form(*pieces).replace(b"\r\n\r\nrenamed\r\n", b"\r\n\r\na-rather-longer-name\r\n")
    assert wire.request.body == changed


async def test_a_form_without_a_length_is_sent_on_without_one(wire: WireStand) -> None:
    sent = form(field("model", MODEL), file(large(MIB)))
    async with sending(wire, Script(), "chunked-1") as client:
        for at in range(0, len(sent), 50_000):
            await client.send(chunk(sent[at : at + 50_000]))
        await client.send(b"0\r\n\r\n")
        reply = await client.reply()
    assert reply.status == 200
    assert wire.request.body == sent
    assert sent_up(wire)["transfer-encoding"] == ["chunked"]


async def test_json_goes_to_an_endpoint_of_forms_too(wire: WireStand) -> None:
    asked = {"model": MODEL, "prompt": "a boat", "image": {"file_id": "f"}}
    exchange = await wire.ask(
        Script(),
        path="/v1/images/edits",
        headers=("content-type: application/json",),
        body=json.dumps(asked).encode(),
    )
    assert exchange.reply.status == 200
    assert wire.request.json() == asked


# === replies ===


@pytest.mark.parametrize("kind", ["text", "srt", "vtt"])
async def test_text_is_forwarded_as_it_is(wire: WireStand, kind: str) -> None:
    script = Script(text="one two [Music]")
    exchange = await upload(wire, script, field("model", MODEL), field("response_format", kind), file())
    assert b"[Music]" in exchange.body
    assert exchange.reply.headers["content-type"].startswith("text/")
    assert exchange.line["result"] == "ok"


async def test_silence_is_a_text(wire: WireStand) -> None:
    silent = raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 0\r\n\r\n")
    exchange = await upload(wire, silent, field("model", MODEL), file())
    assert (exchange.reply.status, exchange.body) == (200, b"")
    assert exchange.line["result"] == "ok"


async def test_a_transcription_is_billed_by_its_tokens(wire: WireStand) -> None:
    script = Script(tokens=10, usage=UsageScript(input_tokens=1000, input_audio_tokens=900))
    exchange = await upload(wire, script, field("model", MODEL), file())
    assert exchange.reply.json()["usage"]["cost"] == 0.00104
    assert (exchange.line["input_tokens"], exchange.line["output_tokens"]) == (1000, 10)


async def test_a_transcription_by_its_duration_is_forwarded(wire: WireStand) -> None:
    exchange = await upload(
        wire, Script(), field("model", MODEL), field("response_format", "verbose_json"), file()
    )
    assert exchange.reply.json()["usage"] == {"type": "duration", "seconds": 4}
    assert "input_tokens" not in exchange.line


async def test_a_streamed_transcription_is_events_with_a_cost(wire: WireStand) -> None:
    script = Script(tokens=10, usage=UsageScript(input_tokens=1000))
    exchange = await upload(wire, script, field("model", MODEL), file(), field("stream", "true"))
    data = [
        line.removeprefix("data: ") for line in exchange.body.decode().splitlines() if line[:5] == "data:"
    ]
    last = json.loads(data[-1])
    assert (last["type"], last["usage"]["cost"]) == ("transcript.text.done", 0.00104)
    assert exchange.line["finish_reason"] == "completed"
    assert exchange.line["time_to_first_token"] >= 0


# === the next upstream ===


@pytest.mark.parametrize("failing", [Script(status=503), Script(status=429)])
async def test_what_is_held_goes_to_the_next_upstream(wire: WireStand, failing: Script) -> None:
    wire.upstream.enqueue(failing)
    content = large(HELD // 2)
    exchange = await upload(wire, Script(), field("model", "pair"), file(content))
    assert exchange.reply.status == 200, exchange.body
    assert exchange.line["attempts"] == 2
    assert {part.name: part.content for part in parts(wire)} == {"model": b"second", "file": content}


async def test_what_is_gone_does_not(wire: WireStand) -> None:
    wire.upstream.enqueue(Script(status=503))
    exchange = await upload(wire, Script(), field("model", "pair"), file(large(MIB)))
    assert exchange.reply.status == 503
    assert exchange.line["attempts"] == 1


async def test_a_file_before_its_model_is_held_and_does(wire: WireStand) -> None:
    wire.upstream.enqueue(Script(status=503))
    exchange = await upload(wire, Script(), file(large(MIB)), field("model", "pair"))
    assert (exchange.reply.status, exchange.line["attempts"]) == (200, 2)


# === upstreams ===


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Rude:
    """A server that does with a request what a test says."""

    serve: Serve

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await self.serve(reader, writer)
        writer.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rude(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[WireStand, Rude]]:
    rude = Rude()
    async with await asyncio.start_server(rude, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        config = {
            "upstreams": {"rude": {"base_url": f"http://{host}:{port}/v1"}},
            "models": {"rude": "rude/m"},
        }
        async with wire_stand(tmp_path_factory.mktemp("rude"), config) as stand:
            yield stand, rude


async def test_an_upstream_that_answers_at_once_is_heard(rude: tuple[WireStand, Rude]) -> None:
    wire, server = rude
    error = b'{"error":{"message":"too long","type":"x","code":null,"param":null}}'
    # It takes no other request on this connection, so nobody may send one there.
    head = b"HTTP/1.1 413 No\r\ncontent-type: application/json\r\nconnection: close\r\n"
    head += b"content-length: %d\r\n\r\n" % len(error)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head + error)
        while await reader.read(65536):
            pass

    server.serve = serve
    exchange = await upload(wire, Script(), field("model", "rude"), file(large(2 * MIB)))
    assert (exchange.reply.status, exchange.reply.json()["error"]["message"]) == (413, "too long")


async def test_it_is_sent_on_before_it_is_whole(rude: tuple[WireStand, Rude]) -> None:
    wire, server = rude
    sent = form(field("model", "m"), file(large(MIB)))
    begun, came = asyncio.Event(), bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        while len(came) < len(sent):
            came.extend(await reader.read(65536))
            begun.set()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nhi")
        await writer.drain()

    server.serve = serve
    asked = form(field("model", "rude"), file(large(MIB)))
    async with sending(wire, Script(), "early-1", length=len(asked)) as client:
        await client.send(asked[: HELD + 1000])
        async with asyncio.timeout(PATIENCE):
            await begun.wait()
        await client.send(asked[HELD + 1000 :])
        reply = await client.reply()
    assert (reply.status, reply.body) == (200, b"hi")
    assert came == sent


async def test_a_client_that_leaves_takes_its_upload_with_it(rude: tuple[WireStand, Rude]) -> None:
    wire, server = rude
    sent = form(field("model", "rude"), file(large(MIB)))
    begun, ended = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(HELD)
        begun.set()
        with contextlib.suppress(ConnectionError):
            while await reader.read(65536):
                pass
        ended.set()

    server.serve = serve
    async with sending(wire, Script(), "leaves-1", length=len(sent)) as client:
        await client.send(sent[: len(sent) // 2])
        async with asyncio.timeout(PATIENCE):
            await begun.wait()
    async with asyncio.timeout(PATIENCE):
        await ended.wait()
    line = await wire.gateway.wait_request(request_id="leaves-1")
    assert (line["result"], line["status"]) == ("client_left", 499)


async def test_an_upstream_that_dies_in_the_middle_is_a_fault(rude: tuple[WireStand, Rude]) -> None:
    wire, server = rude

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(200_000)
        writer.transport.abort()

    server.serve = serve
    exchange = await upload(wire, Script(), field("model", "rude"), file(large(3 * MIB)))
    assert exchange.reply.status == 502
    assert (exchange.line["fault"], exchange.line["attempts"]) == ("reset", 1)


async def test_a_slow_client_does_not_use_up_its_upstreams_time(wire: WireStand) -> None:
    sent = form(field("model", "hasty"), file(large(HELD + 6000)))
    async with sending(wire, Script(), "hasty-1", length=len(sent)) as client:
        await client.send(sent[:-6000])
        for at in range(6000, 0, -1000):
            await asyncio.sleep(0.2)
            await client.send(sent[len(sent) - at : len(sent) - at + 1000])
        reply = await client.reply()
    assert reply.status == 200, reply.body


async def test_an_upstream_that_is_silent_behind_an_upload_is_late(wire: WireStand) -> None:
    script = Script(faults=(Fault(action="stall", at="before_head"),))
    exchange = await upload(wire, script, field("model", "hasty"), file(large(MIB)))
    assert exchange.reply.status == 504
    assert exchange.line["fault"] == "first_byte_timeout"


# === clients ===


async def test_a_client_that_stops_sending_is_told(wire: WireStand) -> None:
    sent = form(field("model", MODEL), file(large(MIB)))
    async with sending(wire, Script(), "stops-1", length=len(sent)) as client:
        await client.send(sent[: len(sent) // 2])
        reply = await client.reply()
    assert (reply.status, reply.json()["error"]["code"]) == (408, "request_timeout")
    line = await wire.gateway.wait_request(request_id="stops-1")
    assert (line["result"], line["code"]) == ("refused", "request_timeout")


@pytest.mark.parametrize("declared", [True, False])
async def test_more_than_the_limit_is_refused(wire: WireStand, declared: bool) -> None:
    sent = form(field("model", MODEL), file(large(LIMIT)))
    length = len(sent) if declared else None
    async with sending(wire, Script(), f"limit-{declared}", length=length) as client:
        with contextlib.suppress(ConnectionError):
            for at in range(0, len(sent), 500_000):
                piece = sent[at : at + 500_000]
                await client.send(piece if declared else chunk(piece))
        reply = await client.reply()
    assert (reply.status, reply.json()["error"]["code"]) == (413, "request_too_large")


# === forms that are refused ===


REFUSED: Sequence[tuple[str, bytes, str]] = [
    ("no form", b"hello", "RFC 7578"),
    ("two models", form(field("model", MODEL), field("model", "renamed"), file()), "more than once"),
    (
        "two models, one behind a file",
        form(field("model", MODEL), file(large(MIB)), field("model", "renamed")),
        "more than once",
    ),
    ("many parts", form(field("model", MODEL), *[field("a", "b")] * 10_000), "256 parts"),
    ("a large head", form(field("a" * 5000, "b"), file()), "4096 bytes"),
    ("an endless head", f"--{BOUNDARY}\r\n".encode() + b"x" * MIB, "4096 bytes"),
    ("a large model", form(field("model", "m" * 2000)), "1024 bytes"),
    ("not whole", form(field("model", MODEL), file())[:-20], "last boundary"),
]


@pytest.mark.parametrize(("what", "sent", "told"), REFUSED, ids=[what for what, _, _ in REFUSED])
async def test_a_form_that_could_be_read_in_two_ways_is_refused(
    wire: WireStand, what: str, sent: bytes, told: str
) -> None:
    exchange = await wire.ask(Script(), path=TRANSCRIPTIONS, headers=(TYPE,), body=sent)
    error = exchange.reply.json()["error"]
    assert (exchange.reply.status, error["code"]) == (400, "invalid_body")
    assert told in error["message"]
    assert exchange.line["code"] == "invalid_body"


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "multipart/form-data", f"multipart/form-data; boundary={'x' * 71}"]
)
async def test_another_content_type_is_refused(wire: WireStand, kind: str) -> None:
    headers = (f"content-type: {kind}",) if kind else ()
    exchange = await wire.ask(
        Script(), path=TRANSCRIPTIONS, headers=headers, body=form(field("model", MODEL))
    )
    assert exchange.reply.status == 400
    assert "multipart/form-data" in exchange.reply.json()["error"]["message"]


async def test_a_form_without_a_model_is_refused(wire: WireStand) -> None:
    exchange = await upload(wire, Script(), file())
    assert (exchange.reply.status, exchange.reply.json()["error"]["code"]) == (400, "missing_model")
