"""Finding out that a client has left."""

import asyncio
from typing import Any

from sluicegate.gateway.asgi import Receive
from sluicegate.gateway.threads import Ending


class ClientWatch:
    """Ends `over` when the client leaves: asks the server for message after message, and looks at each.

    No coroutine waits for them, so that a held stream costs no more than this object.
    """

    __slots__ = ("_over", "_receive", "_task")

    any_thread = True

    def __init__(self, over: Ending, receive: Receive) -> None:
        self._over = over
        self._receive = receive
        self._task: asyncio.Task[Any] | None = None

    def look(self) -> None:
        """Wait for the next message. On the event loop, or on any thread where that is no coroutine."""
        waiting: Any = self._receive()
        if asyncio.iscoroutine(waiting):
            waiting = self._task = asyncio.get_running_loop().create_task(waiting)
        waiting.add_done_callback(self)

    def stop(self) -> None:
        """The reply is over."""
        if self._task is not None:
            self._task.cancel()

    def __call__(self, received: Any) -> None:
        if self._over.done():
            return
        try:
            left = received.result()["type"] == "http.disconnect"
        except Exception:  # Whatever a server raises for a client that is gone.
            left = True
        if left:
            self._over.end()
        else:
            self.look()
