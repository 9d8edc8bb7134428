"""Gateways that start without importing everything again: forks of one process that has imported it already.

To import the package and its libraries costs half a second of CPU, and the tests start some four hundred
gateways. Each process that runs tests has one *nursery*, which has imported them, has no other thread, and
forks for each gateway. The fork does what `python -m MODULE ARGUMENTS` does from there on. How a gateway
starts from nothing is tested where `spawn` of `harness.gateway_process` is called.

`python -m harness.warm_start DESCRIPTOR` is the nursery: it serves the Unix socket with that number, and ends
when the other end is closed.
"""

import asyncio
import atexit
import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path

MODULES = (
    "sluicegate.cli",
    "sluicegate.gateway",
    "sluicegate.server.running",
    "sluicegate.server.admin",
    "asyncpg",
    "redis.asyncio",
)
"""What is imported before the first fork; `__main__` is run anew in each."""
START_SECONDS = 60.0
LARGEST_ORDER = 1 << 20
"""Bytes: arguments and environment."""


class WarmProcess:
    """A process that the nursery has forked, as `asyncio.subprocess.Process` is."""

    def __init__(
        self,
        pid: int,
        stdin: asyncio.StreamWriter,
        stdout: asyncio.StreamReader,
        stderr: asyncio.StreamReader,
        ended: asyncio.StreamReader,
    ) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None
        self._end = asyncio.ensure_future(self._read_status(ended))

    async def wait(self) -> int:
        return await asyncio.shield(self._end)

    def send_signal(self, number: int) -> None:
        """Nothing happens where it has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def _read_status(self, ended: asyncio.StreamReader) -> int:
        self.returncode = int(await ended.read() or -signal.SIGKILL)
        self.stdin.close()
        return self.returncode


async def spawn_warm(module: str, *arguments: str, environ: Mapping[str, str]) -> WarmProcess:
    """`python -m module arguments` in a process group of its own. `environ`: its whole environment."""
    order = json.dumps({"module": module, "arguments": arguments, "environ": dict(environ)})
    stdin, stdout, stderr, ended = os.pipe(), os.pipe(), os.pipe(), os.pipe()
    given = [stdin[0], stdout[1], stderr[1], ended[1]]
    try:
        pid = await asyncio.to_thread(_nursery().fork, order.encode(), given)
    finally:
        for descriptor in given:
            os.close(descriptor)
    return WarmProcess(
        pid, await _writer(stdin[1]), *[await _reader(end[0]) for end in (stdout, stderr, ended)]
    )


async def _reader(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
    )
    return reader


async def _writer(descriptor: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(descriptor, "wb", 0)
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)


class _Nursery:
    """The process that forks, seen from the tests."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(START_SECONDS)
        for end in (self._socket, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST_ORDER)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "harness.warm_start", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            )
        atexit.register(self._close)

    def fork(self, order: bytes, descriptors: list[int]) -> int:
        """The process id of what was ordered. Blocks while the nursery still imports."""
        with self._turn:
            socket.send_fds(self._socket, [order], descriptors)
            answer = self._socket.recv(64)
        if not answer:
            raise RuntimeError("the nursery of gateways has ended")
        return int(answer)

    def _close(self) -> None:
        self._socket.close()
        self._process.wait(30)


@cache
def _nursery() -> _Nursery:
    return _Nursery()


# === in the nursery ===


def serve(orders: socket.socket) -> None:
    """Fork for each order that comes, and tell how each fork ended. Returns in the forks, ready to go on."""
    waiting = select.poll()
    waiting.register(orders, select.POLLIN)
    ends: dict[int, tuple[int, int]] = {}
    while True:
        for descriptor, _ in waiting.poll():
            if descriptor != orders.fileno():
                pid, ended = ends.pop(descriptor)
                waiting.unregister(descriptor)
                os.close(descriptor)
                with contextlib.suppress(BrokenPipeError):
                    os.write(ended, str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
                os.close(ended)
                continue
            text, given, _, _ = socket.recv_fds(orders, LARGEST_ORDER, 4)
            if not text:
                sys.exit()
            pid = os.fork()
            if pid == 0:
                for inherited, (_, ended) in ends.items():
                    os.close(inherited)
                    os.close(ended)
                _become(json.loads(text), given)
                # From now on it can be told what to do, and ended with all that it starts.
                orders.send(str(os.getpid()).encode())
                orders.close()
                return
            for number in given[:3]:
                os.close(number)
            watched = os.pidfd_open(pid)
            ends[watched] = pid, given[3]
            waiting.register(watched, select.POLLIN)


def _become(order: dict[str, object], given: list[int]) -> None:
    os.setsid()
    for number, descriptor in enumerate(given[:3]):
        os.dup2(descriptor, number)
    for descriptor in given:
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(order["environ"])  # type: ignore[call-overload]
    sys.argv = [str(order["module"]), *order["arguments"]]  # type: ignore[misc]


def main() -> None:
    for name in MODULES:
        __import__(name)
    # Most configurations need the list of prices, which takes longer to read than all else that a fork does.
    from genai_prices.data_snapshot import get_snapshot

    get_snapshot()
    # Each gateway searches its objects for garbage once: not those that all of them share.
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as orders:
        serve(orders)
    module = sys.argv[0]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
