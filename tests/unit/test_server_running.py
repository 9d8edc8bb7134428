"""A gateway from its start to its end: who is told what, in which order, and what is left behind."""

import asyncio
import gc
import json
import signal
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sluicegate.config import Config, load_data
from sluicegate.errors import ConfigurationError
from sluicegate.server import running as life
from sluicegate.server.address import hold_address
from sluicegate.server.application import Application
from sluicegate.server.running import Running
from sluicegate.server.signals import Signals
from sluicegate.telemetry import Metrics

CONFIG: dict[str, Any] = {
    "server": {"port": 0, "threads": 2, "drain_seconds": 5},
    "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1"}},
    "models": {"small": "local"},
    "cost": {"genai_prices": False},
}


class Told:
    """Who was told what, in order; a log as well."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.lines: dict[str, dict[str, Any]] = {}
        self._changed = asyncio.Event()

    def say(self, what: str) -> None:
        self.said.append(what)
        self._changed.set()

    def event(self, event: str, **fields: Any) -> None:
        self.lines[event] = fields
        self.say(f"log {event}")

    info = warning = error = event

    async def wait(self, what: str) -> None:
        async with asyncio.timeout(10):
            while what not in self.said:
                self._changed.clear()
                await self._changed.wait()


class Front:
    def __init__(self, told: Told) -> None:
        self._told = told
        self.active = 0
        self.connections = 0
        self.listened: dict[str, Any] = {}

    def listen(self, host: str, port: int, application: str, **how: Any) -> None:
        self.listened = {"host": host, "port": port, "application": application, **how}
        self._told.say("front listens")

    def drain(self) -> None:
        self._told.say("front drains")


class Gateway:
    """What the server knows of one, and an application that answers with its state."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self.made = Front(told)
        self.front: Front | None = None
        self.on_death: Any = None
        self.broken = False
        self.refuses = False
        self.draining = False
        self.configuration = Metrics().configuration

    def start(self, *, deciding_thread: bool) -> None:
        if self.broken:
            raise ValueError("cannot start")
        assert deciding_thread
        self.front = self.made
        self._told.say("gateway starts")

    async def looked(self) -> None:
        assert self.front is not None

    def reload(self, config: Config) -> None:
        if self.refuses:
            raise ConfigurationError("not this one")
        self._told.say("gateway reloads")

    def leave(self) -> None:
        self.draining = True
        self._told.say("gateway leaves")

    def drain(self, seconds: float) -> None:
        assert seconds == 5
        self.draining = True
        self._told.say("gateway drains")
        self.made.drain()

    async def shutdown(self) -> None:
        self._told.say("gateway ends")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http", "its life is the server's part"
        status = 503 if self.draining else 200
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": scope["path"].encode()})


class Ending:
    def __init__(self) -> None:
        self.orders: list[tuple[float, int]] = []

    def within(self, seconds: float, status: int) -> None:
        self.orders.append((seconds, status))

    def at_once(self, status: int) -> None:
        self.within(0, status)

    def also(self, cleanup: Any) -> None:
        pass


class Stand:
    def __init__(self, config: dict[str, Any] = CONFIG, path: Path | None = None) -> None:
        self.told = Told()
        self.gateway = Gateway(self.told)
        self.front = self.gateway.made
        self.ending = Ending()
        self.signals = Signals(self.ending.at_once)
        server = load_data(config).server
        self.address = hold_address(server.host, 0)
        gateway: Any = self.gateway
        log: Any = self.told
        self.running = Running(gateway, load_data(config), self.address, None, 500, log)
        ending: Any = self.ending
        self.task = asyncio.ensure_future(self.running.run(self.signals, ending, path))

    async def end(self) -> int:
        """Its status, once it has ended by itself."""
        try:
            async with asyncio.timeout(20):
                return await self.task
        finally:
            self.address.release()

    async def stop(self) -> int:
        self.signals.stop_came(signal.SIGTERM)
        return await self.end()

    async def ask(self, path: str) -> httpx.Response:
        transport = httpx.AsyncHTTPTransport(uds=self.front.listened["application"])
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            return await client.get(path)


