"""Errors, in the form of OpenAI's API; `forms` writes them in that of others.

They look like `{"error": {"message", "type", "code", "param"}}`. What an upstream did wrong has the type
`upstream_error` and the fault's kind as its code: the name that metrics and the log show, too.
"""

import itertools
import json
import math
import time
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from sluicegate._core import Excess
from sluicegate.errors import ParseError
from sluicegate.gateway.rights import Refusal

_JSON = (b"content-type", b"application/json")
_MESSAGE_LIMIT = 2000
# Seconds that a client may wait by itself: beyond that, nobody would know why it is silent. The SDK of OpenAI
# gives up where `retry-after` is above two minutes; that of Anthropic waits for as long as it says.
_LONGEST_WAIT = 120
_NO_RETRY = (b"x-should-retry", b"false")
# Of an error body in a form that nobody knows.
_MEMBERS_SEARCHED = 100

Form = Literal["openai", "anthropic"]

ERROR_HEADER = b"x-sluicegate-error"
"""Only on what the gateway itself answers: an error that an upstream made is without it."""

# RFC 9110, section 15.6: 502 the upstream's reply is no good, 504 it did not come in time, 503 we stop.
_STATUS_OF_KIND = {
    "connect": 502,
    "connect_timeout": 504,
    "reset": 502,
    "protocol": 502,
    "first_byte_timeout": 504,
    "first_token_timeout": 504,
    "between_tokens_timeout": 504,
    "total_timeout": 504,
    "client_timeout": 504,
    "empty": 502,
    "truncated": 502,
    "in_band_error": 502,
    "too_large": 502,
    "decode": 502,
    "untranslatable": 400,
    "shutdown": 503,
    "internal": 500,
}


