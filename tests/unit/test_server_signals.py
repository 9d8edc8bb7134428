"""What signals tell a process, and its end where it does not end by itself."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sluicegate.server.signals import STOP_SIGNALS, Signals


class Heard:
    def __init__(self) -> None:
        self.said: list[Any] = []
        self.signals = Signals(self.said.append)

    def stop(self) -> None:
        self.said.append("stop")

    def reload(self) -> None:
        self.said.append("reload")


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def handlers() -> Iterator[None]:
    """This process has its own handlers again afterwards."""
    numbers = (*STOP_SIGNALS, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def turn() -> None:
    """What was called onto the loop has been done."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@pytest.mark.parametrize(("after", "forced"), [(0.0, False), (0.4, False), (0.6, True), (60.0, True)])
async def test_a_later_signal_ends_at_once_and_an_echo_does_not(
    monkeypatch: pytest.MonkeyPatch, heard: Heard, after: float, forced: bool
) -> None:
    now = [1000.0]
    monkeypatch.setattr("sluicegate.server.signals.time.monotonic", lambda: now[0])
    heard.signals.attach(asyncio.get_running_loop(), heard.stop, heard.reload)
    heard.signals.stop_came(signal.SIGTERM)
    now[0] += after
    heard.signals.stop_came(signal.SIGINT)
    monkeypatch.undo()
    await turn()
    assert sorted(heard.said, key=str) == ([128 + signal.SIGINT] if forced else []) + ["stop"]


async def test_what_comes_before_anybody_listens_is_kept(heard: Heard) -> None:
    heard.signals.reload_came()
    heard.signals.stop_came(signal.SIGTERM)
    assert heard.said == []
    heard.signals.attach(asyncio.get_running_loop(), heard.stop, heard.reload)
    assert heard.said == ["stop", "reload"]


async def test_each_hangup_asks_again(heard: Heard) -> None:
    heard.signals.attach(asyncio.get_running_loop(), heard.stop, heard.reload)
    heard.signals.reload_came()
    heard.signals.reload_came()
    await turn()
    assert heard.said == ["reload", "reload"]


@pytest.mark.usefixtures("handlers")
async def test_a_real_signal_wakes_the_loop(heard: Heard) -> None:
    heard.signals.install()
    stopped = asyncio.Event()
    reloaded = asyncio.Event()
    heard.signals.attach(asyncio.get_running_loop(), stopped.set, reloaded.set)
    os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(10):
        await reloaded.wait()
        await stopped.wait()


@pytest.mark.usefixtures("handlers")
def test_an_echo_after_the_loop_is_nothing(heard: Heard) -> None:
    heard.signals.install()
    loop = asyncio.new_event_loop()
    heard.signals.attach(loop, heard.stop, heard.reload)
    loop.close()
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGHUP)
    assert heard.said == []


# === the end ===

ENDING = """
import threading, time
from sluicegate.server.ending import Ending
from sluicegate.telemetry import Log

ending = Ending(Log())
ending.also(lambda: print("cleaned up", flush=True))
ending.start()
{orders}
threading.Event().wait()
"""


def end(orders: str) -> "subprocess.CompletedProcess[str]":
    """A process that does nothing but wait, for ever, after these orders."""
    code = ENDING.format(orders=textwrap.dedent(orders))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)


def test_a_process_that_hangs_is_ended_in_time() -> None:
    begun = time.monotonic()
    done = end("ending.within(0.2, 3)")
    assert time.monotonic() - begun >= 0.2
    assert done.returncode == 3
    assert "cleaned up" in done.stdout
    assert '"event":"stopped","status":3' in done.stdout


def test_an_end_is_put_forward() -> None:
    done = end("ending.within(3600, 1)\nending.at_once(130)")
    assert done.returncode == 130


def test_an_end_that_is_cancelled_does_not_come() -> None:
    done = end("ending.within(3600, 1)\nending.cancel()\nending.cancel()\nraise SystemExit(7)")
    assert done.returncode == 7
    assert done.stdout == ""
