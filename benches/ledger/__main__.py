"""Fill a SQLite ledger with rows and their sums by day, and time `sluicegate usage` on it.

`python -m benches.ledger [--rows 10000000] [--directory DIRECTORY]`, in the project's root. The folder needs
some 600 bytes a row, and is deleted afterwards.
"""

import argparse
import asyncio
import json
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path

from sluicegate.config import StorageConfig
from sluicegate.ledger import open_database
from sluicegate.ledger.schema import KEYS, SUMS, TOKENS

DAYS = 90
CALLERS = 200
KEYS_OF_CALLER = 2
MODELS = 5
USERS = 20_000
FIRST = date(2026, 9, 1)
BYTES_A_ROW = 600
TIMES = 3

REPORTS = (
    ("--by", "caller,model"),
    ("--by", "day"),
    ("--by", "day,caller,model"),
    ("--caller", "caller-7"),
    ("--by", "model", "--from", "2026-11-01"),
    ("--by", "user", "--caller", "id:caller-7"),
    ("--by", "user"),
)

# A row is made of its number `n`: of all callers, models and users in turn.
ROW = {
    "id": "printf('%08x-%04x-7000-8000-%012x', :milliseconds >> 16, :milliseconds & 65535, n)",
    "run": "1",
    "background": "0",
    "streamed": "n & 1",
    "request_id": "printf('req_%032x', n)",
    "started_at": ":milliseconds * 1000 + n",
    "day": ":day",
    "endpoint": "'chat_completions'",
    "caller_id": f"printf('id:caller-%d', n % {CALLERS})",
    "caller": f"printf('caller-%d', n % {CALLERS})",
    "key_id": f"printf('%032x', n % {CALLERS * KEYS_OF_CALLER})",
    "team": f"printf('team-%d', n % {CALLERS} / 10)",
    "user_id": f"printf('user-%d', n % {USERS})",
    "model": f"printf('model-%d', n * 7 % 11 % {MODELS})",
    "upstream": "'gpu-a'",
    "upstream_model": f"printf('vendor/model-%d', n * 7 % 11 % {MODELS})",
    "status": "200",
    "result": "CASE WHEN n % 500 = 0 THEN 'failed' ELSE 'ok' END",
    "finish_reason": "'stop'",
    "client_left": "0",
    "attempts": "1",
    **dict.fromkeys(
        ("wait", "first_byte", "first_token", "last_token", "longest_gap", "duration"), "n % 9999999"
    ),
    "input": "1000 + n % 5000",
    "cached_input": "n % 1000",
    "output": "n % 700",
    "usage_source": "'upstream'",
    "cost": "1000000 * (1000 + n % 5000) + 4000000 * (n % 700)",
    "cost_input": "1000000 * (1000 + n % 5000)",
    "cost_output": "4000000 * (n % 700)",
    "price_id": "'0123456789abcdef'",
    **dict.fromkeys(("bytes_in", "bytes_out", "events"), "n % 99999"),
    "gateway": "'gateway-1:4711'",
    "version": "'0.0.0'",
}

COUNTED = {
    "requests": "count(*)",
    "failed": "sum(result = 'failed')",
    "client_left": "0",
    "interrupted": "0",
    "estimated": "0",
    "unpriced": "0",
    **{name: f"coalesce(sum({name}), 0)" for name in (*TOKENS, "cost")},
}


def fill(path: Path, rows: int) -> None:
    """`rows` rows over 90 days, and their sums."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA cache_size = -262144")
    adding = (
        f"WITH RECURSIVE numbers(n) AS (SELECT :first UNION ALL SELECT n + 1 FROM numbers WHERE n < :last) "
        f"INSERT INTO ledger ({', '.join(ROW)}) SELECT {', '.join(ROW.values())} FROM numbers"
    )
    grouped = ", ".join(KEYS)
    summing = (
        f"INSERT INTO usage_daily ({grouped}, caller, {', '.join(SUMS)}) "
        f"SELECT {grouped}, caller, {', '.join(COUNTED[name] for name in SUMS)} "
        f"FROM ledger WHERE id BETWEEN :least AND :most GROUP BY {grouped}"
    )
    of_users = (
        "INSERT INTO usage_users "
        "SELECT day, caller_id, user_id, count(*), sum(input), sum(output), sum(cost) "
        "FROM ledger WHERE id BETWEEN :least AND :most GROUP BY day, caller_id, user_id"
    )
    for number in range(DAYS):
        day = FIRST + timedelta(days=number)
        milliseconds = int(time.mktime(day.timetuple())) * 1000
        first, last = rows * number // DAYS, rows * (number + 1) // DAYS - 1
        values = {"milliseconds": milliseconds, "day": str(day), "first": first, "last": last}
        begin = f"{milliseconds >> 16:08x}-{milliseconds & 65535:04x}"
        range_of = {"least": begin, "most": begin + "~"}
        connection.execute("BEGIN")
        connection.execute(adding, values)
        connection.execute(summing, range_of)
        connection.execute(of_users, range_of)
        connection.execute("COMMIT")
    connection.close()


def timed(config: Path, arguments: tuple[str, ...]) -> tuple[list[float], list[float], int]:
    """The seconds that the command took each time, those of a processor, and the lines that it has shown."""
    command = [sys.executable, "-m", "sluicegate", "usage", "--config", str(config), *arguments]
    seconds: list[float] = []
    of_processor: list[float] = []
    lines = 0
    for _ in range(TIMES):
        began, used = time.perf_counter(), _processor()
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        seconds.append(time.perf_counter() - began)
        of_processor.append(_processor() - used)
        lines = len(done.stdout.splitlines())
    return seconds, of_processor, lines


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    if shutil.disk_usage(options.directory).free < options.rows * BYTES_A_ROW * 1.5:
        raise SystemExit(f"{options.directory} has too little room for {options.rows} rows")
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        folder = Path(name)
        asyncio.run(create(folder))
        began = time.perf_counter()
        fill(folder / "ledger.db", options.rows)
        size = (folder / "ledger.db").stat().st_size
        print(f"{options.rows:,} rows in {time.perf_counter() - began:.0f} s, {size / 1e9:.1f} GB")
        config = folder / "gateway.yaml"
        settings = {
            "upstreams": {"a": {"base_url": "http://127.0.0.1:1/v1"}},
            "models": {"m": "a"},
            "storage": {"directory": str(folder)},
            "ledger": {},
        }
        config.write_text(json.dumps(settings) + "\n")
        print("| `sluicegate usage` | lines | first, s | best, s | processor, s |")
        print("| --- | --- | --- | --- | --- |")
        for arguments in REPORTS:
            seconds, processor, lines = timed(config, arguments)
            figures = f"{seconds[0]:.2f} | {min(seconds):.2f} | {min(processor):.2f}"
            print(f"| `{' '.join(arguments)}` | {lines:,} | {figures} |", flush=True)


async def create(folder: Path) -> None:
    """The tables, empty."""
    database = open_database(StorageConfig(directory=str(folder)))
    async with database.transaction("create"):
        pass
    await database.close()


if __name__ == "__main__":
    main()
