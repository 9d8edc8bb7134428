"""A PostgreSQL server for tests: the one that `SLUICEGATE_TEST_POSTGRES` names, or one started here."""

import asyncio
import contextlib
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import pytest

from harness import needed

_START_SECONDS = 30


class OwnServer:
    """A server that was started here, with a database of its own."""

    def __init__(self, run: Callable[..., None], url: str, start: Sequence[str]) -> None:
        self._run = run
        self._start = start
        self.url = url
        """Of the default database."""

    def start(self) -> None:
        self._run("pg_ctl", *self._start, "start")

    def kill(self) -> None:
        """All of its processes at once, whatever they were doing."""
        self._run("pg_ctl", *self._start, "-m", "immediate", "stop")


@contextlib.contextmanager
def server() -> Iterator[str]:
    """The URL of a server's default database. Skips where there is neither a URL nor the programs."""
    if url := os.environ.get("SLUICEGATE_TEST_POSTGRES"):
        yield url
        return
    with killable() as own:
        yield own.url


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a server's default database; one server for all tests of a process."""
    with server() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of a database of one's own, which is empty."""
    with database(postgres_server) as url:
        yield url


@contextlib.contextmanager
def killable() -> Iterator[OwnServer]:
    """A server that a test may kill and start again. Skips where the programs are not installed."""
    programs = _programs()
    if programs is None:
        needed.lacking(needed.POSTGRESQL)
    user = _user()
    # Not below pytest's own directory, which only its owner may enter; and a socket's path must be short.
    directory = Path(tempfile.mkdtemp(prefix="sluicegate-pg-"))
    try:
        if user is not None:
            shutil.chown(directory, user)
        data = directory / "data"

        def run(program: str, *arguments: str) -> None:
            subprocess.run(
                [programs / program, *arguments],
                check=True,
                capture_output=True,
                user=user,
                cwd=directory,
                timeout=_START_SECONDS,
            )

        run("initdb", "-D", str(data), "-U", "test", "-A", "trust", "--no-sync", "-E", "UTF8")
        port = _free_port()
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
        start = ("-D", str(data), "-w", "-l", str(directory / "log"), "-o", options)
        own = OwnServer(run, f"postgresql://test@127.0.0.1:{port}/postgres", start)
        own.start()
        try:
            yield own
        finally:
            with contextlib.suppress(subprocess.CalledProcessError):  # A test has killed it.
                own.kill()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def database(server_url: str) -> Iterator[str]:
    """The URL of an empty database that is dropped afterwards."""
    name = f"test_{secrets.token_hex(6)}"
    # Copying files costs half of what PostgreSQL does otherwise, with a log of every page.
    _execute(server_url, f"CREATE DATABASE {name} STRATEGY FILE_COPY")
    try:
        yield f"{server_url.rpartition('/')[0]}/{name}"
    finally:
        _execute(server_url, f"DROP DATABASE {name} WITH (FORCE)")


async def allow(server: str, url: str, *, connections: bool) -> None:
    """Let nobody into the database, or everybody again."""
    name = url.rpartition("/")[2]
    connection = await asyncpg.connect(server)
    try:
        await connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {str(connections).lower()}")
        if not connections:
            end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1"
            await connection.execute(end, name)
    finally:
        await connection.close()


def ask_for_password(url: str, role: str, password: str) -> None:
    """Make a role that may connect with this password only, at a server that was started here."""
    _execute(url, f"CREATE ROLE {role} LOGIN PASSWORD '{password}'")
    rules = Path(_execute(url, "SHOW hba_file"))
    rules.write_text(f"host all {role} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
    _execute(url, "SELECT pg_reload_conf()")


def _execute(url: str, statement: str) -> str:
    async def execute() -> str:
        connection = await asyncpg.connect(url)
        try:
            return str(await connection.fetchval(statement))
        finally:
            await connection.close()

    # In a thread: the test's own loop may be running in this one.
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, execute()).result(_START_SECONDS)


def _programs() -> Path | None:
    found = shutil.which("pg_ctl")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


def _user() -> str | None:
    """Whom the server runs as: it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    pytest.skip("PostgreSQL does not run as root, and there is no other user")


def _free_port() -> int:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        return port
