"""The address to listen on, held for the workers."""

import errno
import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Address:
    """`host` is an IP address: the server takes no names. `holder` keeps the port for us until the end."""

    host: str
    port: int
    holder: socket.socket

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def hold_address(host: str, port: int) -> Address:
    """Resolve `host`, and take `port` (0: a free one) without listening on it.

    Each worker listens on a socket of its own (SO_REUSEPORT). Two gateways started by mistake on one port
    would share its connections in silence, so this first makes sure that nobody has it.
    Raises `OSError`.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    if port:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    holder = socket.socket(family, kind, protocol)
    try:
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
        bound = holder.getsockname()
    except OSError:
        holder.close()
        raise
    return Address(str(bound[0]), int(bound[1]), holder)
