"""What tells a worker to stop, and how often that counts."""

import asyncio
import contextlib
import signal
from collections.abc import Callable
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopOrder:
    """The signals that stop a process, taken as one order: the first one counts, the others say the same.

    Several come together as a rule: the parent signals its workers, and a terminal, `timeout` or a supervisor
    the whole group. The server's own handler must hear of one only: it puts each into a channel that holds
    one, and waits, on the event loop's thread and for ever, where that is full.

    The server gives its handler to the loop (`add_signal_handler`), so it is there that it is taken in. It
    runs the loop twice, for the application's start and for the rest, and uvloop hears of signals only while
    it runs: one that comes in between is kept for it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Made before the server gives its handlers to `loop`."""
        self._loop = loop
        self._add = loop.add_signal_handler
        self._told: Callable[[], Any] | None = None
        self._also: Callable[[], None] | None = None
        self._given = False
        loop.add_signal_handler = self._added  # type: ignore[method-assign, assignment]

    def also(self, callback: Callable[[], None]) -> None:
        """Call `callback` with the order, behind the server's handler; at once where it has been given."""
        self._also = callback
        if self._given:
            callback()

    def _added(self, number: int, callback: Callable[..., Any], *args: Any) -> None:
        if number not in SIGNALS:
            self._add(number, callback, *args)
            return
        # The same for each of them.
        self._told = lambda: callback(*args)
        self._add(number, self._give)
        # In place of the loop's own, which does nothing.
        signal.signal(number, self._came)
        signal.siginterrupt(number, False)

    def _came(self, *_: object) -> None:
        # RuntimeError: the loop is closed, and what is left is the process's end.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._give)

    def _give(self) -> None:
        if self._given:
            return
        self._given = True
        if self._told is not None:
            self._told()
        if self._also is not None:
            self._also()
