"""The application behind the front: granian in this process, on a Unix socket of our own."""

import asyncio
import errno
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server.embed import Server

from sluicegate.config import ServerConfig

BACKLOG = 4096
START_SECONDS = 10.0
STOP_SECONDS = 3.0

# The front keeps idle connections for less.
_HEAD_MS = 75_000
# The front adds headers of its own to a request's.
_ADDED_HEAD_BYTES = 8 * 1024
_SMALLEST_BUFFER = 64 * 1024
# The application's share of a slow client's buffer. hyper takes no head larger than its buffer.
_BUFFER_PART = 4
# What `sun_path` of a Unix socket's address holds, with the zero at its end.
_LONGEST_PATH = 107

_LOG: dict[str, Any] = {
    "handlers": {
        name: {"formatter": "generic", "class": "logging.StreamHandler", "stream": "ext://sys.stderr"}
        for name in ("console", "access")
    }
}


class Application:
    """An ASGI application, served at `path` to whoever may enter its directory: this user only."""

    def __init__(self, application: Any, settings: ServerConfig, connections: int) -> None:
        """Raises `OSError` where there can be no such socket."""
        # mkdtemp: readable, writable and searchable only by the creating user.
        self._directory = tempfile.mkdtemp(prefix="sluicegate-")
        self.path = Path(self._directory, "application")
        if len(os.fsencode(self.path)) > _LONGEST_PATH:
            self.remove()
            raise OSError(errno.ENAMETOOLONG, "too long for a Unix socket: set TMPDIR", str(self.path))
        self._server = Server(
            application,
            uds=self.path,
            # Without a lifespan: the application begins and ends with the process, not with this server.
            interface=Interfaces.ASGINL,
            http=HTTPModes.http1,
            websockets=False,
            backlog=BACKLOG,
            backpressure=connections,
            http1_settings=HTTP1Settings(
                header_read_timeout=_HEAD_MS,
                max_buffer_size=max(
                    _SMALLEST_BUFFER,
                    settings.bounds.head_bytes + _ADDED_HEAD_BYTES,
                    settings.client_buffer_bytes // _BUFFER_PART,
                ),
            ),
            # Below that it says only that it is embedded.
            log_level=LogLevels.error,
            log_dictconfig=_LOG,
            log_access=False,
        )
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self, on_end: Callable[[], object]) -> None:
        """Serve on this loop; returns once connections are accepted. Raises `RuntimeError`, `TimeoutError`.

        `on_end` is called where it ends before `stop`.
        """
        self._task = asyncio.get_running_loop().create_task(self._server.serve())
        async with asyncio.timeout(START_SECONDS):
            while not self._task.done():
                try:
                    _, writer = await asyncio.open_unix_connection(str(self.path))
                except (FileNotFoundError, ConnectionRefusedError):
                    await asyncio.sleep(0.005)
                    continue
                writer.close()
                self._task.add_done_callback(lambda _: self._stopping or on_end())
                return
        raise RuntimeError("the application's server did not start")

    async def stop(self) -> None:
        """End what it serves. Idempotent."""
        self._stopping = True
        # What still runs is cut on purpose, and granian would call that an error.
        logging.getLogger("_granian").setLevel(logging.CRITICAL)
        task, self._task = self._task, None
        if task is not None:
            self._server.stop()  # type: ignore[no-untyped-call]
            await asyncio.wait((task,), timeout=STOP_SECONDS)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self.remove()

    def remove(self) -> None:
        """Take the socket and its directory away. Idempotent."""
        shutil.rmtree(self._directory, ignore_errors=True)
