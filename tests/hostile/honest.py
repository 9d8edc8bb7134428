"""Twenty honest streams: whether each of their bytes is right, and how long they waited for the next."""

import asyncio
import json
import operator
import time
from dataclasses import dataclass, field
from typing import Any, Self

from harness.lag import Lag
from hostile.case import CHAT, KEY, Address
from raw_http import RawConnection
from sluicegate.testing import Script

STREAMS = 20
PACE = 0.02
"""Seconds between two tokens."""
TOKENS = 50
SCRIPT = Script(tokens=TOKENS, pace=PACE)
PATIENCE = 30.0
"""Seconds in which each stream must get its next chunk."""

_BODY = json.dumps(
    {"model": "honest", "messages": [{"role": "user", "content": "An honest question."}], "stream": True}
).encode()
_HEADERS = (f"authorization: Bearer {KEY}",)


@dataclass
class Honest:
    """What the honest streams of one time saw. Times are seconds."""

    longest_gap: float = 0.0
    """Between two chunks of a stream, less the pace."""
    longest_first: float = 0.0
    """From the beginning of a connection to the first chunk."""
    lag: float = 0.0
    """How late this process itself was, which also paces the honest upstream."""
    chunks: int = 0
    whole: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def delay(self) -> float:
        """What of the longest gap this process does not explain by its own lateness."""
        return max(0.0, self.longest_gap - self.lag)


async def whole_reply(address: Address) -> bytes:
    """What each honest stream must be, byte for byte."""
    async with RawConnection(*address, patience=PATIENCE) as connection:
        await connection.post(CHAT, _BODY, headers=_HEADERS)
        assert (await connection.head()).status == 200
        body = bytearray()
        while chunk := await connection.chunk():
            body += chunk
    assert b"[DONE]" in body
    return bytes(body)


class HonestStreams:
    """`count` clients, each with one stream after the other, for as long as this is entered.

    Those under way at its end end first.
    """

    def __init__(self, address: Address, expected: bytes, count: int = STREAMS) -> None:
        self._address = address
        self._expected = expected
        self._steps = [0] * count
        self._over = False
        self._lag = Lag()
        self._clients: list[asyncio.Task[None]] = []
        self.record = Honest()
        """Of the time since `begin`."""

    async def __aenter__(self) -> Self:
        await self._lag.__aenter__()
        self._clients = [asyncio.create_task(self._client(number)) for number in range(len(self._steps))]
        return self

    async def __aexit__(self, *failure: Any) -> None:
        self._over = True
        await asyncio.gather(*self._clients)
        await self._lag.__aexit__(*failure)

    def begin(self) -> Honest:
        """What is seen from now on goes into a new record, which is returned."""
        self.record = Honest()
        self._lag.longest = 0.0
        return self.record

    async def settle(self) -> Honest:
        """The record, once each stream has got another chunk."""
        record, before = self.record, list(self._steps)
        try:
            async with asyncio.timeout(PATIENCE):
                # Polling costs a stream nothing, where an event for each chunk would.
                while any(map(operator.eq, self._steps, before)):  # noqa: ASYNC110
                    await asyncio.sleep(PACE / 4)
        except TimeoutError:
            record.problems.append("an honest stream got nothing more")
        record.lag = self._lag.longest
        return record

    async def _client(self, number: int) -> None:
        while not self._over:
            try:
                await self._one(number)
            except (OSError, EOFError, TimeoutError) as error:
                self.record.problems.append(f"an honest stream broke off: {type(error).__name__}")
                # Where nobody listens any more.
                await asyncio.sleep(PACE)

    async def _one(self, number: int) -> None:
        began = time.perf_counter()
        async with RawConnection(*self._address, patience=PATIENCE) as connection:
            await connection.post(CHAT, _BODY, headers=_HEADERS)
            head = await connection.head()
            if head.status != 200:
                self.record.problems.append(f"an honest request was answered with {head.status}")
                return
            received, last = 0, 0.0
            while chunk := await connection.chunk():
                record, now = self.record, time.perf_counter()
                if last:
                    record.longest_gap = max(record.longest_gap, now - last - PACE)
                else:
                    record.longest_first = max(record.longest_first, now - began)
                last = now
                if not self._expected.startswith(chunk, received):
                    record.problems.append(f"an honest stream had other bytes after {received}")
                received += len(chunk)
                record.chunks += 1
                self._steps[number] += 1
        if received != len(self._expected):
            self.record.problems.append(f"an honest stream had {received} bytes of {len(self._expected)}")
        self.record.whole += 1
