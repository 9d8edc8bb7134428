"""The process of the hostile peers: their own processor time must not be taken for the gateway's delay.

So it has a lower priority, too.

`python -m hostile.attacker` prints the port of its hostile upstream and the URL of a fair one, whose load by
hostile clients must not be the honest streams'; and then runs each case whose name and gateway port it reads
from standard input, a JSON list a line; it answers each with what was seen, a line of JSON.
"""

import asyncio
import contextlib
import inspect
import json
import logging
import os
import sys
from typing import Any

from hostile.case import Case, Seen, asking, post, talk
from hostile.catalogue import CASES
from hostile.honest import SCRIPT
from sluicegate.testing import ScriptedUpstream

_HEAD = 64 * 1024
_LINGER_SECONDS = 5
_NICENESS = 5


class HostileUpstream:
    """A server that reads a request and then does what its case says."""

    def __init__(self) -> None:
        self._sends: Any = b""
        self._open: set[asyncio.StreamWriter] = set()

    def play(self, case: Case) -> None:
        """What is to be sent from now on; what takes long to make is made here, not when it is awaited."""
        self.reset()
        sends: Any = case.sends
        self._sends = sends() if _parameters(sends) == 0 else sends

    def reset(self) -> None:
        """Close each connection from now on, once its request is read, and at once what is open: the gateway
        would use it again.
        """
        self._sends = b""
        for writer in self._open:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self._open.add(writer)
        try:
            if _parameters(self._sends) == 2:
                await self._sends(reader, writer)
                return
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"PRI "):
                lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n") if b": " in line)
                await reader.readexactly(int(lines.get(b"content-length", b"0")))
            await self._reply(reader, writer)
        except (OSError, EOFError, asyncio.LimitOverrunError):
            pass
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _reply(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if callable(self._sends):
            await self._sends(writer)
            return
        writer.write(self._sends)
        await writer.drain()
        writer.write_eof()
        # The gateway takes what it was sent, and closes.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_SECONDS):
                await reader.read()


def _parameters(sends: Any) -> int | None:
    return len(inspect.signature(sends).parameters) if callable(sends) else None


async def run(case: Case, address: tuple[str, int], upstream: HostileUpstream) -> Seen:
    """Play one case through."""
    if case.side == "client":
        upstream.reset()
        sends: Any = case.sends
        if callable(sends):
            if inspect.iscoroutinefunction(sends):
                seen: Seen = await sends(address)
                return seen
            sends = sends()
        return await talk(address, sends)
    upstream.play(case)
    if case.asks is not None:
        return await case.asks(address)
    body = asking(case.model, case.path, stream=case.stream)
    return await talk(address, post(body=body, path=case.path))


async def main() -> None:
    """Cases, until there are no more."""
    os.nice(_NICENESS)
    # What is sent to a gateway that has cut the connection.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    upstream = HostileUpstream()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, limit=_HEAD)
    async with ScriptedUpstream(SCRIPT) as fair:
        _say([server.sockets[0].getsockname()[1], fair.base_url])
        by_name = {case.id: case for case in CASES}
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, port = json.loads(line)
            _say((await run(by_name[name], ("127.0.0.1", port), upstream)).dump())
            # They hold the bodies of all requests.
            fair.requests.clear()


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
