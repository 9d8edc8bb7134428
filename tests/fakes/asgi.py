"""An ASGI server of one request, for applications called in-process."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from sluicegate.gateway.asgi import Application, Message


@dataclass
class Response:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    complete: bool = False

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        found = self.json()["error"]
        assert isinstance(found, dict)
        return found


class Connection:
    """One request: its body in chunks, and the client's leaving, which a test times itself.

    `unfinished`: more of the body was to come when the client stopped sending.
    """

    def __init__(
        self,
        method: str,
        path: str,
        *,
        body: bytes | list[bytes] = b"",
        headers: dict[str, str] | None = None,
        declare_length: bool = True,
        unfinished: bool = False,
    ) -> None:
        self.chunks = [body] if isinstance(body, bytes) else list(body)
        pairs = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        if declare_length and any(self.chunks):
            pairs.append((b"content-length", b"%d" % sum(map(len, self.chunks))))
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": pairs,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        self.response = Response()
        self.received = 0
        self._unfinished = unfinished
        self._over = asyncio.Event()

    def leave(self) -> None:
        """The client closes its connection."""
        self._over.set()

    async def receive(self) -> Message:
        self.received += 1
        if self.chunks:
            body = self.chunks.pop(0)
            more = bool(self.chunks) or self._unfinished
            return {"type": "http.request", "body": body, "more_body": more}
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if self.response.status:
                raise RuntimeError("response already started")
            self.response.status = message["status"]
            self.response.headers = {n.decode(): v.decode() for n, v in message["headers"]}
            return
        self.response.body += message.get("body", b"")
        if not message.get("more_body", False):
            self.response.complete = True
            self._over.set()


async def request(
    app: Application, method: str, path: str, *, json_body: Any = None, **options: Any
) -> Response:
    """The response of `app` to one request."""
    if json_body is not None:
        options["body"] = json.dumps(json_body).encode()
    connection = Connection(method, path, **options)
    await app(connection.scope, connection.receive, connection.send)
    return connection.response
