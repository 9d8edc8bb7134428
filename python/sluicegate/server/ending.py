"""The end of a process that has not ended by itself, or is not to wait for it."""

import os
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NoReturn

from sluicegate.telemetry import Log


class Ending:
    """Ends this process at a time that was set, on a thread of its own, whatever the others are doing.

    Its methods may be called from any thread and from a signal's handler: the queue's `put` is made for that.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._orders: SimpleQueue[tuple[float, int] | None] = SimpleQueue()
        self._cleanups: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._run, name="sluicegate-ending", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def also(self, cleanup: Callable[[], None]) -> None:
        """Call `cleanup` before such an end."""
        self._cleanups.append(cleanup)

    def within(self, seconds: float, status: int) -> None:
        """End the process with `status` after `seconds`, unless it is set anew before then, or cancelled."""
        self._orders.put((time.monotonic() + seconds, status))

    def at_once(self, status: int) -> None:
        """End the process with `status` now."""
        self.within(0.0, status)

    def cancel(self) -> None:
        """It has ended by itself. Idempotent."""
        self._orders.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        order = self._orders.get()
        while order is not None:
            deadline, status = order
            try:
                order = self._orders.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                self._end(status)

    def _end(self, status: int) -> NoReturn:
        try:
            for cleanup in self._cleanups:
                cleanup()
            self._log.info("stopped", status=status)
            self._log.close()
        finally:
            os._exit(status)
