"""The demo: a scripted upstream, a gateway before it, and one streamed reply with its usage and its cost."""

import http.client
import io
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sluicegate.testing.script import Script, UsageScript
from sluicegate.testing.server import DEFAULT_MODEL, DEFAULT_PORT, ScriptedUpstream
from sluicegate.testing.speech import PASSAGE, THOUGHT, split_words

READY_SECONDS = 30.0
REPLY_SECONDS = 30.0
STOP_SECONDS = 15.0

# USD per million tokens.
PRICES = {"input": "0.5", "cached_input": "0.1", "output": "2"}
SCRIPT = Script(
    text=PASSAGE,
    reasoning_tokens=len(split_words(THOUGHT)),
    first_token_delay=0.15,
    pace=0.03,
    usage=UsageScript(input_tokens=48, cached_tokens=16),
)


class DemoFailed(Exception):
    """The gateway did not start, or did not answer; the message is for the user."""


@dataclass
class Heard:
    """What one streamed reply brought. Times are seconds from the request."""

    events: int = 0
    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    done: bool = False
    first_chunk: float | None = None
    seconds: float = 0.0

    @property
    def cost(self) -> Decimal | None:
        cost = self.usage.get("cost")
        return Decimal(cost) if isinstance(cost, Decimal | int) else None

    def count(self, group: str | None, name: str) -> int | None:
        within = self.usage.get(group) if group else self.usage
        value = within.get(name) if isinstance(within, Mapping) else None
        return value if isinstance(value, int) else None

    def expected_cost(self) -> Decimal | None:
        """What the reply costs, worked out apart from the gateway; None without usage."""
        prompt, output = self.count(None, "prompt_tokens"), self.count(None, "completion_tokens")
        if prompt is None or output is None:
            return None
        cached = SCRIPT.usage.cached_tokens
        price = {name: Decimal(value) for name, value in PRICES.items()}
        total = (prompt - cached) * price["input"] + cached * price["cached_input"] + output * price["output"]
        return total / 1_000_000

    def missing(self, events_sent: int) -> list[str]:
        """What was expected and did not come; `events_sent`: by the upstream."""
        cost = self.expected_cost()
        checks = {
            f"{events_sent} events (there were {self.events})": self.events == events_sent,
            "the whole text": self.text == PASSAGE,
            "the reasoning": self.reasoning == THOUGHT,
            "a finish reason": self.finish_reason == "stop",
            "usage": self.count(None, "completion_tokens") is not None,
            f"a cost of {cost} USD (it was {self.cost})": cost is not None and self.cost == cost,
            "[DONE]": self.done,
        }
        return [name for name, there in checks.items() if not there]


def run_demo(
    *, host: str = "127.0.0.1", port: int = 0, upstream_port: int = 0, console: Console | None = None
) -> int:
    """Show one streamed reply through a gateway. The process's exit code.

    0 only where every event of the upstream arrived, with usage, the exact cost and `[DONE]`. Ports of 0 are
    free ones. Works on terminals and in pipes.
    """
    console = console or _plain_console()
    try:
        with (
            _ended_by_sigterm(),
            ScriptedUpstream.in_thread(SCRIPT, host=host, port=upstream_port) as upstream,
            _gateway(host, port, upstream.base_url) as address,
        ):
            console.print(f"scripted upstream  {upstream.base_url}")
            console.print(f"gateway            http://{address[0]}:{address[1]}/v1")
            console.print()
            heard = listen(address, console)
            sent = upstream.requests.wait_sync().wait_ended().events_sent
    except (DemoFailed, OSError, http.client.HTTPException, TimeoutError) as error:
        console.print(f"failed: {error}", style="red", markup=False)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    console.print(_table(heard))
    missing = heard.missing(sent)
    for name in missing:
        console.print(f"missing: {name}", style="red", markup=False)
    if missing:
        return 1
    console.print()
    console.print(_next_steps(), markup=False, soft_wrap=True)
    return 0


def _next_steps() -> str:
    called = Path(sys.argv[0]).name == "sluicegate"
    program = sys.argv[0] if called else f"{sys.executable} -m sluicegate"
    asked = {"model": DEFAULT_MODEL, "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    return (
        "Try next:\n"
        f"  {program} mock &\n"
        f"  {program} serve --upstream http://127.0.0.1:{DEFAULT_PORT}/v1 &\n"
        "  curl -N http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \\\n"
        f"    -d '{json.dumps(asked)}'"
    )


