"""How events become bytes, and bytes become writes."""

import json
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from raw_http import RawConnection, RawReply, ask
from sluicegate.testing import Script, ScriptedUpstream
from sse_reference import comments, parse, payloads


@pytest.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream(Script(tokens=3)) as upstream:
        yield upstream


async def framed(
    upstream: ScriptedUpstream, /, mock: dict[str, Any] | None = None, **framing: Any
) -> RawReply:
    return await ask((upstream.host, upstream.port), {**(mock or {}), "framing": framing})


async def plain(upstream: ScriptedUpstream) -> list[Any]:
    return payloads((await framed(upstream)).body)


async def test_an_event_is_a_line_and_a_blank_line_in_a_chunk_of_its_own(upstream: ScriptedUpstream) -> None:
    reply = await framed(upstream)
    assert len(reply.chunks) == 6
    for chunk in reply.chunks:
        assert chunk.startswith(b"data: ")
        assert chunk.endswith(b"\n\n")
        assert chunk.count(b"\n") == 2


@pytest.mark.parametrize(("name", "ending"), [("lf", b"\n"), ("crlf", b"\r\n"), ("cr", b"\r")])
async def test_line_endings(upstream: ScriptedUpstream, name: str, ending: bytes) -> None:
    reply = await framed(upstream, line_ending=name)
    assert payloads(reply.body) == await plain(upstream)
    assert reply.body.count(ending * 2) == 6
    assert not set(reply.body.replace(ending, b"")) & set(b"\r\n")


async def test_no_space_after_the_colon(upstream: ScriptedUpstream) -> None:
    reply = await framed(upstream, space_after_colon=False)
    assert reply.body.startswith(b'data:{"id"')
    assert reply.body.endswith(b"data:[DONE]\n\n")
    assert payloads(reply.body) == await plain(upstream)


async def test_a_trailing_space(upstream: ScriptedUpstream) -> None:
    assert (await framed(upstream, trailing_space=True)).body.endswith(b"data: [DONE] \n\n")


@pytest.mark.parametrize("lines", [2, 3, 7, 1000])
async def test_several_data_lines_are_the_same_json(upstream: ScriptedUpstream, lines: int) -> None:
    reply = await framed(upstream, data_lines=lines)
    assert payloads(reply.body) == await plain(upstream)
    counts = [chunk.count(b"data: ") for chunk in reply.chunks]
    assert all(1 < count <= lines for count in counts[:-1])
    assert counts[-1] == 1


async def test_extra_lines_stand_before_the_data(upstream: ScriptedUpstream) -> None:
    reply = await framed(upstream, extra_lines=["id: 7", "retry: 100", "what"])
    assert all(chunk.startswith(b"id: 7\nretry: 100\nwhat\ndata: ") for chunk in reply.chunks)


async def test_a_byte_order_mark_stands_first(upstream: ScriptedUpstream) -> None:
    reply = await framed(upstream, bom=True)
    assert reply.body.startswith(b"\xef\xbb\xbfdata: ")
    assert reply.body.count(b"\xef\xbb\xbf") == 1


@pytest.mark.parametrize("count", [0, 1, 2])
async def test_done_markers(upstream: ScriptedUpstream, count: int) -> None:
    events = [event.data for event in parse((await framed(upstream, done_markers=count)).body)]
    assert events[5 : 5 + count] == ["[DONE]"] * count
    assert len(events) == 5 + count


async def test_the_last_blank_line_may_be_missing(upstream: ScriptedUpstream) -> None:
    body = (await framed(upstream, final_blank_line=False)).body
    assert body.endswith(b"}\n\ndata: [DONE]\n")


async def test_json_can_be_escaped_and_spaced(upstream: ScriptedUpstream) -> None:
    mock = {"text": "é 🌊"}
    assert "é".encode() in (await framed(upstream, mock)).body
    escaped = (await framed(upstream, mock, ensure_ascii=True)).body
    assert escaped.isascii()
    assert rb"\ud83c\udf0a" in escaped
    assert (await framed(upstream, json_spaces=True)).body.startswith(b'data: {"id": "chatcmpl-')


async def test_keepalives_after_every_so_many_events(upstream: ScriptedUpstream) -> None:
    reply = await framed(upstream, keepalive_every_events=2)
    kinds = [chunk[:1] for chunk in reply.chunks]
    assert kinds == [b"d", b"d", b":", b"d", b"d", b":", b"d", b"d"]
    assert comments(reply.body) == ["keep-alive"] * 2
    assert upstream.requests[0].keepalives_sent == 2


async def test_keepalives_of_any_kind(upstream: ScriptedUpstream) -> None:
    reply = await framed(upstream, keepalive="data: : keepalive", keepalive_first=True)
    assert reply.chunks[0] == b"data: : keepalive\n\n"
    reply = await framed(
        upstream, keepalive="event: ping\ndata: {}", keepalive_first=True, line_ending="crlf"
    )
    assert reply.chunks[0] == b"event: ping\r\ndata: {}\r\n\r\n"


async def test_keepalives_within_a_delay(upstream: ScriptedUpstream) -> None:
    reply = await framed(upstream, {"first_token_delay": 0.2}, keepalive_every_seconds=0.06)
    kinds = b"".join(chunk[:1] for chunk in reply.chunks)
    # A slow machine may have fewer of them.
    assert kinds in (b"d:ddddd", b"d::ddddd", b"d:::ddddd")


async def test_several_events_in_a_write(upstream: ScriptedUpstream) -> None:
    reply = await framed(upstream, events_per_write=4)
    assert [chunk.count(b"\n\n") for chunk in reply.chunks] == [4, 2]
    assert payloads(reply.body) == await plain(upstream)


