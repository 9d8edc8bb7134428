"""`python -m real NAME`, from `make real-NAME`: a server, installed, started, checked; its row written."""

import argparse
import asyncio
import datetime
import signal
import sys
import tempfile
import traceback
from pathlib import Path

from real.checks import checks_of
from real.page import Row, page
from real.server import Server, install, running, version
from real.servers import SERVERS
from real.stand import real_stand

CHECK_SECONDS = 600.0


async def check_all(server: Server, directory: Path, asked: list[str]) -> tuple[int, int]:
    """How many checks were made, and how many went right."""
    made = right = 0
    with tempfile.TemporaryDirectory() as files:
        async with running(server, directory) as run, real_stand(run, Path(files)) as stand:
            for check in checks_of(server):
                if asked and not any(part in check.name for part in asked):
                    continue
                made += 1
                try:
                    async with asyncio.timeout(CHECK_SECONDS):
                        await check.run(stand)
                except Exception as error:
                    sys.stdout.write(f"WRONG  {check.name}\n")
                    sys.stdout.write("".join(traceback.format_exception(error)[-6:]))
                else:
                    right += 1
                    sys.stdout.write(f"right  {check.name}\n")
                sys.stdout.flush()
    return made, right


def main(name: str, asked: list[str], target: Path | None) -> int:
    """Zero if all went right."""
    # Whoever ends this process ends the server as well.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    server = SERVERS[name]
    directory = install(server)
    number = version(server, directory)
    made, right = asyncio.run(check_all(server, directory, asked))
    sys.stdout.write(f"\n{server.title} {number}: {made} checks, {made - right} wrong\n")
    if target is not None:
        row = Row.of(server, number, datetime.datetime.now(datetime.UTC).date(), made, right)
        before = target.read_text() if target.is_file() else ""
        target.write_text(page(SERVERS.values(), before, row))
    return 0 if made == right > 0 else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="real")
    parser.add_argument("server", choices=sorted(SERVERS))
    parser.add_argument("checks", nargs="*", help="parts of the names of checks; left out: all of them")
    parser.add_argument("--page", type=Path, help="write the server's row into this file")
    options = parser.parse_args()
    sys.exit(main(options.server, options.checks, options.page))
