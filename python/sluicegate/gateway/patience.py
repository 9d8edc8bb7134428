"""When to begin to look whether a client is still there."""

import asyncio
from collections import deque

from sluicegate.gateway.reply import Reply

# Looking costs turns through the server's threads, a tenth or more of what a small request costs. One that
# ends within this time needs none of it; a client that leaves that soon is noticed this much later.
PATIENCE_SECONDS = 0.02


class Patience:
    """Settles replies that are not over after `PATIENCE_SECONDS`, with one timer for all of them."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, Reply]] = deque()
        self._planned = False

    def wait_for(self, reply: Reply, loop: asyncio.AbstractEventLoop) -> None:
        """Settle `reply` with False, unless it is over by then."""
        self._waiting.append((loop.time() + PATIENCE_SECONDS, reply))
        if not self._planned:
            self._planned = True
            loop.call_later(PATIENCE_SECONDS, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        waiting = self._waiting
        while waiting and waiting[0][0] <= now:
            waiting.popleft()[1].settle(False)
        while waiting and waiting[0][1].over.done():
            waiting.popleft()
        self._planned = bool(waiting)
        if waiting:
            loop.call_later(max(waiting[0][0] - now, 0.001), self._tick, loop)