@pytest.fixture(autouse=True)
def interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As it was afterwards. Files go to `tmp_path`."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    for entry in tmp_path.iterdir():
        assert not entry.name.startswith("sluicegate-"), "it has left something behind"


# === start and stop ===


async def test_it_begins_and_ends_in_order() -> None:
    stand = Stand()
    await stand.told.wait("log listening")
    assert (await stand.ask("/models")).text == "/models"
    assert await stand.stop() == 0
    assert stand.told.said == [
        "gateway starts",
        "front listens",
        "log listening",
        "gateway drains",
        "front drains",
        "gateway ends",
    ]
    assert stand.told.lines["listening"] == {
        "address": f"http://127.0.0.1:{stand.address.port}",
        "host": "127.0.0.1",
        "port": stand.address.port,
        "threads": 2,
    }


async def test_the_front_gets_the_address_and_the_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(life, "ListenBounds", lambda **bounds: bounds)
    stand = Stand()
    await stand.told.wait("log listening")
    listened = stand.front.listened
    assert (listened["host"], listened["port"]) == (stand.address.host, stand.address.port)
    assert stand.address.holder.fileno() == -1, "it is the front's now"
    assert (listened["http2"], listened["tls"]) == (False, None)
    assert listened["bounds"] == {
        "head_bytes": 16384,
        "url_bytes": 8192,
        "headers": 100,
        "head_seconds": 15.0,
        "body_pause_seconds": 30.0,
        "body_bytes_per_second": 500,
        "idle_seconds": 75.0,
        "connections": 500,
        "http2_streams": 128,
        "http2_resets": 128,
        "stall_seconds": 60.0,
    }
    directory = Path(listened["application"]).parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert await stand.stop() == 0
    assert not directory.exists()


async def test_an_order_to_stop_that_comes_early_is_not_forgotten() -> None:
    stand = Stand()
    assert await stand.stop() == 0
    assert "gateway drains" in stand.told.said


async def test_the_application_answers_until_nobody_is_served_any_more() -> None:
    stand = Stand()
    await stand.told.wait("log listening")
    assert (await stand.ask("/readyz")).status_code == 200
    stand.front.connections = 1
    stand.signals.stop_came(signal.SIGTERM)
    await stand.told.wait("front drains")
    assert (await stand.ask("/readyz")).status_code == 503
    stand.front.active = 1
    stand.front.connections = 0
    assert (await stand.ask("/readyz")).status_code == 503
    assert not stand.task.done()
    stand.front.active = 0
    assert await stand.end() == 0
    [(seconds, status)] = stand.ending.orders
    assert (seconds > 5, status) == (True, 1), "it is ended where it does not end"


def with_delay(seconds: float) -> dict[str, Any]:
    return {**CONFIG, "server": {**CONFIG["server"], "drain_delay_seconds": seconds}}


async def test_balancers_hear_that_it_leaves_before_it_accepts_nothing_more() -> None:
    stand = Stand(with_delay(0.01))
    await stand.told.wait("log listening")
    assert await stand.stop() == 0
    assert stand.told.said[3:] == [
        "gateway leaves",
        "log leaving",
        "gateway drains",
        "front drains",
        "gateway ends",
    ]


async def test_requests_are_served_while_it_waits_for_balancers() -> None:
    stand = Stand(with_delay(600))
    await stand.told.wait("log listening")
    stand.signals.stop_came(signal.SIGTERM)
    await stand.told.wait("log leaving")
    assert (await stand.ask("/readyz")).status_code == 503
    assert "front drains" not in stand.told.said
    [(seconds, _)] = stand.ending.orders
    assert seconds > 605, "it is not ended for taking its time"
    stand.gateway.on_death("")
    assert await stand.end() == 1
    assert "gateway drains" not in stand.told.said