def _plain_console() -> Console:
    # A terminal that cannot show a character gets a question mark, not a traceback.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return Console(highlight=False)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM as an exception within: the gateway's process must not outlive this one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    previous = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def listen(address: tuple[str, int], console: Console) -> Heard:
    """Ask for one streamed reply and show its tokens as they come.

    Raises OSError and http.client.HTTPException where the connection fails, DemoFailed for another status.
    """
    body = {
        "model": DEFAULT_MODEL,
        "messages": [{"role": "user", "content": "What does a sluice do?"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    heard = Heard()
    connection = http.client.HTTPConnection(*address, timeout=REPLY_SECONDS)
    try:
        begun = time.monotonic()
        headers = {"content-type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise DemoFailed(f"HTTP {response.status}: {response.read(2000).decode(errors='replace')}")
        for data in _event_data(response):
            heard.seconds = time.monotonic() - begun
            _hear(heard, data, console)
        heard.seconds = time.monotonic() - begun
    finally:
        connection.close()
        console.print("\n")
    return heard


def _event_data(response: http.client.HTTPResponse) -> Iterator[str]:
    # The gateway writes events of one data line each, as OpenAI does: no need for a whole parser here.
    while line := response.readline():
        if line.startswith(b"data:"):
            yield line[5:].decode().strip()


def _hear(heard: Heard, data: str, console: Console) -> None:
    heard.events += 1
    if data == "[DONE]":
        heard.done = True
        return
    chunk = json.loads(data, parse_float=Decimal)
    if chunk.get("usage"):
        heard.usage = chunk["usage"]
    for choice in chunk.get("choices", ()):
        heard.finish_reason = choice.get("finish_reason") or heard.finish_reason
        for name, style in (("reasoning_content", "dim"), ("content", None)):
            token = choice.get("delta", {}).get(name)
            if not token:
                continue
            if heard.first_chunk is None:
                heard.first_chunk = heard.seconds
            if name == "content":
                if heard.reasoning and not heard.text:
                    console.print("\n")
                heard.text += token
            else:
                heard.reasoning += token
            console.print(token, end="", style=style, markup=False, soft_wrap=True)
            console.file.flush()


def _table(heard: Heard) -> Table:
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")

    def shown(value: int | None) -> str:
        return "-" if value is None else str(value)

    first = "-" if heard.first_chunk is None else f"{heard.first_chunk * 1000:.1f} ms"
    table.add_row("time to first token", first)
    table.add_row("  of these scripted", f"{SCRIPT.first_token_delay * 1000:.1f} ms")
    table.add_row("time in all", f"{heard.seconds:.2f} s")
    table.add_row("events", str(heard.events))
    table.add_row("input tokens", shown(heard.count(None, "prompt_tokens")))
    table.add_row("  of these cached", shown(heard.count("prompt_tokens_details", "cached_tokens")))
    table.add_row("output tokens", shown(heard.count(None, "completion_tokens")))
    table.add_row("  of these reasoning", shown(heard.count("completion_tokens_details", "reasoning_tokens")))
    table.add_row("cost", "-" if heard.cost is None else f"{heard.cost.normalize():f} USD")
    table.add_row(Text("[DONE]"), "yes" if heard.done else "no")
    return table


# === The gateway's process ===


@contextmanager
def _gateway(host: str, port: int, upstream: str) -> Iterator[tuple[str, int]]:
    """A gateway that serves; its address. Raises DemoFailed where it does not within `READY_SECONDS`."""
    with tempfile.TemporaryDirectory(prefix="sluicegate-demo-") as folder:
        config = Path(folder, "gateway.yaml")
        config.write_text(json.dumps(_config(host, port, upstream)))
        log = Path(folder, "gateway.log")
        command = [sys.executable, "-m", "sluicegate", "serve", "--config", str(config)]
        with (
            log.open("wb") as output,
            subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            ) as process,
        ):
            try:
                yield _ready(process, log)
            finally:
                process.terminate()
                try:
                    process.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()


def _config(host: str, port: int, upstream: str) -> dict[str, Any]:
    # JSON is YAML too.
    return {
        "server": {"host": host, "port": port, "drain_seconds": 5, "log": {"format": "json"}},
        "upstreams": {"mock": {"base_url": upstream}},
        "models": {DEFAULT_MODEL: "mock"},
        "prices": {DEFAULT_MODEL: PRICES},
    }


def _ready(process: subprocess.Popen[bytes], log: Path) -> tuple[str, int]:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        status = process.poll()
        if status is not None:
            raise DemoFailed(f"the gateway ended with status {status}:\n{_tail(log)}")
        address = _listening(log)
        if address is not None and _answers(address):
            return address
        time.sleep(0.02)
    raise DemoFailed(f"the gateway was not ready after {READY_SECONDS:.0f} s:\n{_tail(log)}")


def _listening(log: Path) -> tuple[str, int] | None:
    """The address that the gateway's log names once it has one."""
    for line in log.read_text(errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.get("event") == "listening":
            return str(entry["host"]), int(entry["port"])
    return None


def _answers(address: tuple[str, int]) -> bool:
    connection = http.client.HTTPConnection(*address, timeout=1)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-10:])
