"""The address to listen on, held before anything else is begun."""

import errno
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Address:
    """`host` is an IP address. `holder` keeps the port for us until the front listens on it."""

    host: str
    port: int
    holder: socket.socket

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def release(self) -> None:
        """Hold it no more. Idempotent."""
        self.holder.close()


def hold_address(host: str, port: int, *, shared: bool = False) -> Address:
    """Resolve `host`, and take `port` (0: a free one) without listening on it.

    Each thread listens on a socket of its own (SO_REUSEPORT), and so may other processes. Two gateways that
    were started by mistake on one port would share its connections in silence, so this first makes sure that
    nobody has it, unless it may be `shared`. Raises `OSError`.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    if port and not shared:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    holder = socket.socket(family, kind, protocol)
    try:
        _bind(holder, address)
        bound = holder.getsockname()
    except OSError:
        holder.close()
        raise
    return Address(str(bound[0]), int(bound[1]), holder)


def hold_first(host: str, ports: Sequence[int], *, shared: bool = False) -> Address:
    """The first of `ports` that is free. Raises `OSError`: what the last one said."""
    for port in ports[:-1]:
        try:
            return hold_address(host, port, shared=shared)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    return hold_address(host, ports[-1], shared=shared)


def _bind(holder: socket.socket, address: Any) -> None:
    if hasattr(socket, "SO_REUSEPORT"):
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        # Without SO_REUSEADDR the port is taken for another gateway's probe, though nobody listens yet.
        holder.bind(address)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        # Connections of whatever served here before are not forgotten yet (TIME_WAIT).
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(address)
