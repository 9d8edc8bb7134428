"""A process of hostile peers, and how it is told what to play."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from hostile.case import Address, Case, Seen

START_SECONDS = 60.0
CASE_SECONDS = 180.0
_TESTS = Path(__file__).parents[1]


class Attacker:
    """`hostile.attacker` in a process of its own, one case at a time.

    `port`: of its hostile upstream; `fair_url`: of the one that serves hostile clients.
    """

    def __init__(self, process: asyncio.subprocess.Process, port: int, fair_url: str) -> None:
        self._process = process
        self.port = port
        self.fair_url = fair_url

    async def play(self, case: Case, gateway: Address) -> Seen:
        """What was seen of a case. Raises `TimeoutError` where it does not end."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps([case.id, gateway[1]]).encode() + b"\n")
        await stdin.drain()
        async with asyncio.timeout(CASE_SECONDS):
            line = await stdout.readline()
        assert line, f"the process of the hostile peers ended in {case.id}"
        return Seen.load(json.loads(line))


@contextlib.asynccontextmanager
async def attacker() -> AsyncIterator[Attacker]:
    """An attacker, ended by force."""
    path = os.pathsep.join(filter(None, (str(_TESTS), os.environ.get("PYTHONPATH"))))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hostile.attacker",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            port, fair_url = json.loads(await process.stdout.readline())
        yield Attacker(process, port, fair_url)
    finally:
        process.kill()
        await process.wait()
