"""A Redis server for tests, which may stop it, kill it and start it again."""

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import redis

from harness import needed

START_SECONDS = 30.0


class RedisServer:
    """`redis-server` on a port of its own; what it knows is gone when it is killed."""

    def __init__(self, program: str, directory: Path, arguments: Sequence[str]) -> None:
        self._program = program
        self._directory = directory
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns once it answers."""
        arguments = [
            *self._arguments,
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(self._directory),
        ]
        with (self._directory / "redis.log").open("ab") as log:
            self._process = subprocess.Popen([self._program, *arguments], stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                with contextlib.closing(self.client()) as client:
                    client.ping()
                    return
            except redis.ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def client(self) -> "redis.Redis":
        return redis.Redis(port=self.port)

    def hang(self) -> None:
        """Let it answer nothing, with its connections open, until `go_on`."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(START_SECONDS)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)


def free_port() -> int:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        return port


@contextlib.contextmanager
def redis_server(directory: Path, *arguments: str) -> Iterator[RedisServer]:
    """A running server, which is given these arguments, too. Skips where the program is not installed."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        needed.lacking(needed.REDIS)
    server = RedisServer(program, directory, arguments)
    try:
        server.start()
        yield server
    finally:
        server.kill()
