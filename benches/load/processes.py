"""Child processes that never outlive the measurement."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from benches.load.accounting import cpu_seconds, pss_bytes

_PR_SET_PDEATHSIG = 1
_STOP_SECONDS = 5.0
_libc = ctypes.CDLL(None, use_errno=True)


class StartError(Exception):
    """A process did not come up."""


def free_port() -> int:
    """A TCP port of 127.0.0.1 on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def prepare_child(nice: int) -> Callable[[], None]:
    """What a child does before it becomes its program: it will end with this process, and takes its priority.

    Linux schedules whole sessions against each other first (autogroups, sched(7)): between sessions the
    priority of a process has no effect unless its session has it too. Raising either needs privileges.
    """

    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if nice:
            os.setpriority(os.PRIO_PROCESS, 0, nice)
            with contextlib.suppress(FileNotFoundError):
                Path("/proc/self/autogroup").write_text(str(nice))

    return prepare


class Process:
    """One child in a session of its own, with all that it starts. Its output goes to `log`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        cwd: Path,
        environment: Mapping[str, str] | None = None,
        nice: int = 0,
        stop_seconds: float = _STOP_SECONDS,
    ) -> None:
        """`stop_seconds`: for an orderly end, before it is killed."""
        self._stop_seconds = stop_seconds
        self._log = log
        with log.open("wb") as output:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                # Safe: this program has one thread.
                preexec_fn=prepare_child(nice),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)

    def pss_bytes(self) -> int:
        return pss_bytes(self.pid)

    def output(self) -> str:
        """The end of what it wrote."""
        return self._log.read_text(errors="replace")[-2000:]

    def stop(self) -> None:
        """Ask, wait, then kill; the whole process group, so that no worker stays."""
        if self.alive:
            self._child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(self._stop_seconds)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._child.wait()


def wait_until_ready(process: Process, ready: Callable[[], bool], seconds: float) -> None:
    """Poll `ready` until it holds. Raises StartError when the process ends first or time runs out."""
    deadline = time.monotonic() + seconds
    while not ready():
        if not process.alive:
            raise StartError(f"ended while starting:\n{process.output()}")
        if time.monotonic() > deadline:
            raise StartError(f"not ready after {seconds:g} s:\n{process.output()}")
        time.sleep(0.05)


class Ready:
    """Whether a chat completion sent to `port` is answered with 200."""

    _BODY = b'{"model":"bench","messages":[{"role":"user","content":"ready"}],"max_tokens":3}'

    def __init__(self, port: int, path: str, key: str | None) -> None:
        self._port = port
        head = f"authorization: Bearer {key}\r\n" if key else ""
        self._request = (
            f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
            f"connection: close\r\n{head}content-length: {len(self._BODY)}\r\n\r\n"
        ).encode() + self._BODY

    def __call__(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=5) as connection:
                connection.sendall(self._request)
                return connection.recv(64).split(b" ")[1:2] == [b"200"]
        except OSError:
            return False
