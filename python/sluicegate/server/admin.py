"""The listeners of the admin API: an address, for whoever has a token, and a Unix socket of this user's."""

import asyncio
import contextlib
import errno
import os
import secrets
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from granian.constants import SSLProtocols

from sluicegate.admin import SOCKET, Guard, HostRule, Identity, Tokens, Watched, admin_api
from sluicegate.config import AdminConfig, StorageConfig, TlsConfig
from sluicegate.identity import open_callers
from sluicegate.server.address import Address, hold_address
from sluicegate.server.certificate import check_certificate
from sluicegate.server.embedded import STOP_SECONDS, Embedded, SocketDirectory
from sluicegate.storage import storage_directory
from sluicegate.telemetry import Log

TOKEN_FILE = "admin.token"  # noqa: S105
_TOKEN_BYTES = 32

# Whoever has no token can hold this many connections for as long as a request's head may take.
CONNECTIONS = 256
HEAD_SECONDS = 30.0
HEAD_BYTES = 64 * 1024
BACKLOG = 256
_CONNECT_SECONDS = 1.0


class AdminListener:
    """What serves the admin API of one gateway. It takes its address when it is made."""

    def __init__(
        self, config: AdminConfig, storage: StorageConfig, gateway: Watched, log: Log, *, shared: bool = False
    ) -> None:
        """`shared`: another process may have the port, and the socket, which is this one's from now on.

        Raises `ConfigurationError`, and `OSError` where an address or a file cannot be had.
        """
        self._config = config
        self._log = log
        if config.tls is not None:
            check_certificate(config.tls, "admin.tls")
        self._address: Address | None = None
        self._socket: Path | None = None
        self._directory: SocketDirectory | None = None
        self._inode: int | None = None
        """Of the socket, once it is in its place."""
        self._servers: list[Embedded] = []
        self._token_file: Path | None = None
        self._callers = open_callers(storage)
        application = admin_api(gateway, self._callers)
        try:
            if config.socket is not None:
                self._socket = Path(config.socket)
                _make_way(self._socket, shared=shared)
                self._directory = SocketDirectory("s", self._socket.parent)
                identity = Identity(SOCKET, "operate")
                guard = Guard(application, log, hosts=None, tokens=None, identity=identity)
                self._servers.append(_server(guard, self._directory.socket, None))
            if config.port is not None:
                self._address = hold_address(config.host, config.port, shared=shared)
                hosts = HostRule(self._address.host, (config.host, *config.hosts))
                guard = Guard(
                    application,
                    log,
                    hosts=hosts,
                    tokens=self._tokens(storage),
                    refused=gateway.count_wrong_token,
                )
                self._servers.append(_server(guard, self._address, config.tls))
        except BaseException:
            self.release()
            raise

    def _tokens(self, storage: StorageConfig) -> Tokens:
        configured = self._config.tokens
        if configured:
            return Tokens(
                (each.token.get_secret_value(), Identity(each.name, each.role)) for each in configured
            )
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._token_file = storage_directory(storage) / TOKEN_FILE
        _write_privately(self._token_file, token + "\n")
        return Tokens([(token, Identity(TOKEN_FILE, "operate"))])

    async def start(self) -> None:
        """Serve on this loop; returns once connections are accepted. Raises `RuntimeError`, `OSError`."""
        for server in self._servers:
            await server.start(self._ended)
        address = None
        if self._address is not None:
            scheme = "http" if self._config.tls is None else "https"
            address = f"{scheme}://{self._address}"
            # The server has it now.
            self._address.release()
        if self._socket is not None and self._directory is not None:
            # In one step, and with its mode: nobody else can have opened it in between.
            self._inode = self._directory.socket.stat().st_ino
            self._directory.socket.rename(self._socket)
            self._directory.remove()
        self._log.info(
            "admin_listening",
            address=address,
            socket=None if self._socket is None else str(self._socket),
            token_file=None if self._token_file is None else str(self._token_file),
        )

    def _ended(self) -> None:
        self._log.error("admin_ended", message="the admin API's server ended; requests are served on")

    async def stop(self) -> None:
        """End what is served. Idempotent."""
        for server in self._servers:
            await server.stop()
        # A server that says nothing is not waited for.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await self._callers.close()
        self.release()

    def release(self) -> None:
        """Hold nothing any more. Idempotent."""
        if self._address is not None:
            self._address.release()
        if self._directory is not None:
            self._directory.remove()
            self._directory = None
        if self._socket is not None and self._inode is not None:
            # Another process may have put its own there.
            with contextlib.suppress(FileNotFoundError):
                if self._socket.lstat().st_ino == self._inode:
                    self._socket.unlink()
            self._inode = None


def _server(guard: Guard, place: Path | Address, tls: TlsConfig | None) -> Embedded:
    return Embedded(
        guard,
        place,
        backlog=BACKLOG,
        connections=CONNECTIONS,
        head_seconds=HEAD_SECONDS,
        head_bytes=HEAD_BYTES,
        tls=None if tls is None else _tls_arguments(tls),
    )


def _tls_arguments(tls: TlsConfig) -> dict[str, Any]:
    ca = tls.client_ca_file
    return {
        "ssl_cert": Path(tls.cert_file),
        "ssl_key": Path(tls.key_file),
        "ssl_key_password": None if tls.key_password is None else tls.key_password.get_secret_value(),
        "ssl_protocol_min": SSLProtocols.tls12 if tls.min_version == "1.2" else SSLProtocols.tls13,
        "ssl_ca": None if ca is None else Path(ca),
        "ssl_client_verify": ca is not None,
    }


def _make_way(path: Path, *, shared: bool) -> None:
    """Make sure that a socket can be put at `path`. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "there is a file that is no socket", str(path))
    if shared:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        # What a process that was killed has left refuses.
        with contextlib.suppress(ConnectionRefusedError):
            probe.connect(str(path))
            raise OSError(errno.EADDRINUSE, "another process listens on it", str(path))


def _write_privately(path: Path, text: str) -> None:
    """Put `text` at `path`, at no moment readable by others. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _removed_on_failure(path.parent) as (descriptor, made):
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        made.replace(path)


@contextlib.contextmanager
def _removed_on_failure(directory: Path) -> Iterator[tuple[int, Path]]:
    # mkstemp: readable and writable only by the creating user.
    descriptor, name = tempfile.mkstemp(dir=directory, prefix=".")
    try:
        yield descriptor, Path(name)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
