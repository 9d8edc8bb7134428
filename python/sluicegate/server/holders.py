"""Which process listens on a port of this machine, as far as Linux lets this user see it."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_LISTENING = "0A"
_SOCKET = re.compile(r"socket:\[(\d+)\]")


def holder_of(port: int, proc: Path = _PROC) -> str | None:
    """`NAME (pid N)` of a process that listens on TCP `port`; None where that cannot be told."""
    inodes = set(_inodes(port, proc))
    if not inodes:
        return None
    for process in sorted(proc.glob("[0-9]*")):
        if inodes & set(_sockets(process)):
            with contextlib.suppress(OSError):
                name = (process / "comm").read_text().strip()
                return f"{name} (pid {process.name})"
    return None


def _sockets(process: Path) -> Iterator[str]:
    """The inodes of the sockets that a process has open."""
    with contextlib.suppress(OSError):  # It has ended, or is another user's.
        for link in (process / "fd").iterdir():
            with contextlib.suppress(OSError):  # It has been closed meanwhile.
                if found := _SOCKET.fullmatch(str(link.readlink())):
                    yield found[1]


def _inodes(port: int, proc: Path) -> Iterator[str]:
    """The inodes of listening sockets, from the kernel's tables (proc(5))."""
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]
