"""Clients whose forms are hostile."""

from typing import Any

from hostile.case import Case, labels, post
from hostile.clients import drips

MIB = 1 << 20
_PATH = "/v1/audio/transcriptions"
_TYPE = b"content-type: multipart/form-data; boundary=b"
_CHUNKED = b"transfer-encoding: chunked"
_REFUSED = labels(400)
_MODEL = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nsmall\r\n'
_FILE = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
_END = b"\r\n--b--\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _begun(body: bytes) -> bytes:
    """The head of a request without a length, and the beginning of its body."""
    return post(_TYPE, _CHUNKED, length=b"", body=_chunk(body), path=_PATH)


def _case(name: str, sends: Any, expected: frozenset[str], *, quick: bool = False) -> Case:
    return Case(name, "client", sends, expected, quick=quick)


def _form(name: str, body: bytes, *, kind: bytes = _TYPE, quick: bool = False) -> Case:
    return _case(name, post(kind, body=body, path=_PATH), _REFUSED, quick=quick)


FORMS = (
    _form("form of 10,000 parts", _MODEL + _FILE.replace(b"file", b"f") * 10_000 + _END, quick=True),
    _form("part head of 1 MiB", b"--b\r\nContent-Disposition: form-data; name=" + b"a" * MIB),
    _form("part without a head", b"--b\r\n" + b"\r\n" * 100_000),
    _form("boundary of 1 KiB", b"", kind=_TYPE + b"x" * 1024),
    _form("two boundaries", _MODEL + _END, kind=_TYPE + b"; boundary=c"),
    _form("boundary alone, again and again", b"--b\r\n" * 100_000),
    _form("model of 1 MiB", _MODEL.replace(b"small", b"m" * MIB) + _END),
    _form("two models", _MODEL + _FILE + b"x" * MIB + b"\r\n" + _MODEL + _END, quick=True),
    _form("form that ends in the middle", _MODEL + _FILE + b"x" * MIB),
    _case(
        "form without end",
        drips(_begun(_MODEL + _FILE), _chunk(b"x" * 65_536), 0),
        labels(413, "cut"),
    ),
    _case(
        "form without end or model", drips(_begun(_FILE), _chunk(b"x" * 65_536), 0), labels(413, 503, "cut")
    ),
    _case(
        "form that comes byte by byte", drips(_begun(_MODEL + _FILE), _chunk(b"x"), 0.05), labels(408, "cut")
    ),
)
