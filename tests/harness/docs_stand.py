"""Where the blocks of the documentation are run: a gateway for each page, and a folder for each block.

A page names ports 8080 and 18101, as a reader has them; here they are replaced by free ones.
"""

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import socket
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml

from harness.gateway_process import GatewayProcess
from harness.markdown_blocks import Block, blocks, pages
from sluicegate.config import NEED_RESTART
from sluicegate.testing import Script, ScriptedUpstream, script_from

ADMIN_TOKEN = "test-admin-token"  # Of the variable that pages name.

SECONDS = 40.0
"""For one block, waiting for the processes that it starts included."""

DEFAULT: dict[str, Any] = {
    "upstreams": {"mock": {"base_url": "http://127.0.0.1:18101/v1"}},
    "models": {"tiny": "mock", "mock-1": "mock"},
    "prices": {"tiny": {"input": 0.5, "cached_input": 0.1, "output": 2}},
    "cost": {"genai_prices": False},
}
"""The gateway of a page that configures none."""

_VARIABLE = re.compile(r"(?<!\$)\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^{}]*)?\}")
# A reader types one line after another; a script would ask a server that does not listen yet.
_WAIT = """\
#!{python}
import os, re, socket, sys, time
def wait(port):
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", int(port)), 1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                sys.exit(f"nobody listens on port {{port}}")
            time.sleep(0.05)
"""
_SLUICEGATE = (
    _WAIT
    + """\
arguments = sys.argv[1:]
mock = os.environ["MOCK_PORT"]
port = {{"mock": mock, "serve": os.environ["GATEWAY_PORT"]}}.get(arguments[0] if arguments else "")
if arguments[:1] == ["serve"] and mock in " ".join(arguments):
    wait(mock)
if port and "--port" not in arguments and "--print-config" not in arguments:
    arguments += ["--port", port]
os.execv(sys.executable, [sys.executable, "-m", "sluicegate", *arguments])
"""
)
# A gateway without a file says that it listens once it knows the models of its upstreams.
_CURL = (
    _WAIT
    + """\
import urllib.request
for port in re.findall(r"http://127[.]0[.]0[.]1:([0-9]+)", " ".join(sys.argv)):
    wait(port)
    deadline = time.monotonic() + 20
    while port == os.environ["GATEWAY_PORT"] and time.monotonic() < deadline:
        with urllib.request.urlopen(f"http://127.0.0.1:{{port}}/v1/models", timeout=10) as reply:
            if b'"id"' in reply.read():
                break
        time.sleep(0.05)
os.execv({curl!r}, ["curl", "--max-time", "20", *sys.argv[1:]])
"""
)


@dataclass
class Stand:
    """A running gateway behind which a scripted upstream stands, and the environment of its clients."""

    gateway: GatewayProcess
    upstream: ScriptedUpstream
    environ: Mapping[str, str] = field(default_factory=dict)
    admin: str = ""
    """Host and port of its admin API."""

    def placed(self, text: str) -> str:
        """`text` with the ports of this gateway and this upstream."""
        host, port = self.gateway.address
        text = re.sub(r"(127\.0\.0\.1|localhost):8080", f"{host}:{port}", text)
        text = text.replace("127.0.0.1:9464", self.admin or "127.0.0.1:9464")
        return text.replace("127.0.0.1:18101", f"127.0.0.1:{self.upstream.port}")


class Stands:
    """One gateway for all pages, which is given each page's configuration in turn: it starts only once."""

    def __init__(self, stand: Stand) -> None:
        self._stand = stand
        self._page: Path | None = None
        self._changes = 0

    @classmethod
    async def start(cls, folder: Path) -> Self:
        """With the variables of all pages, since the environment of a process cannot change."""
        environ: dict[str, str] = {}
        for page in pages():
            environ |= variables(json.dumps(configuration(page)[0]))
        upstream = ScriptedUpstream()
        await upstream.start()
        config = {
            **behind(DEFAULT, upstream.base_url),
            # The pages that say nothing of `admin` find metrics on the port of clients.
            "server": {"reload_on_change": False, "metrics": "public"},
            "storage": {"directory": str(folder / "state")},
            "ledger": {},
            "admin": {"port": 0, "tokens": [{"name": "ops", "token": ADMIN_TOKEN, "role": "operate"}]},
        }
        try:
            gateway = await GatewayProcess.start(config, folder, environ)
        except BaseException:
            await upstream.stop()
            raise
        line = await gateway.wait_line(event="admin_listening")
        return cls(Stand(gateway, upstream, environ, line["address"].removeprefix("http://")))

    async def of(self, page: Path) -> Stand:
        """The stand as `page` configures it."""
        stand = self._stand
        if self._page != page:
            config, stand.upstream.script = configuration(page)
            file = stand.gateway.config_file
            begun = json.loads(file.read_text())
            kept = {name: begun[name] for name in NEED_RESTART if name in begun}
            opened = {} if "keys" in config else {"access": "open"}
            file.write_text(json.dumps({**behind(config, stand.upstream.base_url), **opened, **kept}) + "\n")
            stand.gateway.signal(signal.SIGHUP)
            self._changes += 1
            await stand.gateway.wait_line(self._changes, event="reloaded")
            self._page = page
        return stand

    async def close(self) -> None:
        """Stop what runs. Idempotent."""
        await self._stand.gateway.kill()
        await self._stand.upstream.stop()


