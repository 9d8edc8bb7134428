"""Which thread a request's coroutine runs on.

A server may step it on any thread, as long as it waits for nothing of asyncio's (`sluicegate.server.loop`
does: it saves a request the way to the event loop and back, several times). What it waits for there is the
server's `receive`, and the end of its reply. Whoever needs more goes `onto_loop` first. Under a server that
runs it as a task on the loop, as ASGI has it, nothing of this makes a difference.

Such a server's loop has `any_thread`: a callback that has it, too, may be given to it, or to a future of the
server's, on any thread, and is called there and then.
"""

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any

Resume = Callable[["Ending"], object]


class OntoLoop:
    """Awaited on another thread than the loop's: the server goes on with the coroutine on the loop."""

    __slots__ = ()

    def __await__(self) -> Generator["OntoLoop", None, None]:
        yield self


ONTO_LOOP = OntoLoop()


def may_wait_anywhere(waiting: Any) -> bool:
    """Whether it is like a future, but none of asyncio's, which are for the loop's thread alone."""
    return getattr(waiting, "_asyncio_future_blocking", False) and not isinstance(waiting, asyncio.Future)


class Taken:
    """Called with the server's future of a message: tells `resume` whether the server took it. Any thread."""

    __slots__ = ("_resume",)

    any_thread = True

    def __init__(self, resume: Callable[[bool], None]) -> None:
        self._resume = resume

    def __call__(self, sent: Any) -> None:
        try:
            sent.result()
        except Exception:  # Whatever a server raises for a client that is gone.
            self._resume(False)
        else:
            self._resume(True)


class Ending:
    """Something that ends once, on any thread, and one coroutine on any thread that waits for it.

    To the coroutine's side it is like a future of asyncio's. The loop's `call_soon_threadsafe` is told to
    resume the coroutine; a loop that knows better does so at once.
    """

    __slots__ = ("_asyncio_future_blocking", "_cancelled", "_loop", "_over", "_resume")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._over = False
        self._cancelled = False
        # A list, since its `append` and `pop` are atomic: whichever of the two sides comes second resumes.
        self._resume: list[tuple[Resume, Context | None]] = []
        self._asyncio_future_blocking = False

    def end(self) -> None:
        """It is over. Idempotent; any thread. The coroutine may run on before this returns."""
        self._over = True
        self._wake()

    def done(self) -> bool:
        return self._over

    def __await__(self) -> Generator["Ending", None, None]:
        if not self._over:
            self._asyncio_future_blocking = True
            yield self
        self.result()

    # === what a task of asyncio's asks of a future ===

    def add_done_callback(self, callback: Resume, *, context: Context | None = None) -> None:
        self._resume.append((callback, context))
        if self._over:
            self._wake()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def cancel(self, msg: Any = None) -> bool:
        if self._over:
            return False
        self._cancelled = True
        self.end()
        return True

    def result(self) -> None:
        if self._cancelled:
            raise asyncio.CancelledError

    def _wake(self) -> None:
        try:
            callback, context = self._resume.pop()
        except IndexError:
            return
        try:
            self._loop.call_soon_threadsafe(callback, self, context=context)
        except RuntimeError:  # The loop is closed: the server is gone, and the client with it.
            return
