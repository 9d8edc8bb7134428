"""What it costs to put a row into the ledger: processor time from the journal's rows to the commit.

`python -m benches.ledger.shipping [--rows 20480] [--database postgresql://...]`, in the project's root.
SQLite is measured in any case. What the database's server does is not counted, nor what reads the journal's
files.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC
from typing import Any
from uuid import UUID

from pydantic import SecretStr

from sluicegate._core import BUILD, JournalRows
from sluicegate.config import StorageConfig
from sluicegate.ledger import open_database
from sluicegate.ledger.shipping import Shipping

BATCHES = (64, 256, 1024)
CALLERS = 20
TIMES = 3


def record(number: int, now: float) -> dict[str, Any]:
    """Of a small request that was served; every other one is a stream."""
    caller = number % CALLERS
    made: dict[str, Any] = {
        "id": str(UUID(int=(int(now * 1000) << 80) | (7 << 76) | number)),
        "run": 1,
        "request_id": f"req_{number:032x}",
        "started_at": int(now * 1e6),
        "endpoint": "chat_completions",
        "caller_id": f"id:caller-{caller}",
        "caller": f"caller-{caller}",
        "key_id": f"{caller:032x}",
        "team": "team",
        "model": "model",
        "upstream": "gpu-a",
        "upstream_model": "vendor/model",
        "upstream_request_id": f"chatcmpl-{number:024x}",
        "status": 200,
        "finish_reason": "stop",
        "attempts": 1,
        "usage_source": "upstream",
        "price_id": "0123456789abcdef",
        **dict.fromkeys(("wait", "first_byte", "duration", "estimated_input"), 1000),
        **dict.fromkeys(("input", "output", "bytes_in", "bytes_out", "events", "malformed"), 20),
        **dict.fromkeys(("cost", "cost_input", "cost_output"), 123_456_789),
    }
    if number % 2:
        made |= {"streamed": True, "first_token": 1000, "last_token": 2000, "longest_gap": 10}
    return made


def batches(rows: int, size: int) -> Iterator[JournalRows]:
    now = time.time()
    for first in range(0, rows, size):
        yield JournalRows([record(number, now) for number in range(first, first + size)])


async def cost(url: str | None, rows: int, size: int) -> tuple[float, float, float]:
    """Microseconds a row: of all threads, of the event loop's, and by the clock."""
    with tempfile.TemporaryDirectory() as directory:
        database = open_database(
            StorageConfig(directory=directory, database=None if url is None else SecretStr(url))
        )
        ships = Shipping(database, UTC, "gateway-1:4711", "0.0.0", lambda record: ("bench", "{}"))
        made = list(batches(rows, size))[::-1]
        await ships.ship(made.pop())
        began = time.process_time(), time.thread_time(), time.perf_counter()
        added = 0
        while made:
            added += await ships.ship(made.pop())
        ended = time.process_time(), time.thread_time(), time.perf_counter()
        await database.close()
    of_all, of_loop, clock = (end - begin for begin, end in zip(began, ended, strict=True))
    return of_all / added * 1e6, of_loop / added * 1e6, clock / added * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_480)
    parser.add_argument("--database", help="the URL of a PostgreSQL database, in which a ledger is made")
    options = parser.parse_args()
    print(f"build: {BUILD}; µs a row, the best of {TIMES}")
    print("| database | rows a transaction | processor | of that, the event loop's thread | clock |")
    print("| --- | --- | --- | --- | --- |")
    for name, url in (("SQLite", None), ("PostgreSQL", options.database)):
        for size in BATCHES if url or name == "SQLite" else ():
            figures = min(asyncio.run(cost(url, options.rows, size)) for _ in range(TIMES))
            print(f"| {name} | {size} | {' | '.join(f'{figure:.1f}' for figure in figures)} |", flush=True)


if __name__ == "__main__":
    main()
