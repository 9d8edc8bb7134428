"""How long this machine has stood still: what says whether a failed test had the machine to itself."""

import threading
import time
from typing import Self

_EVERY = 0.02


class Heartbeat:
    """A thread that wakes up every 20 ms while this is entered."""

    def __init__(self) -> None:
        self._longest = 0.0
        self._last = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()

    def start(self) -> None:
        self._last = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    @property
    def longest_stall(self) -> float:
        """The longest that a beat was late since `restart`, in seconds; one that is late now counts."""
        return max(self._longest, time.monotonic() - self._last - _EVERY, 0.0)

    def restart(self) -> None:
        self._longest = 0.0

    def _beat(self) -> None:
        while not self._over.wait(_EVERY):
            now = time.monotonic()
            self._longest = max(self._longest, now - self._last - _EVERY)
            self._last = now
