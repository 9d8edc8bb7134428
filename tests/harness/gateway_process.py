"""A gateway as users run it: `python -m sluicegate serve` in a process of its own."""

import asyncio
import contextlib
import json
import os
import signal
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self

import httpx

from fakes.exposition import Samples
from harness.warm_start import WarmProcess, spawn_warm
from sluicegate.testing import ScriptedUpstream

START_SECONDS = 60.0
WAIT_SECONDS = 30.0

Line = dict[str, Any]

_READ_AT_START = {"PYTHONPATH", "LD_PRELOAD"}
"""What counts only for a process that starts from nothing."""


@cache
def _trust() -> ssl.SSLContext:
    """The certificates that this machine trusts. A client that reads them itself takes 25 ms for it."""
    return httpx.create_ssl_context()


class GatewayProcess:
    """A running gateway and what it has said.

    Every wait is bounded and raises `TimeoutError` (with what the process wrote) instead of hanging.
    """

    def __init__(
        self, process: asyncio.subprocess.Process | WarmProcess, *, verify: ssl.SSLContext | bool = True
    ) -> None:
        self._verify = _trust() if verify is True else verify
        self._process = process
        self._lines: list[Line] = []
        self._stderr = bytearray()
        self._changed = asyncio.Event()
        self._open_pipes = 2
        self._readers = [
            asyncio.ensure_future(self._read_lines()),
            asyncio.ensure_future(self._read_stderr()),
        ]
        self._client: httpx.AsyncClient | None = None
        self.config_file = Path()
        self.base_url = ""
        """`http://127.0.0.1:port`, without a slash at the end."""
        self.may_complain = False
        """Set by tests that make the process write tracebacks on purpose."""

    @classmethod
    async def start(
        cls,
        config: Mapping[str, Any],
        directory: Path,
        environ: Mapping[str, str] | None = None,
        *,
        verify: ssl.SSLContext | bool = True,
        launcher: Sequence[str] = ("sluicegate", "serve", "--config"),
    ) -> Self:
        """Run a gateway with `config`, on a free port unless it names one; returns once it is ready.

        `verify`: how a client of it checks its certificate. `launcher`: the module that is run, and its
        arguments up to the configuration's path.
        """
        server = {"host": "127.0.0.1", "port": 0, **config.get("server", {})}
        server["log"] = {"format": "json", **server.get("log", {})}
        path = directory / "gateway.yaml"
        # JSON is YAML.
        responses = {"path": str(directory / "responses.db"), **config.get("responses", {})}
        path.write_text(json.dumps({**config, "server": server, "responses": responses}))
        module, *arguments = launcher
        # Nothing of whoever runs the tests.
        environ = {"STATE_DIRECTORY": str(directory), **(environ or {})}
        process: asyncio.subprocess.Process | WarmProcess
        if _READ_AT_START & environ.keys():
            process = await spawn(*arguments, str(path), environ=environ, module=module)
        else:
            process = await spawn_warm(module, *arguments, str(path), environ={**os.environ, **environ})
        gateway = cls(process, verify=verify)
        gateway.config_file = path
        try:
            listening = await gateway.wait_line(event="listening", seconds=START_SECONDS)
            gateway.base_url = listening["address"]
            await gateway._wait_ready()
        except BaseException:
            await gateway.kill()
            raise
        return gateway

    # === talking to it ===

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.base_url.partition("://")[2].partition(":")
        return host, int(port)

    @property
    def api_url(self) -> str:
        """What OpenAI's clients call `base_url`."""
        return f"{self.base_url}/v1"

    @property
    def client(self) -> httpx.AsyncClient:
        """A client of it, with timeouts; closed with it."""
        if self._client is None:
            self._client = httpx.AsyncClient(base_url=self.base_url, timeout=30.0, verify=self._verify)
        return self._client

    async def metrics(self) -> Samples:
        response = await self.client.get("/metrics")
        response.raise_for_status()
        return Samples(response.text)

    async def wait_metrics(
        self, condition: Callable[[Samples], bool], seconds: float = WAIT_SECONDS
    ) -> Samples:
        """Scrape until `condition` holds: what was done a moment ago may show a moment later."""
        samples: Samples | None = None
        try:
            async with asyncio.timeout(seconds):
                while True:
                    samples = await self.metrics()
                    if condition(samples):
                        return samples
                    await asyncio.sleep(0.05)
        except TimeoutError:
            text = "" if samples is None else samples.text
            raise TimeoutError(f"the condition never held in\n{text}") from None

    # === what it says ===

    @property
    def lines(self) -> list[Line]:
        """The log so far."""
        return list(self._lines)

    @property
    def stderr(self) -> str:
        return self._stderr.decode("utf-8", "replace")

    def find(self, **fields: Any) -> list[Line]:
        """The lines so far that have these fields."""
        return [line for line in self._lines if fields.items() <= line.items()]

    async def wait_line(self, count: int = 1, seconds: float = WAIT_SECONDS, **fields: Any) -> Line:
        """The `count`th line with these fields, as soon as there is one."""
        try:
            async with asyncio.timeout(seconds):
                while len(found := self.find(**fields)) < count:
                    if not self._open_pipes:
                        raise AssertionError(f"the gateway ended without {fields}\n{self.transcript()}")
                    self._changed.clear()
                    await self._changed.wait()
                return found[count - 1]
        except TimeoutError:
            raise TimeoutError(f"no line with {fields} in {seconds} s\n{self.transcript()}") from None

    async def wait_request(self, count: int = 1, **fields: Any) -> Line:
        """The line of the `count`th request that is over and has these fields."""
        return await self.wait_line(count, event="request", **fields)

    def transcript(self) -> str:
        """All that it wrote, for people."""
        return "\n".join([*(json.dumps(line) for line in self._lines), self.stderr])

    # === its life ===

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def private_memory(self) -> int:
        """Bytes of memory that it holds and that no file stands behind."""
        return self._status("RssAnon")

    def _status(self, name: str) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        [size] = [line for line in status.splitlines() if line.startswith(f"{name}:")]
        return int(size.split()[1]) * 1024

    def restart_peak(self) -> None:
        """Let `peak_memory` begin anew."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    @property
    def peak_memory(self) -> int:
        """The most bytes of memory that it held at any moment since `restart_peak`."""
        return self._status("VmHWM")

    @property
    def proportional_memory(self) -> int:
        """Bytes of memory, of which what is shared with other processes counts by its share (PSS)."""
        rollup = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        [size] = [line for line in rollup.splitlines() if line.startswith("Pss:")]
        return int(size.split()[1]) * 1024

    @property
    def running(self) -> bool:
        return self._process.returncode is None

    async def tell(self, command: str) -> None:
        """One line to its standard input, which `harness.faulty_gateway` reads."""
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(f"{command}\n".encode())
        await stdin.drain()

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Signal the process."""
        self._process.send_signal(number)

    async def wait(self, seconds: float = WAIT_SECONDS) -> int:
        """Its exit status, once it has ended by itself."""
        try:
            async with asyncio.timeout(seconds):
                status = await self._process.wait()
                await asyncio.gather(*self._readers)
                return status
        except TimeoutError:
            raise TimeoutError(f"still running after {seconds} s\n{self.transcript()}") from None

    async def stop(self, seconds: float = WAIT_SECONDS) -> int:
        """End it as a supervisor would; its exit status. Idempotent."""
        if self.running:
            self.signal()
        await self.close_client()
        return await self.wait(seconds)

    async def kill(self) -> None:
        """End it at once. Idempotent."""
        await self.close_client()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        await self._process.wait()
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def close_client(self) -> None:
        """Give up the connections of `client`, which is a new one from now on."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _wait_ready(self) -> None:
        async with asyncio.timeout(START_SECONDS):
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if (await self.client.get("/readyz")).status_code == 200:
                        return
                if not self.running:
                    raise AssertionError(f"the gateway did not start\n{self.transcript()}")
                await asyncio.sleep(0.02)

    async def _read_lines(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        while text := await stdout.readline():
            try:
                self._lines.append(json.loads(text))
            except ValueError:
                self._lines.append({"event": "not json", "text": text.decode("utf-8", "replace")})
            self._changed.set()
        self._closed_pipe()

    async def _read_stderr(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        while text := await stderr.read(65536):
            self._stderr += text
        self._closed_pipe()

    def _closed_pipe(self) -> None:
        self._open_pipes -= 1
        self._changed.set()


StartGateway = Callable[..., Awaitable[GatewayProcess]]
StartUpstream = Callable[..., Awaitable[ScriptedUpstream]]


async def spawn(
    *arguments: str, environ: Mapping[str, str] | None = None, module: str = "sluicegate"
) -> asyncio.subprocess.Process:
    """`python -m` with `module`, by default `sluicegate`, and `arguments`.

    In a process group of its own: none of it outlives a test.
    """
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(environ or {})},
        start_new_session=True,
        limit=1 << 20,
    )


async def run_command(*arguments: str) -> tuple[int, bytes, bytes]:
    """`sluicegate` with `arguments`, to its end: its status, and what it printed as output and as errors."""
    process = await spawn_warm("sluicegate", *arguments, environ=os.environ)
    process.stdin.close()
    try:
        async with asyncio.timeout(60):
            out, err = await asyncio.gather(process.stdout.read(), process.stderr.read())
            return await process.wait(), out, err
    finally:
        process.send_signal(signal.SIGKILL)


async def stop_all(started: Iterable[GatewayProcess]) -> None:
    """End all of `started` as a supervisor would, and whatever does not end in time by force."""
    processes = list(started)
    try:
        await asyncio.gather(*(process.stop() for process in processes))
    finally:
        for process in processes:
            await process.kill()
