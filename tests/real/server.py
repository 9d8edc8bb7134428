"""What there is to know of a server that nobody here wrote; how it runs, in an environment of its own."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx

from harness.tiny_model import ANSWER

ROOT = Path(__file__).resolve().parents[2]
PLACES = ROOT / ".real"
HOST = "127.0.0.1"
STOP_SECONDS = 20.0

Api = Literal["chat", "responses", "messages"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server lives: its environment, what was written for it, and its port."""

    directory: Path
    port: int

    @property
    def python(self) -> Path:
        return self.directory / "venv" / "bin" / "python"

    @property
    def gguf(self) -> Path:
        return self.directory / "tiny.gguf"

    @property
    def hf(self) -> Path:
        return self.directory / "hf"

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    def program(self, name: str) -> str:
        """A program that the environment has."""
        return str(self.python.with_name(name))


@contextlib.asynccontextmanager
async def _nothing(directory: Path) -> AsyncIterator[str]:
    yield ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server.

    `requirements`: the arguments of each call of pip. `package`: the distribution whose version is told.
    `unresolvable`: beginnings of what the package requires and no registry has, or the server does without:
    it is installed without its requirements, then with the others.
    `behind`: runs what stands behind the server. `prepare` writes what the server loads, and is told what
    `behind` gave; `command` starts it on `HOST` and the place's port. `model`: what clients of the server
    itself call it. `apis`: what the server has, by its own account; `settings`: more of the upstream's
    configuration. `tools`, `stream_usage`: whether it parses calls, and tells the tokens of a stream;
    `codes`: whether Claude Code is run as well. `answer`: what it says. `refused`: members that it refuses;
    `long`: tokens of a reply that lasts until its client has left; 0: none does. `deviations`: what differs
    from the protocol, and what becomes of that; each a sentence or two of Markdown.
    """

    name: str
    title: str
    package: str
    requirements: Sequence[Sequence[str]]
    unresolvable: Sequence[str] = ()
    prepare: Callable[[Place, str], None]
    command: Callable[[Place], Sequence[str]]
    environ: Callable[[Place], Mapping[str, str]] = lambda place: {}
    behind: Callable[[Path], contextlib.AbstractAsyncContextManager[str]] = _nothing
    ready_path: str = "/v1/models"
    ready_seconds: float = 120.0
    model: Callable[[Place], str] = lambda place: "tiny"
    apis: tuple[Api, ...] = ("chat",)
    settings: Mapping[str, Any] = field(default_factory=dict)
    tools: bool = True
    stream_usage: bool = True
    codes: bool = False
    answer: str = ANSWER
    refused: Mapping[str, Any] = field(default_factory=lambda: {"temperature": "hot"})
    long: int = 0
    deviations: Sequence[str] = ()


def install(server: Server, *, upgrade: bool = False) -> Path:
    """The folder with the server's environment, made unless it is there with the same requirements."""
    directory = PLACES / server.name
    stamp = directory / "requirements.json"
    wanted = json.dumps([list(call) for call in server.requirements])
    if not upgrade and stamp.is_file() and stamp.read_text() == wanted:
        return directory
    subprocess.run([sys.executable, "-m", "venv", "--clear", directory / "venv"], check=True)
    pip: list[str | Path] = [
        directory / "venv" / "bin" / "python",
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
    ]
    for call in (["install", "--upgrade", "pip>=25.1"], *server.requirements):
        subprocess.run([*pip, *call], check=True)
    if server.unresolvable:
        subprocess.run([*pip, "install", "--no-deps", server.package], check=True)
        needed = _metadata(directory, f"*(m.requires({server.package!r}) or ()), sep='\\n'").splitlines()
        others = [line for line in needed if not line.startswith(tuple(server.unresolvable))]
        subprocess.run([*pip, "install", *others], check=True)
    stamp.write_text(wanted)
    return directory


def version(server: Server, directory: Path) -> str:
    """Of the server's package."""
    return _metadata(directory, f"m.version({server.package!r})")


def _metadata(directory: Path, shown: str) -> str:
    code = f"import importlib.metadata as m; print({shown})"
    python = directory / "venv" / "bin" / "python"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


class Running:
    """A server's process. It ends with its group, so that no worker of it stays."""

    def __init__(self, server: Server, place: Place, process: "subprocess.Popen[bytes]") -> None:
        self.server = server
        self.place = place
        self._process = process

    @property
    def base_url(self) -> str:
        """With `/v1`."""
        return f"http://{HOST}:{self.place.port}/v1"

    @property
    def model(self) -> str:
        return self.server.model(self.place)

    def kill(self) -> None:
        """End it as a crash would. Idempotent."""
        self._signal(signal.SIGKILL)
        self._process.wait(STOP_SECONDS)

    def stop(self) -> None:
        """End it in peace, or by force where it does not. Idempotent."""
        if self._process.poll() is None:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        self.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def wait_ready(self) -> None:
        url = f"http://{HOST}:{self.place.port}{self.server.ready_path}"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.server.ready_seconds), httpx.AsyncClient() as client:
                while self._process.poll() is None:
                    with contextlib.suppress(httpx.HTTPError):
                        if (await client.get(url)).status_code == 200:
                            return
                    await asyncio.sleep(0.2)
        raise AssertionError(f"{self.server.title} did not start\n{self.place.log.read_text()[-4000:]}")

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


@contextlib.asynccontextmanager
async def running(server: Server, directory: Path) -> AsyncIterator[Running]:
    """The server, once it answers."""
    async with server.behind(directory) as behind:
        place = Place(directory, _free_port())
        server.prepare(place, behind)
        run = Running(server, place, _start(server, place))
        try:
            await run.wait_ready()
            yield run
        finally:
            run.stop()


def _start(server: Server, place: Place) -> "subprocess.Popen[bytes]":
    with place.log.open("wb") as log:
        return subprocess.Popen(
            server.command(place),
            cwd=place.directory,
            env={**os.environ, **server.environ(place)},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((HOST, 0))
        port: int = free.getsockname()[1]
        return port
