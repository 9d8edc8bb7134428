"""Where decisions are made: on a thread of its own, or on the event loop."""

import asyncio
import select
import threading
from collections.abc import Callable
from typing import Protocol

from sluicegate._core import Decisions
from sluicegate.gateway.counting import Counting
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

    def __init__(
        self,
        decider: Decider,
        decisions: Decisions,
        counting: Counting | None,
        died: Callable[[str], None],
    ) -> None:
        self._decider = decider
        self._decisions = decisions
        self._counting = counting
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
            if self._counting is None:
                while not self._stopping:
                    decider.handle(decisions.wait(_WAIT_SECONDS))
                    decider.run_posted()
            else:
                self._count(self._counting)
            decider.handle(decisions.take())
            decider.run_posted()
        except BaseException as error:
            self._died(f"the thread that decides ended: {where(error)}")

    def _count(self, counting: Counting) -> None:
        """Decide, with counters that several machines share: what their server answers wakes this thread
        itself, since a thread between them would cost more than the server does.
        """
        decider, decisions = self._decider, self._decisions
        poll = select.poll()
        poll.register(decisions.fileno(), select.POLLIN)
        counting.start(decisions.wake, lambda fd: poll.register(fd, select.POLLIN), poll.unregister)
        while not self._stopping:
            counting.send()
            poll.poll(counting.wait * 1000)
            counting.receive()
            decider.handle(decisions.take())
            decider.run_posted()
        counting.stop()


class DecidingOnLoop:
    """On the event loop, as an ASGI server's worker has no thread to spare."""

    def __init__(self, decider: Decider, decisions: Decisions, counting: Counting | None) -> None:
        self._decider = decider
        self._decisions = decisions
        self._counting = counting
        self._fd = decisions.fileno()
        self._again: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._fd, self._take)
        if self._counting is not None:
            # What is posted may have to ask the server, too.
            wake = self._decider.wake = self._decisions.wake
            self._counting.start(wake, lambda fd: loop.add_reader(fd, self._take), loop.remove_reader)
            self._take()

    async def stop(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._fd)
        self._take()
        if self._again is not None:
            self._again.cancel()
        if self._counting is not None:
            self._counting.stop()

    def _take(self) -> None:
        decider, counting = self._decider, self._counting
        if counting is None:
            decider.handle(self._decisions.take())
            return
        counting.receive()
        decider.handle(self._decisions.take())
        decider.run_posted()
        counting.send()
        if self._again is not None:
            self._again.cancel()
        self._again = asyncio.get_running_loop().call_later(counting.wait, self._take)
