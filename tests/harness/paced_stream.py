"""A client of one long stream that looks at the clock."""

import asyncio
import json
import time
from typing import Any, Self

from harness.gateway_process import GatewayProcess
from harness.starvation import Span
from raw_http import RawConnection


class PacedStream:
    """One stream for as long as it is entered."""

    def __init__(self, gateway: GatewayProcess, model: str = "small") -> None:
        self._connection = RawConnection(*gateway.address, patience=20)
        self._model = model

    async def __aenter__(self) -> Self:
        await self._connection.__aenter__()
        body = {"model": self._model, "messages": [], "stream": True}
        await self._connection.post("/v1/chat/completions", json.dumps(body).encode())
        return self

    async def __aexit__(self, *failure: Any) -> None:
        await self._connection.__aexit__(*failure)

    async def begin(self) -> None:
        """Read on to the first token."""
        head = await self._connection.head()
        assert head.status == 200
        while b'"content"' not in await self._connection.chunk():
            pass

    async def gaps(self, until: "asyncio.Future[Any]") -> list[Span]:
        """Between each two chunks, until `until` is done."""
        found, last = [], time.perf_counter()
        while not until.done():
            assert await self._connection.chunk()
            found.append((last, time.perf_counter()))
            last = found[-1][1]
        return found
