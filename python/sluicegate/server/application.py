"""The application behind the front: on a Unix socket of our own."""

from typing import Any

from sluicegate.config import ServerConfig
from sluicegate.server.embedded import Embedded, SocketDirectory

BACKLOG = 4096

# The front keeps idle connections for less.
_HEAD_SECONDS = 75.0
# The front adds headers of its own to a request's.
_ADDED_HEAD_BYTES = 8 * 1024
_SMALLEST_BUFFER = 64 * 1024
# The application's share of a slow client's buffer. hyper takes no head larger than its buffer.
_BUFFER_PART = 4


class Application(Embedded):
    """An ASGI application, served at `path` to whoever may enter its directory: this user only."""

    def __init__(self, application: Any, settings: ServerConfig, connections: int) -> None:
        """Raises `OSError` where there can be no such socket."""
        self._directory = SocketDirectory("application")
        self.path = self._directory.socket
        super().__init__(
            application,
            self.path,
            backlog=BACKLOG,
            connections=connections,
            head_seconds=_HEAD_SECONDS,
            head_bytes=max(
                _SMALLEST_BUFFER,
                settings.bounds.head_bytes + _ADDED_HEAD_BYTES,
                settings.client_buffer_bytes // _BUFFER_PART,
            ),
        )

    async def stop(self) -> None:
        """End what it serves. Idempotent."""
        await super().stop()
        self.remove()

    def remove(self) -> None:
        """Take the socket and its directory away. Idempotent."""
        self._directory.remove()
