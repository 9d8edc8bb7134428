"""An ASGI application on this process's event loop: granian, on a Unix socket or an address.

It bounds the time of a request's head, closes idle connections, and bounds how many there are, so that what
is served by it need not.
"""

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

from sluicegate.server.address import Address

START_SECONDS = 10.0
STOP_SECONDS = 3.0

# What `sun_path` of a Unix socket's address holds, with the zero at its end.
_LONGEST_PATH = 107
_OWNER_ONLY = 0o600

_LOG: dict[str, Any] = {
    "handlers": {
        name: {"formatter": "generic", "class": "logging.StreamHandler", "stream": "ext://sys.stderr"}
        for name in ("console", "access")
    }
}


class SocketDirectory:
    """A directory that only this user may enter, for a Unix socket."""

    def __init__(self, name: str, parent: Path | None = None) -> None:
        """`name`: the socket's. `parent`: where it is made; None: among temporary files. Raises `OSError`
        where there can be no such socket.
        """
        # mkdtemp: readable, writable and searchable only by the creating user.
        self._directory = tempfile.mkdtemp(prefix="sluicegate-" if parent is None else ".", dir=parent)
        self.socket = Path(self._directory, name)
        if len(os.fsencode(self.socket)) > _LONGEST_PATH:
            self.remove()
            raise OSError(errno.ENAMETOOLONG, "too long for a Unix socket: set TMPDIR", str(self.socket))

    def remove(self) -> None:
        """Take the directory and what is in it away. Idempotent."""
        shutil.rmtree(self._directory, ignore_errors=True)


class Embedded:
    """A server of one application, on one socket."""

    def __init__(
        self,
        application: Any,
        place: Path | Address,
        *,
        backlog: int,
        connections: int,
        head_seconds: float,
        head_bytes: int,
        tls: dict[str, Any] | None = None,
    ) -> None:
        """`place`: a Unix socket that is not there yet, for this user alone, or an address that is held.

        `head_seconds` bounds a request's head, and the time for which a connection is idle. `tls`: granian's
        arguments.
        """
        self._place = place
        where = {"uds": place} if isinstance(place, Path) else {"address": place.host, "port": place.port}
        self._server = Server(
            application,
            **where,
            # Without a lifespan: the application begins and ends with the process, not with this server.
            interface=Interfaces.ASGINL,
            http=HTTPModes.http1,
            websockets=False,
            backlog=backlog,
            backpressure=connections,
            http1_settings=HTTP1Settings(
                header_read_timeout=int(head_seconds * 1000), max_buffer_size=head_bytes
            ),
            # Below that it says only that it is embedded.
            log_level=LogLevels.error,
            log_dictconfig=_LOG,
            log_access=False,
            **(tls or {}),
        )
        self._server.uds_permissions = _OWNER_ONLY
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
                    await self._connect()
                except (FileNotFoundError, ConnectionRefusedError):
                    await asyncio.sleep(0.005)
                    continue
                self._task.add_done_callback(lambda _: self._stopping or on_end())
                return
        raise RuntimeError("the application's server did not start")

    async def _connect(self) -> None:
        if isinstance(self._place, Path):
            _, writer = await asyncio.open_unix_connection(str(self._place))
        else:
            _, writer = await asyncio.open_connection(self._place.host, self._place.port)
        writer.close()

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
