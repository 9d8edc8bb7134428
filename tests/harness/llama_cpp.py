"""llama.cpp's own HTTP server, as a wheel brings it, in a process of its own.

Run as a program (`python llama_cpp.py MODEL.gguf PORT CONTEXT`) this file is that process. It ends with its
standard input, so it never outlives whoever started it.
"""

import contextlib
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

NAME = "tiny"
"""What the server calls its model."""
CONTEXT = 16_384
"""Tokens of prompt and reply together: with one slot's worth the longest reply takes seconds."""
SLOTS = 4
"""Requests that are served at once; more wait their turn."""

START_SECONDS = 30.0
STOP_SECONDS = 10.0


class LlamaCppProcess:
    """A running server. Its log is the file `log`."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self._process = process
        self._log = log
        self.base_url = ""
        """With `/v1`, without a slash at the end."""

    @property
    def port(self) -> int:
        port = urlsplit(self.base_url).port
        assert port is not None
        return port

    @classmethod
    def start(cls, model: Path, log: Path, port: int = 0, context: int | None = None) -> Self:
        """Serve `model` (GGUF), on a free port unless one is given; returns once it answers.

        `context`: tokens of prompt and reply together, in place of `CONTEXT`.
        """
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, __file__, str(model), str(port), str(context or CONTEXT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        server = cls(process, log)
        try:
            server.base_url = f"{server._address()}/v1"
        except BaseException:
            server.kill()
            raise
        return server

    def _address(self) -> str:
        stdout = self._process.stdout
        assert stdout is not None
        ready, _, _ = select.select([stdout], [], [], START_SECONDS)
        address = stdout.readline().strip() if ready else ""
        if not address.startswith("http://"):
            raise AssertionError(f"llama.cpp's server did not start\n{self._log.read_text()[-4000:]}")
        return address

    def stop(self) -> None:
        """End it in peace. Idempotent."""
        with contextlib.suppress(BrokenPipeError):
            self._close_pipes()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def freeze(self) -> None:
        """Have it do nothing, as a server does whose machine hangs: its connections stay."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Have it go on. Also where it is not frozen."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a crash would: at once, its connections cut. Idempotent."""
        self._process.send_signal(signal.SIGKILL)
        with contextlib.suppress(BrokenPipeError):
            self._close_pipes()
        self._process.wait(STOP_SECONDS)

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def serve(model: str, port: int, context: int) -> None:
    """Serve `model` from this process, and print the address once it answers."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = [NAME]
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_parallel = SLOTS
    params.n_ctx = context * SLOTS
    params.cpuparams.n_threads = 1
    # A connection holds one for as long as it is kept alive.
    params.n_threads_http = 128
    params.warmup = False
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
