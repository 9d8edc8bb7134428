"""One GET of a small document over HTTP/1.1, bounded in time and bytes. Redirects are not followed."""

import asyncio
import contextlib
import http.client
import io
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

MAX_BODY_BYTES = 1024 * 1024
_MAX_HEAD_BYTES = 64 * 1024
# A chunk's size is at most 16 hexadecimal digits; extensions have no use here.
_MAX_SIZE_LINE = 256
# One that sends its list byte by byte would hold the event loop: what has come is read without a pause.
_MAX_CHUNKS = 4096


class Endpoint(NamedTuple):
    """Whom to ask. `socket`: the Unix socket to connect to in place of the URL's host."""

    url: str
    headers: Mapping[str, str]
    socket: str | None = None
    ca_file: str | None = None
    certificate: tuple[str, str] | None = None


class Reply(NamedTuple):
    """What came back. `body` is whole."""

    status: int
    content_type: str
    body: bytes


class FetchFailed(Exception):
    """There is no reply; the message says why, in a few words."""


async def fetch(endpoint: Endpoint, seconds: float) -> Reply:
    """The reply to a GET of `endpoint.url`. Raises `FetchFailed`."""
    try:
        async with asyncio.timeout(seconds):
            return await _fetch(endpoint)
    except TimeoutError:
        raise FetchFailed(f"did not answer within {seconds:g} s") from None
    except asyncio.LimitOverrunError:
        raise FetchFailed("sent a header that is too large") from None
    except (asyncio.IncompleteReadError, http.client.HTTPException, ValueError):
        raise FetchFailed("did not answer in HTTP/1.1") from None
    except ssl.SSLError as error:
        raise FetchFailed(f"TLS failed: {error.reason or type(error).__name__}") from None
    except OSError as error:
        raise FetchFailed(_words(error)) from None


def _words(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "refused the connection"
    return error.strerror or str(error) or type(error).__name__


async def _fetch(endpoint: Endpoint) -> Reply:
    url = urlsplit(endpoint.url)
    host = url.hostname or ""
    secure = url.scheme == "https"
    # Reading the roots takes milliseconds: not on the loop.
    context = await asyncio.to_thread(_context, endpoint) if secure else None
    name = host if secure else None
    if endpoint.socket is not None:
        opening = asyncio.open_unix_connection(
            endpoint.socket, ssl=context, server_hostname=name, limit=_MAX_HEAD_BYTES
        )
    else:
        port = url.port or (443 if secure else 80)
        opening = asyncio.open_connection(
            host, port, ssl=context, server_hostname=name, limit=_MAX_HEAD_BYTES
        )
    reader, writer = await opening
    try:
        headers = {
            "host": url.netloc,
            "accept": "application/json",
            "accept-encoding": "identity",
            "user-agent": "sluicegate",
            "connection": "close",
            **{header.lower(): value for header, value in endpoint.headers.items()},
        }
        lines = [f"GET {url.path or '/'} HTTP/1.1", *(f"{key}: {value}" for key, value in headers.items())]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        await writer.drain()
        return await _read(reader)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            # What TLS still has to say is not worth waiting for.
            writer.transport.abort()


def _context(endpoint: Endpoint) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=endpoint.ca_file)
    if endpoint.certificate is not None:
        context.load_cert_chain(*endpoint.certificate)
    return context


async def _read(reader: asyncio.StreamReader) -> Reply:
    head = await reader.readuntil(b"\r\n\r\n")
    line, _, rest = head.partition(b"\r\n")
    version, _, status = line.decode("latin-1").partition(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(version)
    headers = http.client.parse_headers(io.BytesIO(rest))
    coding = (headers.get("transfer-encoding") or "").lower()
    length = headers.get("content-length")
    if coding == "chunked":
        body = await _chunks(reader)
    elif coding:
        raise ValueError(coding)
    elif length is not None:
        body = await reader.readexactly(_bounded(int(length)))
    else:
        body = await _to_the_end(reader)
    return Reply(int(status[:3]), headers.get_content_type(), body)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    for _ in range(_MAX_CHUNKS):
        line = await reader.readuntil(b"\n")
        if len(line) > _MAX_SIZE_LINE:
            raise ValueError("chunk")
        size = int(line.partition(b";")[0].strip(), 16)
        if size < 0:
            raise ValueError("chunk")
        if size == 0:
            return bytes(body)
        _bounded(len(body) + size)
        body += await reader.readexactly(size)
        if await reader.readexactly(2) != b"\r\n":
            raise ValueError("chunk")
    raise FetchFailed(f"sent more than {_MAX_CHUNKS} chunks")


async def _to_the_end(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while part := await reader.read(64 * 1024):
        body += part
        _bounded(len(body))
    return bytes(body)


def _bounded(size: int) -> int:
    if size < 0:
        raise ValueError("size")
    if size > MAX_BODY_BYTES:
        raise FetchFailed(f"sent more than {MAX_BODY_BYTES} bytes")
    return size
