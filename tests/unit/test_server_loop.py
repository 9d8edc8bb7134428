"""Requests that are stepped where what they wait for is, and what they may wait for."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextvars import copy_context
from typing import Any

import pytest
from granian import loops
from granian._futures import _cbsched_aioschedule

from sluicegate.gateway.threads import ONTO_LOOP, Ending, Taken
from sluicegate.server.loop import LOOP, RequestLoop

Begin = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


class Watcher:
    """granian's, of which only what the loop's side calls is needed."""

    task: Any = None

    def taskref(self, task: Any) -> None:
        self.task = task


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A worker's loop, running on a thread of its own."""
    loop = loops.get(LOOP)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()
    asyncio.set_event_loop(None)


@pytest.fixture
def begin(loop: asyncio.AbstractEventLoop) -> Begin:
    """Begin a request as granian does: its own function decides what the loop is given."""

    def begin(request: Callable[[], Coroutine[Any, Any, None]]) -> None:
        schedule = _cbsched_aioschedule(loop, copy_context(), lambda _: request())
        schedule(Watcher())

    return begin


def on_another_thread(call: Callable[[], object]) -> int:
    """Its number."""
    thread = threading.Thread(target=call)
    thread.start()
    number = thread.ident
    thread.join(10)
    assert number is not None
    return number


def test_a_worker_has_this_loop(loop: asyncio.AbstractEventLoop) -> None:
    assert isinstance(loop, RequestLoop)


def test_a_request_begins_on_the_thread_that_brings_it(begin: Begin) -> None:
    seen: list[int] = []

    async def request() -> None:
        seen.append(threading.get_ident())

    begin(request)
    assert seen == [threading.get_ident()]


def test_it_goes_on_where_what_it_waits_for_ends(begin: Begin, loop: asyncio.AbstractEventLoop) -> None:
    ending = Ending(loop)
    seen: list[int] = []

    async def request() -> None:
        await ending
        seen.append(threading.get_ident())

    begin(request)
    assert seen == []
    thread = on_another_thread(ending.end)
    assert seen == [thread]


def test_what_has_ended_is_not_waited_for(begin: Begin, loop: asyncio.AbstractEventLoop) -> None:
    ending = Ending(loop)
    ending.end()
    seen: list[int] = []

    async def request() -> None:
        await ending
        seen.append(threading.get_ident())

    begin(request)
    assert seen == [threading.get_ident()]


def test_whoever_needs_the_loop_goes_there(begin: Begin, loop: asyncio.AbstractEventLoop) -> None:
    over = threading.Event()
    seen: list[Any] = []

    async def request() -> None:
        await ONTO_LOOP
        seen.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        seen.append(asyncio.current_task() is not None)
        over.set()

    begin(request)
    assert over.wait(10)
    assert seen == [loop, True]


def test_nothing_of_asyncios_is_awaited_elsewhere(begin: Begin, loop: asyncio.AbstractEventLoop) -> None:
    seen: list[str] = []

    async def request() -> None:
        for waiting in (asyncio.sleep(0), loop.create_future()):
            try:
                await waiting
            except RuntimeError as error:
                seen.append(str(error))

    begin(request)
    assert seen == ["awaited off the event loop: NoneType", "awaited off the event loop: Future"]


class ThereAtOnce:
    """Like a server's future whose result came between the two questions for it."""

    _asyncio_future_blocking = True

    def __await__(self) -> Generator[Any, None, None]:
        yield self

    def add_done_callback(self, callback: Callable[[object], None]) -> None:
        callback(self)


def test_a_long_body_that_is_there_takes_no_deep_stack(begin: Begin) -> None:
    seen: list[int] = []

    async def request() -> None:
        for number in range(100_000):
            await ThereAtOnce()
            seen.append(number)

    begin(request)
    assert seen == list(range(100_000))


def test_no_end_is_missed(begin: Begin, loop: asyncio.AbstractEventLoop) -> None:
    """Ends that come while their requests begin to wait."""
    endings = [Ending(loop) for _ in range(5_000)]
    left = len(endings)
    over = threading.Event()
    counting = threading.Lock()

    async def request(ending: Ending) -> None:
        nonlocal left
        await ending
        with counting:
            left -= 1
        if not left:
            over.set()

    def end() -> None:
        for ending in endings:
            ending.end()

    thread = threading.Thread(target=end)
    thread.start()
    for ending in endings:
        begin(lambda ending=ending: request(ending))  # type: ignore[misc]
    thread.join(10)
    assert over.wait(10)


# === under a server that runs requests as tasks ===


async def test_a_task_waits_for_an_end_on_another_thread() -> None:
    ending = Ending(asyncio.get_running_loop())

    async def request() -> int:
        await ending
        return threading.get_ident()

    task = asyncio.ensure_future(request())
    await asyncio.sleep(0)
    on_another_thread(ending.end)
    async with asyncio.timeout(10):
        assert await task == threading.get_ident()


async def test_a_task_that_waits_can_be_cancelled() -> None:
    ending = Ending(asyncio.get_running_loop())

    async def request() -> None:
        await ending

    task = asyncio.ensure_future(request())
    await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(10):
        with pytest.raises(asyncio.CancelledError):
            await task


class Sent:
    """Like a server's future of a message, when it is done."""

    def __init__(self, fault: Exception | None = None) -> None:
        self._fault = fault

    def result(self) -> None:
        if self._fault is not None:
            raise self._fault


@pytest.mark.parametrize(("fault", "taken"), [(None, True), (ConnectionError(), False)])
def test_a_message_that_was_waited_for_is_told_at_once(
    loop: asyncio.AbstractEventLoop, fault: Exception | None, taken: bool
) -> None:
    told: list[tuple[bool, int]] = []

    def resume(ok: bool) -> None:
        told.append((ok, threading.get_ident()))

    loop.call_soon_threadsafe(Taken(resume), Sent(fault))
    loop.call_soon(Taken(resume), Sent(fault))
    assert told == [(taken, threading.get_ident())] * 2
