"""A Redis server for tests, which may stop it, kill it and start it again."""

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

START_SECONDS = 30.0


class RedisServer:
    """`redis-server` on a port of its own; what it knows is gone when it is killed."""

    def __init__(self, program: str, directory: Path) -> None:
        self._program = program
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            self.port: int = holder.getsockname()[1]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns once it answers."""
        arguments = [
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


@contextlib.contextmanager
def redis_server(directory: Path) -> Iterator[RedisServer]:
    """A running server. Skips where the program is not installed."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        pytest.skip("neither redis-server nor valkey-server is installed")
    server = RedisServer(program, directory)
    try:
        server.start()
        yield server
    finally:
        server.kill()
