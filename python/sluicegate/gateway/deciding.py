"""Where decisions are made: on a thread of its own, or on the event loop."""

import asyncio
import threading
from collections.abc import Callable
from typing import Protocol

from sluicegate._core import Decisions
from sluicegate.gateway.decisions import Decider
from sluicegate.telemetry import where

# What there is wakes the thread, and so does what is posted; this bounds a sleep that nothing ends.
_WAIT_SECONDS = 60.0


class Deciding(Protocol):
    """Brings events to the decider."""

    def start(self) -> None:
        """On the event loop."""

    async def stop(self, seconds: float) -> None:
        """On the event loop: what is there by now is handled, within `seconds`. Once."""


class DecidingThread:
    """On a thread of its own: no request waits for what the event loop does meanwhile.

    `died` is called on that thread where it ends by an exception: nothing would be decided any more.
    """

    def __init__(self, decider: Decider, decisions: Decisions, died: Callable[[str], None]) -> None:
        self._decider = decider
        self._decisions = decisions
        self._died = died
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="sluicegate-decisions", daemon=True)

    def start(self) -> None:
        self._decider.wake = self._decisions.wake
        self._thread.start()

    async def stop(self, seconds: float) -> None:
        self._stopping = True
        self._decisions.wake()
        await asyncio.to_thread(self._thread.join, seconds)

    def _run(self) -> None:
        decider, decisions = self._decider, self._decisions
        try:
            while not self._stopping:
                decider.handle(decisions.wait(_WAIT_SECONDS))
                decider.run_posted()
            decider.handle(decisions.take())
            decider.run_posted()
        except BaseException as error:
            self._died(f"the thread that decides ended: {where(error)}")


class DecidingOnLoop:
    """On the event loop, as an ASGI server's worker has no thread to spare."""

    def __init__(self, decider: Decider, decisions: Decisions) -> None:
        self._decider = decider
        self._decisions = decisions
        self._fd = decisions.fileno()

    def start(self) -> None:
        asyncio.get_running_loop().add_reader(self._fd, self._take)

    async def stop(self, seconds: float) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        self._take()

    def _take(self) -> None:
        self._decider.handle(self._decisions.take())
