"""The event loop of a worker: uvloop, and requests that are not on it.

granian has a thread that calls Python. It hands each request to the event loop, and each message that the
application awaits, and what the relay's thread has done must come to the loop as well: each time a thread
is woken, and the GIL changes hands. Where the application agrees (`sluicegate.gateway.threads`) a request's
coroutine is stepped there and then, by the thread that has what it waited for: the loop never hears of it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from threading import Lock
from typing import Any

import uvloop
from granian import loops

from sluicegate.gateway.threads import OntoLoop, may_wait_anywhere

LOOP = "sluicegate"
"""Its name in granian's registry."""

# granian 2.8 gives the loop, for each request, this function of `(coroutine, watcher)`, which makes a task of
# the coroutine. Where another release does otherwise nothing is recognised, and all is as without this loop.
_BEGINS = ("granian._futures", "_cbsched_aioschedule.<locals>._run")


class Turn:
    """A coroutine that is stepped by whoever has what it waits for. granian's own let no exception out."""

    __slots__ = ("_begin", "_coroutine", "_due", "_loop", "_stepping", "_watcher")

    any_thread = True

    def __init__(
        self,
        loop: "RequestLoop",
        begin: Callable[..., object],
        coroutine: Coroutine[Any, None, None],
        watcher: object,
    ) -> None:
        self._loop = loop
        self._begin = begin
        self._coroutine = coroutine
        self._watcher = watcher
        self._due = False
        self._stepping = Lock()

    def __call__(self, _: object = None) -> None:
        """What it waits for is there."""
        self._due = True
        # Another thread, or a caller further up, may still be in its step: it takes the next one, too.
        while self._due and self._stepping.acquire(blocking=False):
            try:
                if self._due:
                    self._due = False
                    self._step()
            finally:
                self._stepping.release()

    def _step(self) -> None:
        try:
            waiting = self._coroutine.send(None)
            while not isinstance(waiting, OntoLoop):
                if may_wait_anywhere(waiting):
                    waiting._asyncio_future_blocking = False
                    waiting.add_done_callback(self)
                    return
                fault = RuntimeError(f"awaited off the event loop: {type(waiting).__name__}")
                waiting = self._coroutine.throw(fault)
        except StopIteration:
            return
        self._loop.begin(self._begin, self._coroutine, self._watcher)


class RequestLoop(uvloop.Loop):
    """uvloop, but for what need not be on it."""

    any_thread = True

    _begins: Callable[..., object] | None = None

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> Any:
        if getattr(callback, "any_thread", False):
            callback(*args)
            return None
        if self._is_begin(callback):
            Turn(self, callback, *args)()
            return None
        return super().call_soon_threadsafe(callback, *args, context=context)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> Any:
        if getattr(callback, "any_thread", False):
            callback(*args)
            return None
        return super().call_soon(callback, *args, context=context)

    def begin(self, callback: Callable[..., object], coroutine: object, watcher: object) -> None:
        """Let the request go on as a task of this loop."""
        super().call_soon_threadsafe(callback, coroutine, watcher)

    def _is_begin(self, callback: Callable[..., object]) -> bool:
        if callback is self._begins:
            return True
        names = getattr(callback, "__module__", None), getattr(callback, "__qualname__", None)
        if names != _BEGINS:
            return False
        # One function for all requests of a worker.
        self._begins = callback
        return True


@loops.register(LOOP)
def _request_loop() -> asyncio.AbstractEventLoop:
    loop = RequestLoop()
    asyncio.set_event_loop(loop)
    return loop
