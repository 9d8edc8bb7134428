"""Twenty honest streams: whether each of their bytes is right, and how long they waited for the next."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from harness.lag import Lag
from hostile.case import CHAT, KEY, Address
from raw_http import RawConnection
from sluicegate.testing import Script

STREAMS = 20
PACE = 0.02
"""Seconds between two tokens."""
TOKENS = 50
SCRIPT = Script(tokens=TOKENS, pace=PACE)

_BODY = json.dumps(
    {"model": "small", "messages": [{"role": "user", "content": "An honest question."}], "stream": True}
).encode()
_HEADERS = (f"authorization: Bearer {KEY}",)


@dataclass
class Honest:
    """What the honest streams of one time saw. Times are seconds."""

    longest_gap: float = 0.0
    """Between two chunks of a stream, less the pace."""
    lag: float = 0.0
    """How late this process itself was, which also paces the honest upstream."""
    whole: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def delay(self) -> float:
        """What of the longest gap this process does not explain by its own lateness."""
        return max(0.0, self.longest_gap - self.lag)


async def one(address: Address, honest: Honest, expected: bytes | None) -> bytes:
    """One stream to its end. `expected`: the reply's bytes."""
    async with RawConnection(*address, patience=60) as connection:
        await connection.post(CHAT, _BODY, headers=_HEADERS)
        head = await connection.head()
        if head.status != 200:
            honest.problems.append(f"an honest request was answered with {head.status}")
            return b""
        body, last = bytearray(), 0.0
        while chunk := await connection.chunk():
            now = time.perf_counter()
            if last:
                honest.longest_gap = max(honest.longest_gap, now - last - PACE)
            last = now
            body += chunk
    if expected is not None and body != expected:
        honest.problems.append(f"an honest stream had {len(body)} other bytes")
    honest.whole += 1
    return bytes(body)


@contextlib.asynccontextmanager
async def streams(address: Address, expected: bytes, count: int = STREAMS) -> AsyncIterator[Honest]:
    """`count` streams, one after the other each, for as long as it is entered; those under way end first."""
    honest, over = Honest(), asyncio.Event()

    async def client() -> None:
        while not over.is_set():
            try:
                await one(address, honest, expected)
            except (OSError, EOFError, TimeoutError) as error:
                honest.problems.append(f"an honest stream broke off: {type(error).__name__}")

    async with Lag() as lag:
        clients = [asyncio.create_task(client()) for _ in range(count)]
        try:
            yield honest
        finally:
            over.set()
            await asyncio.gather(*clients)
            honest.lag = lag.longest
