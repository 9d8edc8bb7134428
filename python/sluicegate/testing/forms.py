"""`multipart/form-data` as a strict server reads it (RFC 7578, RFC 2046 section 5.1)."""

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from sluicegate.testing.connection import HttpRequest

_BOUNDARY = re.compile(r'^multipart/form-data\s*;.*?\bboundary=(?:"([^"]+)"|([^\s;]+))', re.IGNORECASE)
_NAME = re.compile(r'^form-data;.*?\bname="([^"]*)"', re.IGNORECASE)
_FILENAME = re.compile(r'\bfilename="([^"]*)"', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Part:
    """One field or file of a form."""

    name: str
    filename: str | None
    headers: tuple[tuple[str, str], ...]
    content: bytes

    @property
    def value(self) -> Any:
        """A field's text; of a file its name, its size and the SHA-256 of its content."""
        if self.filename is None:
            return self.content.decode("utf-8", "replace")
        digest = hashlib.sha256(self.content).hexdigest()
        return {"filename": self.filename, "size": len(self.content), "sha256": digest}


def parts_of(request: HttpRequest) -> list[Part] | None:
    """The parts, in their order; None where the body is no such form, to the byte."""
    found = _BOUNDARY.match(request.header("content-type") or "")
    if found is None:
        return None
    dashes = b"--" + (found[1] or found[2]).encode("latin-1")
    body = request.body
    if not body.startswith(dashes + b"\r\n"):
        return None
    *pieces, end = (b"\r\n" + body).split(b"\r\n" + dashes)
    if end not in (b"--", b"--\r\n") or pieces[0] != b"":
        return None
    parts = [_part(piece) for piece in pieces[1:]]
    return [part for part in parts if part is not None] if None not in parts else None


def _part(piece: bytes) -> Part | None:
    if not piece.startswith(b"\r\n"):
        return None
    head, blank, content = piece[2:].partition(b"\r\n\r\n")
    lines = [line.partition(":") for line in head.decode("utf-8", "replace").split("\r\n")]
    if not blank or not all(colon for _, colon, _ in lines):
        return None
    headers = tuple((name.strip().lower(), value.strip()) for name, _, value in lines)
    disposition = dict(headers).get("content-disposition", "")
    name, filename = _NAME.match(disposition), _FILENAME.search(disposition)
    if name is None:
        return None
    return Part(name[1], filename and filename[1], headers, content)


def form_of(request: HttpRequest) -> dict[str, Any] | None:
    """The form as a JSON request would say it: `stream` is a truth value. None where the body is no form."""
    parts = parts_of(request)
    if parts is None:
        return None
    form = {part.name: part.value for part in parts}
    if "stream" in form:
        form["stream"] = form["stream"] in ("true", "True", "1")
    return form
