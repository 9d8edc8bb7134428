"""The signals that this process handles."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable
from types import FrameType

# One order to stop often comes twice: to this process and to its group (`timeout`, terminals, supervisors).
SAME_SIGNAL_SECONDS = 0.5

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """SIGTERM and SIGINT stop, a later one of them ends at once, SIGHUP asks for the configuration.

    They are heard from `install` on, and kept until somebody listens. From `ignore` on they are ignored to
    the end of the process: an echo of the order to stop must not end it otherwise while it is ending.
    """

    def __init__(self, end_at_once: Callable[[int], object]) -> None:
        """`end_at_once` gets an exit status, in a handler: it may take no lock."""
        self._end_at_once = end_at_once
        self._first: float | None = None
        self._asked = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: Callable[[], object] | None = None
        self._reload: Callable[[], object] | None = None

    def install(self) -> None:
        """Hear of signals from now on. On the main thread."""
        for number in STOP_SIGNALS:
            signal.signal(number, self.stop_came)
        signal.signal(signal.SIGHUP, self.reload_came)
        for number in (*STOP_SIGNALS, signal.SIGHUP):
            # Calls of other threads' into the system go on where they were.
            signal.siginterrupt(number, False)

    def ignore(self) -> None:
        """Hear of signals no more: nothing is left but the process's end. On the main thread."""
        for number in (*STOP_SIGNALS, signal.SIGHUP):
            # Before Python ends it takes its handlers away, and such a signal would kill it. It leaves those
            # alone that are ignored.
            signal.signal(number, signal.SIG_IGN)

    def attach(
        self, loop: asyncio.AbstractEventLoop, stop: Callable[[], object], reload: Callable[[], object]
    ) -> None:
        """Call `stop` (once) and `reload` on `loop`, for what came before this, too."""
        self._stop = stop
        self._reload = reload
        self._loop = loop
        if self._first is not None:
            stop()
        if self._asked:
            reload()

    def stop_came(self, number: int, _: FrameType | None = None) -> None:
        """The handler of `STOP_SIGNALS`."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
            self._tell(self._stop)
        elif now - self._first >= SAME_SIGNAL_SECONDS:
            # As a shell would say.
            self._end_at_once(128 + number)

    def reload_came(self, number: int = signal.SIGHUP, _: FrameType | None = None) -> None:
        """The handler of SIGHUP."""
        self._asked = True
        self._tell(self._reload)

    def _tell(self, callback: Callable[[], object] | None) -> None:
        if self._loop is not None and callback is not None:
            # RuntimeError: the loop is closed, and what is left is the process's end.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(callback)
