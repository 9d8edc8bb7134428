"""What a background response costs beside a live one: CPU of the gateway for each chunk.

`python -m benches.load.background`: two workers, 500 responses at once, 50 chunks a second each, first live
and then in the background, over the same mock upstream. Both are translated from Chat Completions, and kept.
"""

import argparse
import asyncio
import json
import socket
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benches.load.processes import Process, free_port, wait_until_ready
from benches.load.proxies.gateways import THREADS_SETTING
from benches.load.tool import Mock, Tool, build

from sluicegate.responses.entry import ENDED

REPOSITORY = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"


@dataclass(frozen=True)
class Cost:
    """Of one run. `late`: how much longer it took than the upstream's pace asks for, in seconds."""

    chunks: int
    cpu_microseconds_per_chunk: float
    seconds: float
    late: float


@dataclass(frozen=True)
class Plan:
    responses: int
    tokens: int
    rate: float

    def request(self, number: int, **members: Any) -> bytes:
        prompt = f"bench~{number:08}~ tokens={self.tokens} bytes=64 rate={self.rate} "
        body = json.dumps({"model": "bench", "input": prompt, **members}).encode()
        head = (
            f"POST /v1/responses HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\n"
            f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


async def exchange(port: int, request: bytes, wanted: bytes) -> bool:
    """Whether `wanted` is in the reply, which is read as fast as it comes and otherwise dropped."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(request)
        end, found = b"", False
        while data := await reader.read(65536):
            found = found or wanted in end + data
            end = data[-len(wanted) :]
        return found
    finally:
        writer.close()


async def measure(gateway: Process, plan: Plan, run: Callable[[], Awaitable[None]]) -> Cost:
    before, began = gateway.cpu_seconds(), time.monotonic()
    await run()
    seconds = time.monotonic() - began
    chunks = plan.responses * plan.tokens
    used = gateway.cpu_seconds() - before
    return Cost(chunks, used / chunks * 1e6, seconds, seconds - plan.tokens / plan.rate)


async def live(port: int, plan: Plan) -> None:
    requests = [plan.request(number, stream=True) for number in range(plan.responses)]
    wanted = b"event: response.completed"
    if not all(await asyncio.gather(*(exchange(port, request, wanted) for request in requests))):
        raise SystemExit("a live response did not complete")


async def background(port: int, plan: Plan, path: Path) -> None:
    requests = [plan.request(number, background=True) for number in range(plan.responses)]
    if not all(await asyncio.gather(*(exchange(port, request, b'"queued"') for request in requests))):
        raise SystemExit("a background response was not taken on")
    with closing(sqlite3.connect(path)) as store:
        query = "SELECT status, count(*) FROM responses WHERE background GROUP BY status"
        while True:
            counts = dict(store.execute(query).fetchall())
            if counts.keys() <= ENDED:
                break
            await asyncio.sleep(0.25)
    if counts != {"completed": plan.responses}:
        raise SystemExit(f"not all completed: {counts}")


async def compare(tool: Path, plan: Plan, workers: int) -> dict[str, Cost]:
    with tempfile.TemporaryDirectory() as directory, Mock(Tool(tool)) as mock:
        folder, port = Path(directory), free_port()
        store = folder / "responses.db"
        config = {
            "server": {"host": HOST, "port": port, THREADS_SETTING: workers},
            "upstreams": {"mock": {"base_url": f"http://{mock.address}/v1"}},
            "models": {"bench": "mock"},
            "prices": {"bench": {"input": 1, "output": 4}},
            "cost": {"genai_prices": False},
            "responses": {"path": str(store), "concurrency": plan.responses, "lease_seconds": 60},
        }
        (folder / "gateway.yaml").write_text(json.dumps(config))
        command = [sys.executable, "-m", "sluicegate", "serve", "--config", str(folder / "gateway.yaml")]
        with Process(command, log=folder / "log", cwd=REPOSITORY) as gateway:
            wait_until_ready(gateway, lambda: _listens(port), 60)
            warm = Plan(4, 10, 100)
            await live(port, warm)
            costs = {"live": await measure(gateway, plan, lambda: live(port, plan))}
            costs["background"] = await measure(gateway, plan, lambda: background(port, plan, store))
            return costs


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--responses", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=500)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tool", type=Path, help="the built load tool; else it is built")
    options = parser.parse_args()
    plan = Plan(options.responses, options.tokens, options.rate)
    costs = asyncio.run(compare(options.tool or build(), plan, options.workers))
    for name, cost in costs.items():
        print(name, json.dumps(asdict(cost)))
    ratio = costs["background"].cpu_microseconds_per_chunk / costs["live"].cpu_microseconds_per_chunk
    print(f"background / live: {ratio:.2f}")


if __name__ == "__main__":
    main()