async def test_a_drain_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life, "CUT_SECONDS", -4.9)
    stand = Stand()
    stand.front.active = 1
    assert await stand.stop() == 0
    assert stand.told.said[-1] == "gateway ends"


async def test_a_gateway_that_cannot_start_leaves_nothing() -> None:
    stand = Stand()
    stand.gateway.broken = True
    with pytest.raises(ValueError, match="cannot start"):
        await stand.end()
    assert stand.told.said == ["gateway ends"]


# === death ===


async def test_a_death_is_told_and_ends_the_process_with_1() -> None:
    stand = Stand()
    await stand.told.wait("log listening")
    stand.front.active = 1
    thread = threading.Thread(target=lambda: stand.gateway.on_death("an engine thread panicked"))
    thread.start()
    assert await stand.end() == 1
    thread.join()
    assert "gateway drains" not in stand.told.said
    assert stand.told.said[-1] == "gateway ends"
    [(_, status)] = stand.ending.orders
    assert status == 1


async def test_a_death_while_it_drains_ends_the_wait() -> None:
    stand = Stand()
    await stand.told.wait("log listening")
    stand.front.active = 1
    stand.signals.stop_came(signal.SIGTERM)
    await stand.told.wait("front drains")
    stand.gateway.on_death("an engine thread panicked")
    assert await stand.end() == 1


async def test_an_application_that_ends_by_itself_is_a_death(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Application] = []

    def make(*arguments: Any) -> Application:
        made.append(Application(*arguments))
        return made[-1]

    monkeypatch.setattr(life, "Application", make)
    stand = Stand()
    await stand.told.wait("log listening")
    made[0]._server.stop()  # type: ignore[no-untyped-call]
    assert await stand.end() == 1
    assert stand.told.lines["died"] == {"message": "the application's server ended"}


async def test_a_path_too_long_for_a_socket_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with pytest.raises(OSError, match="set TMPDIR"):
        await Stand().end()
    assert list(deep.iterdir()) == []


# === a changed configuration ===


def write(path: Path, config: dict[str, Any]) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(config))
    new.replace(path)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration's file, looked at often."""
    monkeypatch.setattr("sluicegate.server.reload.POLL_SECONDS", 0.01)
    path = tmp_path / "gateway.yaml"
    write(path, CONFIG)
    return path


async def test_a_changed_file_is_taken_on_the_loop(path: Path) -> None:
    stand = Stand(path=path)
    await stand.told.wait("log listening")
    write(path, {**CONFIG, "models": {"new": "local", "small": "local"}})
    await stand.told.wait("log reloaded")
    assert stand.told.lines["reloaded"] == {"models": 2}
    assert stand.told.said.index("gateway reloads") < stand.told.said.index("log reloaded")
    assert await stand.stop() == 0


async def test_a_hangup_reloads_what_has_not_changed(path: Path) -> None:
    stand = Stand(path=path)
    await stand.told.wait("log listening")
    stand.signals.reload_came()
    await stand.told.wait("log reloaded")
    assert await stand.stop() == 0


async def test_what_the_gateway_refuses_is_told(path: Path) -> None:
    stand = Stand(path=path)
    await stand.told.wait("log listening")
    stand.gateway.refuses = True
    write(path, {**CONFIG, "models": {"new": "local"}})
    await stand.told.wait("log reload_failed")
    assert stand.told.lines["reload_failed"]["faults"] == ["configuration: not this one"]
    assert "log reloaded" not in stand.told.said
    assert await stand.stop() == 0


async def test_it_ends_while_a_change_is_taken(path: Path) -> None:
    """The reader waits for the loop, and the loop does not wait for the reader."""
    stand = Stand(path=path)
    await stand.told.wait("log listening")
    write(path, {**CONFIG, "models": {"new": "local"}})
    assert await stand.stop() == 0
