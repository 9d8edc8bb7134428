"""What every request to the admin API passes first: host, token and role; and what bounds its time."""

import asyncio
import math
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sluicegate.admin.access import Failures, HostRule, Identity, Tokens
from sluicegate.admin.answers import SAFE_HEADERS, Answered
from sluicegate.admin.asking import MOST_URL_BYTES
from sluicegate.telemetry import Log, where

SECONDS = 30.0
"""For one request, its body and the database included."""

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""They say nothing that a balancer would not find out, and those have no tokens."""

_SAFE_METHODS = frozenset({"GET", "HEAD"})
_IDENTITY = "sluicegate.identity"


def identity_of(scope: Scope) -> Identity:
    """Whoever asks, as the guard has found."""
    identity: Identity = scope[_IDENTITY]
    return identity


class Guard:
    """ASGI, in front of the API's application."""

    def __init__(
        self,
        application: ASGIApp,
        log: Log,
        *,
        hosts: HostRule | None,
        tokens: Tokens | None,
        identity: Identity | None = None,
        refused: Callable[[], None] = lambda: None,
    ) -> None:
        """`hosts` and `tokens` for an address; `identity`: in their place whoever may open a Unix socket.

        `refused` is called with each wrong token.
        """
        self._application = application
        self._log = log
        self._hosts = hosts
        self._tokens = tokens
        self._identity = identity
        self._failures = Failures()
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        begun = False

        async def send_safely(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message = {**message, "headers": [*message.get("headers", ()), *SAFE_HEADERS]}
            await send(message)

        try:
            async with asyncio.timeout(SECONDS):
                self._admit(scope)
                await self._application(scope, receive, send_safely)
            return
        except Answered as answered:
            answer = answered
        except TimeoutError:
            answer = Answered(503, "timeout", f"There was no answer within {SECONDS:.0f} s.")
        except Exception as error:
            self._log.error("unhandled", at=scope["path"][:256], error=where(error))
            answer = Answered(500, "internal_error", "The gateway has failed; its log says where.")
        if not begun:
            await answer.response()(scope, receive, send_safely)

    def _admit(self, scope: Scope) -> None:
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MOST_URL_BYTES:
            raise Answered(414, "url_too_long", f"The URL is longer than {MOST_URL_BYTES} bytes.")
        if self._hosts is not None:
            hosts = _values(scope, b"host")
            if len(hosts) != 1 or not self._hosts.accepts(hosts[0]):
                raise Answered(
                    421,
                    "wrong_host",
                    "The request's `Host` is no address that is listened on, and none of `admin.hosts`.",
                )
        if scope["path"] in OPEN_PATHS:
            return
        identity = self._identify(scope)
        if scope["method"] not in _SAFE_METHODS and not identity.may_operate:
            raise Answered(403, "not_allowed", "This token may only view: changes take `role: operate`.")
        scope[_IDENTITY] = identity

    def _identify(self, scope: Scope) -> Identity:
        if self._tokens is None:
            if self._identity is None:
                raise RuntimeError("neither tokens nor an identity")
            return self._identity
        presented = _values(scope, b"authorization")
        if not presented:
            raise _unauthorized("Send a token: `Authorization: Bearer TOKEN`.")
        scheme, _, token = presented[0].partition(" ")
        identity = self._tokens.identify(token.strip()) if scheme.lower() == "bearer" else None
        if identity is None or len(presented) > 1:
            raise self._wrong(_address(scope))
        return identity

    def _wrong(self, address: str) -> Answered:
        """What a wrong token is answered with."""
        self._refused()
        wait = self._failures.wait(address)
        if wait:
            # Neither counted nor logged: guessing on makes the wait no longer, and fills no log.
            seconds = str(math.ceil(wait))
            message = f"Too many wrong tokens came from this address: try again in {seconds} s."
            return Answered(429, "too_many_failures", message, headers={"retry-after": seconds})
        self._failures.add(address)
        self._log.warning("admin_token_refused", address=address)
        return _unauthorized("This token is not known here.")


def _unauthorized(message: str) -> Answered:
    return Answered(401, "invalid_token", message, headers={"www-authenticate": "Bearer"})


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for known, value in scope["headers"] if known.lower() == name]


def _address(scope: Scope) -> str:
    client: Any = scope.get("client")
    return str(client[0]) if client else ""
