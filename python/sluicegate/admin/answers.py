"""Answers of the admin API: JSON, pages of lists, and errors in OpenAI's form."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

SAFE_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
"""On every answer. There is none that lets pages of other sites read it."""


class Answered(Exception):
    """The request is answered with this error."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.headers = headers or {}

    def response(self) -> Response:
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        if self.status == 429:
            kind = "rate_limit_error"
        error = {"message": self.message, "type": kind, "code": self.code, "param": self.param}
        return answer({"error": error}, self.status, self.headers)


def answer(data: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A whole answer."""
    return Response(_json(data), status, headers, "application/json")


def page(data: Sequence[Any], next: str | None) -> Response:
    """A page of a list. `next`: what goes on with it, as the parameter that the endpoint has for that; None:
    this was the last.
    """
    # Each by itself: other threads, the one that decides among them, do not wait for a whole page.
    listed = b",".join(map(_json, data))
    more = b"true" if next is not None else b"false"
    body = b'{"object":"list","data":[%b],"has_more":%b,"next":%b}' % (listed, more, _json(next))
    return Response(body, media_type="application/json")


def _json(data: object) -> bytes:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def not_found(what: str, name: str) -> Answered:
    return Answered(404, "not_found", f"There is no {what} `{name[:256]}`.")
