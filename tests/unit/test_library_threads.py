"""Threads: one machine shared, many at once, and the GIL let go where the work is long."""

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sluicegate import SSEDecoder, SSESplitter, Usage, UsageMeter, fold_chat
from sluicegate._core import Pipeline
from stream_corpus import reads

CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % (b"answer " * 50)
USED = b'data: {"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":1}}\n\n'
LARGE = CHUNK * ((64 << 20) // len(CHUNK))


@pytest.fixture
def no_switching() -> Iterator[None]:
    """Threads run on until they wait or let the GIL go of their own accord."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(interval)


FEEDS: dict[str, Callable[[], Callable[[bytes], Any]]] = {
    "SSESplitter": lambda: SSESplitter().feed,
    "SSEDecoder": lambda: SSEDecoder().feed,
    "UsageMeter": lambda: UsageMeter().feed,
    "Pipeline": lambda: Pipeline().feed,
    "Pipeline with a price": lambda: Pipeline(price=b'"cost":1').feed,
    "fold_chat": lambda: fold_chat,
}


@pytest.mark.usefixtures("no_switching")
@pytest.mark.parametrize("name", FEEDS)
def test_another_thread_runs_while_a_large_input_is_worked_on(name: str) -> None:
    ready, go = threading.Event(), threading.Lock()
    ran: list[bool] = []

    def other() -> None:
        ready.set()
        with go:
            ran.append(True)

    with go:
        thread = threading.Thread(target=other)
        thread.start()
        ready.wait()
    # From here on `other` needs nothing but the GIL, and only the calls below can let it go. The operating
    # system may be slow to wake it, so there are several.
    for _ in range(50):
        FEEDS[name]()(LARGE)
        if ran:
            break
    assert ran
    thread.join()


@pytest.mark.usefixtures("no_switching")
def test_a_small_input_is_not_worth_letting_the_gil_go() -> None:
    ready, go = threading.Event(), threading.Lock()
    ran: list[bool] = []

    def other() -> None:
        ready.set()
        with go:
            ran.append(True)

    with go:
        thread = threading.Thread(target=other)
        thread.start()
        ready.wait()
    meter = UsageMeter()
    for _ in range(1000):
        meter.feed(CHUNK * 100)
    assert not ran
    thread.join()
    assert ran


# === one machine, several threads ===

THREADS = 4
EVENTS = [b"data: %d\n\n" % number for number in range(20_000)]


def in_threads(work: Callable[[int], Any]) -> list[Any]:
    barrier = threading.Barrier(THREADS)

    def begin(number: int) -> Any:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(begin, range(THREADS)))


def test_a_shared_splitter_gives_each_event_to_one_thread() -> None:
    splitter = SSESplitter()
    shares = in_threads(
        lambda number: [event for own in EVENTS[number::THREADS] for event in splitter.feed(own * 2)]
    )
    assert Counter(event for share in shares for event in share) == dict.fromkeys(EVENTS, 2)
    assert splitter.finish() == b""


def test_a_shared_decoder_gives_each_event_to_one_thread() -> None:
    decoder = SSEDecoder()
    shares = in_threads(
        lambda number: [event.data for own in EVENTS[number::THREADS] for event in decoder.feed(own)]
    )
    assert Counter(data for share in shares for data in share) == dict.fromkeys(map(str, range(20_000)), 1)


def test_a_shared_meter_is_read_while_it_is_fed() -> None:
    meter = UsageMeter()
    large = USED + CHUNK * ((2 << 20) // len(CHUNK))

    def work(number: int) -> list[int | None]:
        seen: list[int | None] = []
        for _ in range(20):
            meter.feed(large if number % 2 else USED)
            usage = meter.usage
            seen.append(usage.total_tokens if usage else None)
        return seen

    assert {total for seen in in_threads(work) for total in seen} == {3}


def test_machines_of_their_own_do_not_disturb_each_other() -> None:
    def work(number: int) -> tuple[bytes, int | None]:
        body = CHUNK * 30_000 + USED.replace(b":2,", b":%d," % (number + 2))
        pipeline = Pipeline(price=lambda usage: b'"cost":%d' % number)
        shown = b"".join(pipeline.feed(read) for read in reads(body, 1_500_000)) + pipeline.finish()
        assert shown == body[:-4] + b',"cost":%d}}\n\n' % number
        usage = pipeline.usage
        return shown, usage and usage.total_tokens

    assert [total for _, total in in_threads(work)] == [3, 4, 5, 6]


# === a price is Python ===


def test_a_price_that_lets_other_threads_run_does_not_lock_them_out() -> None:
    """They wait for the machine that the price is asked from, and must not hold the GIL meanwhile."""
    turn = threading.Barrier(2)
    asked: list[int | None] = []

    def price(usage: Usage) -> bytes:
        if not asked:
            turn.wait()
        asked.append(usage.total_tokens)
        for _ in range(20):
            threading.Event().wait(0)
        return b'"cost":1'

    pipeline = Pipeline(price=price)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(pipeline.feed, USED * 3)
        turn.wait()
        # Now the machine is held and Python runs within.
        assert pipeline.feed(USED) == USED[:-4] + b',"cost":1}}\n\n'
        assert first.result() == (USED[:-4] + b',"cost":1}}\n\n') * 3
    assert asked == [3] * 4


def test_a_price_may_use_other_machines() -> None:
    def price(usage: Usage) -> bytes:
        inner = Pipeline(price=b'"inner":1')
        assert inner.feed(USED) == USED[:-4] + b',"inner":1}}\n\n'
        return b'"cost":1'

    assert Pipeline(price=price).feed(USED) == USED[:-4] + b',"cost":1}}\n\n'


@pytest.mark.parametrize(
    "use", [lambda pipeline: pipeline.feed(USED), lambda pipeline: pipeline.finish(), lambda p: p.usage]
)
def test_a_price_that_uses_its_own_pipeline_is_told_so(use: Callable[[Pipeline], Any]) -> None:
    def price(usage: Usage) -> bytes:
        use(pipeline)
        return b'"cost":1'

    pipeline = Pipeline(price=price)
    with pytest.raises(RuntimeError, match="cannot be used by its own price"):
        pipeline.feed(USED)
    # The machine goes on, and the bytes that were taken in are there.
    assert pipeline.finish() == USED
    assert pipeline.usage is not None
