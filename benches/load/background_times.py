"""How long an event of a background response takes to those who follow it, and a cancel to the upstream.

`python -m benches.load.background_times`: two workers. An upstream puts the time into each chunk of text;
followers on connections of their own, which the workers share by chance, look at it when they read it. What
counts is the slowest follower of each event: one on another worker than that which runs the response.
"""

import argparse
import asyncio
import contextlib
import json
import socket
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from benches.load.processes import Process, free_port, wait_until_ready
from benches.load.proxies.gateways import THREADS_SETTING

REPOSITORY = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
FOLLOWERS = 8


class Upstream:
    """Serves Chat Completions whose text is the time at which it is sent, until the reader leaves."""

    def __init__(self, rate: float) -> None:
        self._pause = 1 / rate
        self.left: asyncio.Queue[float] = asyncio.Queue()
        """When a reader was seen to have left."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        await reader.readexactly(int(length[0].partition(b":")[2]))
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
            b'data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
        )
        gone = asyncio.ensure_future(reader.read())
        while not gone.done():
            text = f"{time.monotonic()} "
            chunk = {"id": "c", "choices": [{"index": 0, "delta": {"content": text}}]}
            writer.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            await asyncio.wait([gone], timeout=self._pause)
        self.left.put_nowait(time.monotonic())
        writer.close()


@contextlib.asynccontextmanager
async def ask(port: int, method: str, path: str, body: object = None) -> AsyncIterator[asyncio.StreamReader]:
    """The reply, from its body on."""
    reader, writer = await asyncio.open_connection(HOST, port)
    text = b"" if body is None else json.dumps(body).encode()
    writer.write(
        f"{method} {path} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\n"
        f"connection: close\r\ncontent-length: {len(text)}\r\n\r\n".encode()
        + text
    )
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head.partition(b"\r\n")[0]:
        raise SystemExit(head.decode() + (await reader.read()).decode())
    try:
        yield reader
    finally:
        writer.close()


async def begin(port: int) -> str:
    asked = {"model": "bench", "input": "x", "background": True}
    async with ask(port, "POST", "/v1/responses", asked) as reader:
        reply = await reader.read()
    id: str = json.loads(reply[reply.index(b"{") : reply.rindex(b"}") + 1])["id"]
    return id


async def follow(port: int, id: str, seen: dict[float, list[float]]) -> None:
    async with ask(port, "GET", f"/v1/responses/{id}?stream=true") as reader:
        async for line in reader:
            now = time.monotonic()
            if line.startswith(b"data: {") and b'"response.output_text.delta"' in line:
                sent = float(json.loads(line[6:])["delta"])
                seen[sent].append(now - sent)


async def events(port: int, seconds: float) -> list[float]:
    """The slowest follower of each event, in seconds."""
    id = await begin(port)
    seen: dict[float, list[float]] = defaultdict(list)
    followers = [asyncio.ensure_future(follow(port, id, seen)) for _ in range(FOLLOWERS)]
    await asyncio.sleep(1)
    since = time.monotonic()
    await asyncio.sleep(seconds)
    until = time.monotonic() - 1
    async with ask(port, "POST", f"/v1/responses/{id}/cancel"):
        pass
    await asyncio.gather(*followers)
    return [max(delays) for sent, delays in seen.items() if since <= sent < until]


async def cancels(port: int, upstream: Upstream, count: int) -> list[float]:
    """From asking a worker to cancel to the upstream's connection closed, in seconds."""
    while not upstream.left.empty():
        upstream.left.get_nowait()
    times = []
    for _ in range(count):
        id = await begin(port)
        async with ask(port, "GET", f"/v1/responses/{id}?stream=true") as reader:
            await reader.readuntil(b"response.output_text.delta")
        began = time.monotonic()
        async with ask(port, "POST", f"/v1/responses/{id}/cancel"):
            times.append(await upstream.left.get() - began)
    return times


def line(name: str, times: Sequence[float]) -> str:
    ordered = sorted(times)
    at = [statistics.median(ordered), ordered[int(len(ordered) * 0.99)], ordered[-1]]
    p50, p99, most = (f"{1000 * value:.0f}" for value in at)
    return f"{name}: {len(ordered)} measured, p50 {p50} ms, p99 {p99} ms, at most {most} ms"


async def measure(rate: float, seconds: float, count: int, workers: int) -> None:
    upstream = Upstream(rate)
    server = await asyncio.start_server(upstream.serve, HOST, 0)
    at = server.sockets[0].getsockname()[1]
    with tempfile.TemporaryDirectory() as directory:
        folder, port = Path(directory), free_port()
        config = {
            "server": {"host": HOST, "port": port, THREADS_SETTING: workers},
            "upstreams": {"mock": {"base_url": f"http://{HOST}:{at}/v1"}},
            "models": {"bench": "mock"},
            "cost": {"genai_prices": False},
            "responses": {"path": str(folder / "responses.db")},
        }
        (folder / "gateway.yaml").write_text(json.dumps(config))
        command = [sys.executable, "-m", "sluicegate", "serve", "--config", str(folder / "gateway.yaml")]
        with Process(command, log=folder / "log", cwd=REPOSITORY) as gateway:
            await asyncio.to_thread(wait_until_ready, gateway, lambda: _listens(port), 60)
            sys.stdout.write(line("event to its slowest follower", await events(port, seconds)) + "\n")
            sys.stdout.write(line("cancel to the upstream", await cancels(port, upstream, count)) + "\n")
    server.close()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rate", type=float, default=20.0, help="events a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--cancels", type=int, default=40)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    asyncio.run(measure(options.rate, options.seconds, options.cancels, options.workers))


if __name__ == "__main__":
    main()