def configuration(page: Path) -> tuple[dict[str, Any], Script]:
    """What `page` says of its gateway, and of the upstream behind it."""
    own = [block for block in blocks(page) if block.script is not None]
    assert len(own) <= 1, f"{page}: two blocks configure its gateway"
    if not own:
        return DEFAULT, Script()
    config = yaml.safe_load(own[0].text)
    assert isinstance(config, dict)
    return config, script_from(own[0].script or {})


def behind(config: Mapping[str, Any], base_url: str) -> dict[str, Any]:
    """`config` with every upstream at `base_url`, and without what only a start would apply."""
    upstreams = {name: {**upstream, "base_url": base_url} for name, upstream in config["upstreams"].items()}
    rest = {name: value for name, value in config.items() if name not in NEED_RESTART}
    return {**rest, "upstreams": upstreams}


def variables(text: str) -> dict[str, str]:
    """A value for each variable that a configuration refers to."""
    return {found[1]: f"test-{found[1].lower().replace('_', '-')}" for found in _VARIABLE.finditer(text)}


@dataclass(frozen=True)
class Done:
    status: int
    output: str
    """Of all processes, in the order in which it was written."""


async def run(stand: Stand, block: Block, folder: Path, *command: str, text: str) -> Done:
    """Run `command` on `text`, which becomes its last argument, in `folder`; nothing of it outlives this.

    The nearest YAML block above it is there as `sluicegate.yaml`. Raises TimeoutError.
    """
    above = [one for one in blocks(block.page) if one.language == "yaml" and one.line < block.line]
    if above:
        (folder / "sluicegate.yaml").write_text(stand.placed(above[-1].text))
    environ = {
        **os.environ,
        **(variables(above[-1].text) if above else {}),
        **stand.environ,
        "OPENAI_API_KEY": "none",
        "STATE_DIRECTORY": str(folder),
        "MOCK_PORT": str(_free_port()),
        "GATEWAY_PORT": str(_free_port()),
        "PATH": f"{_commands(folder)}{os.pathsep}{os.environ['PATH']}",
    }
    text = (
        _moved(text, environ)
        if "sluicegate serve" in text or "sluicegate mock" in text
        else stand.placed(text)
    )
    log = folder / "output"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            text,
            cwd=folder,
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(SECONDS):
                status = await process.wait()
        except TimeoutError:
            raise TimeoutError(f"{block.id} has not ended:\n{log.read_text(errors='replace')}") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return Done(status, log.read_text(errors="replace"))


def _moved(text: str, environ: Mapping[str, str]) -> str:
    """`text`, which starts a gateway and an upstream of its own, on free ports."""
    text = re.sub(r"(127\.0\.0\.1|localhost):8080", f"127.0.0.1:{environ['GATEWAY_PORT']}", text)
    return text.replace("127.0.0.1:18101", f"127.0.0.1:{environ['MOCK_PORT']}")


def _free_port() -> int:
    """Below those that systems give to outgoing connections, one of which could take it meanwhile."""
    while True:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def _commands(folder: Path) -> Path:
    """A folder with `sluicegate` and `curl`."""
    place = folder / "bin"
    place.mkdir(exist_ok=True)
    curl = next(
        (str(path) for part in os.get_exec_path() if (path := Path(part, "curl")).is_file()), "/usr/bin/curl"
    )
    for name, text in (("sluicegate", _SLUICEGATE), ("curl", _CURL)):
        path = place / name
        path.write_text(text.format(python=sys.executable, curl=curl))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return place
