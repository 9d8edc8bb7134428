"""When to begin to look whether a client is still there."""

import asyncio
from collections import deque
from threading import Lock

from sluicegate.gateway.reply import Reply

# Looking costs turns through the server's threads, a tenth or more of what a small request costs. One that
# ends within this time needs none of it; a client that leaves that soon is noticed this much later.
PATIENCE_SECONDS = 0.02


class Patience:
    """Lets replies that are not over after `PATIENCE_SECONDS` look, with one timer for all of them."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, Reply]] = deque()
        self._planned = False
        self._lock = Lock()

    def wait_for(self, reply: Reply, loop: asyncio.AbstractEventLoop) -> None:
        """Let `reply` look whether its client is still there, unless it is over by then. Any thread."""
        due = loop.time() + PATIENCE_SECONDS
        with self._lock:
            self._waiting.append((due, reply))
            if self._planned:
                return
            self._planned = True
        loop.call_soon_threadsafe(loop.call_later, PATIENCE_SECONDS, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        waiting = self._waiting
        while waiting and waiting[0][0] <= now:
            waiting.popleft()[1].look()
        while waiting and waiting[0][1].over.done():
            waiting.popleft()
        with self._lock:
            self._planned = bool(waiting)
            if not waiting:
                return
        loop.call_later(max(waiting[0][0] - now, 0.001), self._tick, loop)
