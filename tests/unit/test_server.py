"""Parts of the server that need no process of their own."""

import asyncio
import errno
import os
import pickle
import resource
import signal
import socket
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from sluicegate.config import load_data
from sluicegate.server.address import hold_address
from sluicegate.server.limits import connections_per_worker, raise_open_files
from sluicegate.server.loop import RequestLoop
from sluicegate.server.stopping import SIGNALS, StopOrder
from sluicegate.server.worker import Plan

serving = import_module("sluicegate.server.serve")

CONFIG: dict[str, Any] = {
    "keys": [{"name": "team", "key": "sk-secret"}],
    "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1", "api_key": "sk-upstream"}},
    "models": {"small": "local"},
    "cost": {"genai_prices": False},
}


# === address ===


def test_a_free_port_is_found_and_held() -> None:
    address = hold_address("127.0.0.1", 0)
    with address.holder:
        assert address.port > 0
        assert str(address) == f"127.0.0.1:{address.port}"
        with pytest.raises(OSError, match="in use") as raised:
            hold_address("127.0.0.1", address.port)
        assert raised.value.errno == errno.EADDRINUSE
    hold_address("127.0.0.1", address.port).holder.close()


def test_a_held_port_can_be_listened_on_by_each_worker() -> None:
    address = hold_address("127.0.0.1", 0)
    with address.holder, socket.socket() as one, socket.socket() as two:
        for worker in (one, two):
            worker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            worker.bind((address.host, address.port))
            worker.listen()
        with socket.create_connection((address.host, address.port), 5):
            pass


def test_a_port_that_somebody_listens_on_is_refused_even_if_he_would_share_it() -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(OSError, match="in use"):
            hold_address("127.0.0.1", other.getsockname()[1])


def test_a_name_becomes_an_address() -> None:
    address = hold_address("localhost", 0)
    with address.holder:
        assert address.host in ("127.0.0.1", "::1")


def test_an_ipv6_address_is_written_in_brackets() -> None:
    try:
        address = hold_address("::1", 0)
    except OSError:
        pytest.skip("no IPv6 here")
    with address.holder:
        assert str(address) == f"[::1]:{address.port}"


# === signals ===


class Loop:
    """Where a server leaves its handlers."""

    def __init__(self) -> None:
        self.handlers: dict[int, Any] = {}

    def add_signal_handler(self, number: int, callback: Any, *args: Any) -> None:
        self.handlers[number] = lambda: callback(*args)


@pytest.fixture
def handlers() -> Iterator[None]:
    """This process has its own handlers again afterwards."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_all_signals_that_stop_are_one_order() -> None:
    loop: Any = Loop()
    order = StopOrder(loop)
    told: list[Any] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.append, "server")
    loop.add_signal_handler(signal.SIGHUP, told.append, "reload")
    order.also(lambda: told.append("gateway"))
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        loop.handlers[number]()
    assert told == ["server", "gateway", "reload"]


@pytest.mark.usefixtures("handlers")
def test_an_order_that_comes_while_the_loop_does_not_run_is_not_lost() -> None:
    loop = RequestLoop()
    told: list[str] = []
    over = asyncio.Event()
    try:
        order = StopOrder(loop)
        order.also(over.set)
        loop.add_signal_handler(signal.SIGTERM, told.append, "server")
        loop.run_until_complete(asyncio.sleep(0))
        os.kill(os.getpid(), signal.SIGTERM)
        loop.run_until_complete(asyncio.wait_for(over.wait(), 10))
    finally:
        loop.close()
    assert told == ["server"]


@pytest.mark.usefixtures("handlers")
def test_an_order_that_comes_early_is_not_forgotten() -> None:
    loop: Any = Loop()
    order = StopOrder(loop)
    told: list[str] = []
    loop.add_signal_handler(signal.SIGTERM, told.append, "server")
    loop.handlers[signal.SIGTERM]()
    order.also(lambda: told.append("gateway"))
    assert told == ["server", "gateway"]


# === limits ===


def test_the_limit_of_open_files_is_raised() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        raised = raise_open_files()
        assert raised == resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 256
        assert raise_open_files() == raised
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("open_files", [64, 1024, 65536, 1_048_576])
def test_each_client_may_have_an_upstream_connection_too(open_files: int) -> None:
    clients = connections_per_worker(open_files)
    assert clients >= 128
    assert open_files < 1024 or 2 * clients < open_files


# === signals ===


class Child:
    def __init__(self) -> None:
        self.killed = False

    def kill(self) -> None:
        self.killed = True


@pytest.mark.parametrize(("after", "killed"), [(0.0, False), (0.4, False), (0.6, True), (60.0, True)])
def test_a_later_signal_ends_at_once_and_an_echo_does_not(
    monkeypatch: pytest.MonkeyPatch, after: float, killed: bool
) -> None:
    child = Child()
    now = [1000.0]
    monkeypatch.setattr(serving.multiprocessing, "active_children", lambda: [child])
    monkeypatch.setattr(serving.time, "monotonic", lambda: now[0])
    server = serving._Server("sluicegate", log_enabled=False)
    server.signal_handler_interrupt(signal.SIGTERM, None)
    assert server.interrupt_signal
    assert not child.killed
    now[0] += after
    server.signal_handler_interrupt(signal.SIGINT, None)
    assert child.killed is killed
    assert server.forced == (signal.SIGINT if killed else None)


# === what workers are given ===


def test_a_plan_reaches_another_process_with_its_secrets() -> None:
    plan = pickle.loads(pickle.dumps(Plan(load_data(CONFIG))))
    assert plan.config.keys[0].key.get_secret_value() == "sk-secret"
    assert "sk-secret" not in repr(plan)


@pytest.mark.parametrize("given", [False, True])
def test_the_metrics_directory_is_there_while_it_serves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: bool
) -> None:
    name = "PROMETHEUS_MULTIPROC_DIR"
    monkeypatch.delenv(name, raising=False)
    if given:
        monkeypatch.setenv(name, str(tmp_path))
    with serving._metrics_directory():
        directory = Path(os.environ[name])
        assert directory.is_dir()
        assert not given or directory.parent == tmp_path
        (directory / "counter_1.db").touch()
    assert not directory.exists()
    assert os.environ.get(name) == (str(tmp_path) if given else None)