class Fault(Protocol):
    """What of a `_core.Fault` a client is told."""

    @property
    def kind(self) -> str: ...
    @property
    def upstream(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def status(self) -> int | None: ...
    @property
    def param(self) -> str | None: ...
    @property
    def headers(self) -> list[tuple[bytes, bytes]]: ...
    @property
    def body(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """A whole error response, and what it says."""

    status: int
    code: str | None
    headers: list[tuple[bytes, bytes]]
    body: bytes
    message: str
    type: str
    form: Form = "openai"
    """Of the body."""
    excess: Excess | None = None
    """The limit that was reached, where that is the error."""

    @property
    def limit(self) -> str | None:
        """The limit that was reached: how much, in which window, and whose."""
        return None if self.excess is None else self.excess.limit.name


class Refused(Exception):
    """The request is answered with `reply`."""

    def __init__(self, reply: ErrorReply) -> None:
        self.reply = reply


def error_reply(
    status: int,
    message: str,
    *,
    type: str = "invalid_request_error",
    code: str | None = None,
    param: str | None = None,
    headers: tuple[tuple[bytes, bytes], ...] = (),
    excess: Excess | None = None,
) -> ErrorReply:
    """An error of the gateway's own. The code is a header, too: `sluicegate explain` knows it."""
    named = () if code is None else ((ERROR_HEADER, code.encode()),)
    error = {"message": message, "type": type, "code": code, "param": param}
    return ErrorReply(
        status, code, [_JSON, *named, *headers], dump({"error": error}), message, type, excess=excess
    )


def invalid_body(error: ParseError) -> ErrorReply:
    """The body is not what the API takes; says what and where."""
    return error_reply(400, f"The request's body cannot be read: {error}.", code="invalid_body")


def body_too_large(limit: int) -> ErrorReply:
    return error_reply(
        413,
        f"The request's body is larger than the {limit} bytes that this gateway takes.",
        code="request_too_large",
    )


def refused(refusal: Refusal, now: float | None = None) -> ErrorReply:
    """What a client is told that may not have what it asks for. `now`: seconds since 1970, UTC."""
    if refusal.reason == "missing_key":
        message = (
            "You didn't provide an API key. Send it in a header: `Authorization: Bearer YOUR_KEY`, or "
            "`x-api-key: YOUR_KEY`."
        )
        return _wrong_key(message, code="invalid_api_key")
    if refusal.reason == "unknown_key":
        return _wrong_key("Incorrect API key provided.", code="invalid_api_key")
    if refusal.reason == "keys_unavailable":
        return error_reply(
            503,
            "This gateway cannot tell yet whether the API key is good: its database of keys does not answer. "
            "Try again later.",
            type="server_error",
            code="keys_unavailable",
            headers=((b"retry-after", b"5"),),
        )
    if refusal.reason == "expired_key":
        return _wrong_key("The API key has expired.", code="expired_api_key")
    if refusal.reason == "revoked_key":
        message = "The API key that this was asked for with has been revoked."
        return _wrong_key(message, code="revoked_api_key")
    if refusal.reason == "removed_key":
        message = "The API key that this was asked for with, or its caller, has been removed."
        return _wrong_key(message, code="removed_api_key")
    if refusal.reason == "caller_disabled":
        return _not_allowed("This caller may not make requests for now.", code="caller_disabled")
    if refusal.reason == "endpoint_not_allowed":
        return _not_allowed(f"This key may not call `{refusal.name[:64]}`.", code="endpoint_not_allowed")
    if refusal.reason == "model_not_allowed":
        message = f"This key may not use the model `{refusal.name[:256]}`."
        return _not_allowed(message, code="model_not_allowed", param="model")
    if refusal.reason == "needs_credentials":
        return error_reply(
            400,
            f"The model `{refusal.name[:256]}` takes each client's own credentials, which are not kept: "
            "it cannot be used in the background.",
            code="unsupported_value",
            param="background",
        )
    if refusal.reason == "unpriced":
        what = f"The model `{refusal.name[:256]}`" if refusal.name else "What this path leads to"
        message = f"{what} has no price, and this key has a limit of cost."
        return _not_allowed(message, code="model_unpriced", param="model")
    if refusal.excess is not None:
        return _limited(refusal.excess, time.time() if now is None else now)
    if refusal.reason == "limits_unavailable":
        return _limits_unavailable()
    if refusal.reason == "missing_model":
        message = "You must provide a model parameter."
        return error_reply(400, message, code="missing_model", param="model")
    message = f"The model `{refusal.name[:256]}` does not exist or you do not have access to it."
    return error_reply(404, message, code="model_not_found", param="model")


def _wrong_key(message: str, *, code: str) -> ErrorReply:
    return error_reply(401, message, code=code, headers=((b"www-authenticate", b"Bearer"),))


def _not_allowed(message: str, *, code: str, param: str | None = None) -> ErrorReply:
    return error_reply(403, message, type="permission_error", code=code, param=param)


def _limited(excess: Excess, now: float) -> ErrorReply:
    """The SDKs of OpenAI and Anthropic wait for `retry-after`, and obey `x-should-retry`. They go by the
    status and the type; the codes are the gateway's own, so that an upstream's refusals are told from these.
    """
    limit, when = excess.limit, _when(excess.wait, now)
    left = tuple(excess.headers("openai"))
    if limit.resource == "cost":
        return error_reply(
            429,
            f"You have used up the budget of {limit.name}. It begins anew {when}.",
            type="insufficient_quota",
            code="budget_exceeded",
            headers=(*_wait(excess.wait), _NO_RETRY, *left),
            excess=excess,
        )
    message = f"The limit of {limit.name} is reached: {excess.used} are used. Try again {when}."
    return error_reply(
        429,
        # No time makes it smaller.
        f"The request is larger than the limit of {limit.name}." if excess.never else message,
        type="tokens" if limit.resource == "tokens" else "requests",
        code="limit_exceeded",
        headers=(*((_NO_RETRY,) if excess.never else _come_back(excess.wait)), *left),
        excess=excess,
    )


def _come_back(seconds: float) -> tuple[tuple[bytes, bytes], ...]:
    """When a client may try again. Where that is too far off, it is not to wait for it by itself."""
    told = _wait(seconds)
    return (*told, _NO_RETRY) if seconds > _LONGEST_WAIT else told


def _wait(seconds: float) -> tuple[tuple[bytes, bytes], ...]:
    milliseconds = math.ceil(max(seconds, 0.001) * 1000)
    return (b"retry-after", b"%d" % _whole_seconds(seconds)), (b"retry-after-ms", b"%d" % milliseconds)


def _whole_seconds(seconds: float) -> int:
    return max(1, math.ceil(seconds))


def _when(seconds: float, now: float) -> str:
    """For people: a time that is too far off to be waited for is a date."""
    if seconds <= _LONGEST_WAIT:
        return f"in {_whole_seconds(seconds)} s"
    return f"at {datetime.fromtimestamp(math.ceil(now + seconds), UTC):%Y-%m-%dT%H:%M:%SZ}"


def _limits_unavailable() -> ErrorReply:
    """What limits count is elsewhere, and cannot be asked for."""
    return error_reply(
        503,
        "The gateway cannot tell just now how much of your limits is left: try again in a few seconds.",
        type="server_error",
        code="limits_unavailable",
        headers=((b"retry-after", b"2"),),
    )


def unknown_url(method: str, path: str) -> ErrorReply:
    return error_reply(404, f"Invalid URL ({method} {path[:256]})", code="unknown_url")


def method_not_allowed(method: str, path: str, allow: bytes) -> ErrorReply:
    message = f"Not allowed to {method} on {path[:256]}; use {allow.decode()}."
    return error_reply(405, message, code="method_not_allowed", headers=((b"allow", allow),))


def metrics_not_public() -> ErrorReply:
    return error_reply(
        403,
        "Metrics are shown by the admin API, or here with `server.metrics: public`.",
        code="metrics_not_public",
    )


def bad_timeout() -> ErrorReply:
    """As the front words it."""
    return error_reply(
        400,
        "The request's X-Sluicegate-Timeout header is no number of seconds, above 0 and up to 30 days.",
        code="malformed_request",
    )


def client_timeout() -> ErrorReply:
    """The time that the client has set is over."""
    message = "The reply was not complete within the time that the client has set (x-sluicegate-timeout)."
    # Nobody waits for what an SDK would ask for by itself.
    return error_reply(504, message, code="client_timeout", headers=(_NO_RETRY,))


def shutting_down() -> ErrorReply:
    return error_reply(
        503,
        "The gateway is shutting down.",
        type="server_error",
        code="shutdown",
        headers=((b"retry-after", b"1"), (b"connection", b"close")),
    )


def internal() -> ErrorReply:
    return error_reply(500, "The gateway failed to answer.", type="server_error", code="internal")


def all_busy(what: str) -> ErrorReply:
    """Every deployment of `what` (a model, or an upstream) has as many streams as it may have."""
    return error_reply(
        503,
        f"All deployments of {what} are busy: try again in a second.",
        type="server_error",
        code="all_busy",
        headers=((b"retry-after", b"1"),),
    )


def all_taken_off(what: str) -> ErrorReply:
    """Operators have taken off every deployment of `what`."""
    return error_reply(
        503,
        f"{what[:1].upper()}{what[1:]} is not served just now: its deployments have been taken off.",
        type="server_error",
        code="all_taken_off",
    )


def all_resting(what: str, seconds: float, *, rate_limited: bool, now: float | None = None) -> ErrorReply:
    """Every deployment of `what` has asked to be left alone; the first one is back in `seconds`. `now`: since
    1970, UTC.
    """
    when = _when(seconds, time.time() if now is None else now)
    return error_reply(
        429 if rate_limited else 503,
        f"All deployments of {what} are too busy: try again {when}.",
        type="rate_limit_error" if rate_limited else "server_error",
        code="all_resting",
        headers=_come_back(seconds),
    )


def ledger_full() -> ErrorReply:
    """There is no room for the request's entry in the ledger's journal."""
    return error_reply(
        503,
        "The gateway cannot keep an account of the request just now: try again in a few seconds.",
        type="server_error",
        code="ledger_full",
        headers=((b"retry-after", b"5"),),
    )


def ledger_not_synced() -> ErrorReply:
    """`ledger.sync` is `always`, and the request's entry cannot be written to the disk."""
    return error_reply(
        503,
        "The gateway cannot write its account of the request to the disk: try again in a few seconds.",
        type="server_error",
        code="ledger_not_synced",
        headers=((b"retry-after", b"5"),),
    )


def not_counted(model: str) -> ErrorReply:
    """Nobody counts the tokens of an input for this model."""
    return error_reply(
        404,
        f"Input tokens are not counted for the model `{model[:256]}`: estimate them.",
        code="tokens_not_counted",
        param="model",
    )


def from_fault(fault: Fault, *, clients_credentials: bool = False) -> ErrorReply:
    """The last attempt failed before anything reached the client.

    An upstream's own error object and status are passed on, with its headers (`retry-after`, rate limits).
    Not where it refused the gateway's account (401, 402, 403): the client would look for the fault in its own
    key, and such bodies quote parts of keys, accounts and projects. That is 502, `upstream_authentication`,
    unless the credentials were the client's own (`clients_credentials`).
    """
    if fault.kind != "status" or fault.status is None:
        status = _STATUS_OF_KIND.get(fault.kind, 502)
        if fault.kind == "untranslatable":
            return error_reply(status, _sentence(fault.message), code=fault.kind, param=fault.param)
        if fault.kind == "client_timeout":
            return error_reply(status, _sentence(fault.message), code=fault.kind, headers=(_NO_RETRY,))
        type_ = "server_error" if fault.kind in ("shutdown", "internal") else "upstream_error"
        return error_reply(status, _sentence(fault.message), type=type_, code=fault.kind)
    if fault.status in (401, 402, 403) and not clients_credentials:
        message = f"Upstream '{fault.upstream}' did not accept the gateway's credentials ({fault.status})."
        return error_reply(502, message, type="upstream_error", code="upstream_authentication")
    if not 400 <= fault.status <= 599:
        return error_reply(502, _sentence(fault.message), type="upstream_error", code="status")
    headers = [(name, value) for name, value in fault.headers if name.lower() != b"content-type"]
    document = _object(fault.body)
    error = None if document is None else document.get("error")
    if document is not None and isinstance(error, dict):
        code, named, said = error.get("code"), error.get("type"), error.get("message")
        return ErrorReply(
            fault.status,
            code[:64] if isinstance(code, str) else "status",
            [_JSON, *headers],
            fault.body,
            said if isinstance(said, str) and said else _sentence(fault.message),
            named if isinstance(named, str) else "upstream_error",
            # OpenAI's has no `type` beside `error`.
            "anthropic" if document.get("type") == "error" else "openai",
        )
    # Flat forms (`{"object": "error", "message": …}`, `{"detail": …}`, `{"error": "…"}`), nested ones, HTML.
    message = (document and _said(document)) or _sentence(fault.message)
    return error_reply(fault.status, message, type="upstream_error", code="status", headers=tuple(headers))


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _said(document: dict[str, Any]) -> str | None:
    for name in ("error", "message", "detail"):
        value = document.get(name)
        if isinstance(value, list | dict) and value:
            value = json.dumps(value, ensure_ascii=False)
        if isinstance(value, str) and value:
            return value[:_MESSAGE_LIMIT]
    return _said_within(document)


def _said_within(document: dict[str, Any]) -> str | None:
    """The text that lies least deep among members that are named as messages are (llms.py's is
    `responseStatus.message`)."""
    waiting: deque[object] = deque([document])
    for _ in range(_MEMBERS_SEARCHED):
        if not waiting:
            return None
        value = waiting.popleft()
        if isinstance(value, list):
            waiting.extend(value[:_MEMBERS_SEARCHED])
        elif isinstance(value, dict):
            for name in ("message", "detail", "error", "errors"):
                text = value.get(name)
                if isinstance(text, str) and text:
                    return text[:_MESSAGE_LIMIT]
            waiting.extend(itertools.islice(value.values(), _MEMBERS_SEARCHED))
    return None


def _sentence(message: str) -> str:
    return f"{message[:1].upper()}{message[1:].rstrip('.')}."


def dump(document: object) -> bytes:
    # What a client sent comes back in messages: a lone surrogate in it is not UTF-8.
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