async def test_the_pace_is_kept_between_writes(upstream: ScriptedUpstream) -> None:
    reply = await framed(
        upstream,
        {"tokens": 6, "first_token_delay": 0.001, "pace": 0.001, "end_delay": 0.001},
        events_per_write=3,
    )
    assert [chunk.count(b"\n\n") for chunk in reply.chunks] == [1, 3, 3, 2]


@pytest.mark.parametrize("size", [1, 7, 100])
async def test_bodies_can_be_cut_into_pieces(upstream: ScriptedUpstream, size: int) -> None:
    reply = await framed(upstream, piece_bytes=size)
    assert payloads(reply.body) == await plain(upstream)
    assert max(map(len, reply.chunks)) == size
    # An event is never joined with the next: each ends with a piece of its own.
    assert sum(chunk.endswith(b"\n") for chunk in reply.chunks) >= 6


async def test_the_wire_can_be_cut_anywhere(upstream: ScriptedUpstream) -> None:
    whole = await framed(upstream)
    reply = await framed(upstream, wire_bytes=3)
    assert reply.chunks == whole.chunks
    reply = await framed(upstream, {"stream": False}, wire_bytes=1)
    assert reply.json()["object"] == "chat.completion"


async def test_lines_of_json(upstream: ScriptedUpstream) -> None:
    reply = await framed(upstream, {"ndjson": True})
    assert reply.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line) for line in reply.body.splitlines()] == await plain(upstream)


async def test_any_content_type(upstream: ScriptedUpstream) -> None:
    assert (await framed(upstream, {"content_type": "text/plain"})).headers["content-type"] == "text/plain"


# === Compression and transfer ===


@pytest.mark.parametrize(("coding", "wbits"), [("gzip", 31), ("deflate", 15)])
async def test_each_event_can_be_decompressed_as_it_comes(
    upstream: ScriptedUpstream, coding: str, wbits: int
) -> None:
    reply = await framed(upstream, {"compression": coding})
    assert reply.headers["content-encoding"] == coding
    decoder = zlib.decompressobj(wbits)
    parts = [decoder.decompress(chunk) for chunk in reply.chunks]
    assert decoder.eof
    assert [part.endswith(b"\n\n") for part in parts] == [True] * 6 + [False]
    assert payloads(b"".join(parts)) == await plain(upstream)


async def test_a_document_can_be_compressed(upstream: ScriptedUpstream) -> None:
    reply = await framed(upstream, {"compression": "gzip", "stream": False})
    assert len(reply.body) == int(reply.headers["content-length"])
    assert json.loads(zlib.decompress(reply.body, 31))["object"] == "chat.completion"


async def test_a_coding_that_is_not_installed_is_a_400(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "brotli", None)
    reply = await framed(upstream, {"compression": "br"})
    assert reply.status == 400
    assert "needs the package brotli" in reply.json()["error"]["message"]


async def test_a_length_for_a_stream(upstream: ScriptedUpstream) -> None:
    reply = await framed(upstream, {"transfer": "length"})
    assert "transfer-encoding" not in reply.headers
    assert len(reply.body) == int(reply.headers["content-length"])
    assert payloads(reply.body) == await plain(upstream)
    assert (await framed(upstream, {"transfer": "length", "compression": "gzip"})).status == 400


async def test_a_body_up_to_the_end_of_the_connection(upstream: ScriptedUpstream) -> None:
    reply = await framed(upstream, {"transfer": "close"})
    assert reply.headers["connection"] == "close"
    assert not {"transfer-encoding", "content-length"} & reply.headers.keys()
    assert payloads(reply.body) == await plain(upstream)


async def test_a_declared_length_that_is_not_reached(upstream: ScriptedUpstream) -> None:
    reply = await framed(upstream, {"stream": False, "length_excess": 10})
    assert reply.ended == "eof"
    assert reply.json()["object"] == "chat.completion"
    assert len(reply.body) == int(reply.headers["content-length"]) - 10


async def test_a_chunked_document(upstream: ScriptedUpstream) -> None:
    reply = await framed(upstream, {"stream": False, "transfer": "chunked"})
    assert reply.headers["transfer-encoding"] == "chunked"
    assert reply.json()["object"] == "chat.completion"


# === Byte scripts ===


async def test_a_body_of_ones_own() -> None:
    from sluicegate.testing import body

    async with ScriptedUpstream(body(b"data: a\n", 0.01, b"\ndata: b", b"\n\n")) as upstream:
        reply = await ask((upstream.host, upstream.port))
    assert reply.chunks == [b"data: a\n", b"\ndata: b", b"\n\n"]
    assert reply.headers["content-type"] == "text/event-stream"


async def test_a_page_of_html_and_a_status() -> None:
    from sluicegate.testing import body

    script = body(b"<html>Bad gateway</html>", content_type="text/html", status=502)
    async with ScriptedUpstream(script) as upstream:
        reply = await ask((upstream.host, upstream.port))
    assert (reply.status, reply.headers["content-type"]) == (502, "text/html")
    assert reply.body == b"<html>Bad gateway</html>"


async def test_raw_bytes_are_all_that_is_sent() -> None:
    from sluicegate.testing import raw

    sent = (b"HTTP/1.1 200 OK\r\ncontent-le", b"ngth: 2\r\n\r\n{", b"}")
    async with (
        ScriptedUpstream(raw(sent[0], 0.01, *sent[1:])) as upstream,
        RawConnection(upstream.host, upstream.port) as connection,
    ):
        await connection.post("/v1/chat/completions", b"{}")
        assert await connection.rest() == b"".join(sent)
        assert upstream.requests[0].complete
        assert upstream.requests[0].events_sent == 3
