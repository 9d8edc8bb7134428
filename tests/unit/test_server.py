"""Parts of the server that need no process of their own."""

import errno
import gc
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from sluicegate.config import load_data
from sluicegate.server import interpreter
from sluicegate.server.address import Address, hold_address, hold_first
from sluicegate.server.holders import holder_of
from sluicegate.server.limits import connections_for, raise_open_files
from sluicegate.telemetry import Log

serving = import_module("sluicegate.server.serve")


# === address ===


@pytest.fixture
def hold() -> Iterator[list[Address]]:
    """Addresses that a test holds, let go at its end."""
    held: list[Address] = []
    yield held
    for address in held:
        address.release()


def test_a_free_port_is_found_and_held(hold: list[Address]) -> None:
    address = hold_address("127.0.0.1", 0)
    hold.append(address)
    assert address.port > 0
    assert str(address) == f"127.0.0.1:{address.port}"
    with pytest.raises(OSError, match="in use") as raised:
        hold_address("127.0.0.1", address.port)
    assert raised.value.errno == errno.EADDRINUSE
    address.release()
    hold.append(hold_address("127.0.0.1", address.port))


def test_a_held_port_can_be_listened_on_by_each_thread(hold: list[Address]) -> None:
    address = hold_address("127.0.0.1", 0)
    hold.append(address)
    with socket.socket() as one, socket.socket() as two:
        for thread in (one, two):
            thread.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            thread.bind((address.host, address.port))
            thread.listen()
        with socket.create_connection((address.host, address.port), 5):
            pass
        address.release()
        with socket.create_connection((address.host, address.port), 5):
            pass


def test_a_port_that_somebody_listens_on_is_refused_even_if_he_would_share_it() -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(OSError, match="in use"):
            hold_address("127.0.0.1", other.getsockname()[1])


def test_a_port_is_shared_on_purpose(hold: list[Address]) -> None:
    first = hold_address("127.0.0.1", 0)
    hold.append(first)
    hold.append(hold_address("127.0.0.1", first.port, shared=True))
    assert hold[1].port == first.port


def test_a_port_is_not_shared_with_who_does_not_share_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OSError, match="in use"):
        hold_address("127.0.0.1", other.getsockname()[1], shared=True)


def test_a_name_becomes_an_address(hold: list[Address]) -> None:
    hold.append(hold_address("localhost", 0))
    assert hold[0].host in ("127.0.0.1", "::1")


def test_an_ipv6_address_is_written_in_brackets(hold: list[Address]) -> None:
    try:
        hold.append(hold_address("::1", 0))
    except OSError:
        pytest.skip("no IPv6 here")
    assert str(hold[0]) == f"[::1]:{hold[0].port}"


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
def test_each_client_may_have_a_connection_behind_it(open_files: int) -> None:
    clients = connections_for(open_files)
    assert clients >= 128
    assert open_files < 1024 or 3 * clients < open_files


@pytest.mark.parametrize(("wanted", "got"), [(None, 1000), (300, 300), (5000, 1000)])
def test_no_more_clients_than_open_files_allow(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], wanted: int | None, got: int
) -> None:
    monkeypatch.setattr(serving, "raise_open_files", lambda: 3256)
    config = load_data(
        {
            "server": {"bounds": {"connections": wanted}},
            "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1"}},
            "models": {"small": "local"},
        }
    )
    log = Log()
    assert serving._connections(config, log) == got
    log.close()
    assert ("too_few_open_files" in capfd.readouterr().out) is (wanted == 5000)


# === the interpreter ===


def test_what_lasts_is_not_looked_at_again() -> None:
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    try:
        interpreter.take_short_turns()
        assert sys.getswitchinterval() == pytest.approx(0.0005)
        interpreter.settle()
        assert gc.get_threshold() == (20_000, 50, 1_000)
        assert gc.get_freeze_count() > 1_000
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)


# === which port ===


def test_the_first_free_port_is_taken(hold: list[Address]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        free = hold_address("127.0.0.1", 0)
        free.release()
        hold.append(hold_first("127.0.0.1", (other.getsockname()[1], free.port)))
        assert hold[0].port == free.port
        with pytest.raises(OSError, match="in use"):
            hold_first("127.0.0.1", (other.getsockname()[1],))


def test_an_address_of_no_machine_is_told_at_once() -> None:
    with pytest.raises(OSError, match="assign"):
        hold_first("192.0.2.1", (8080, 8081))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who has a port")
def test_who_has_a_port_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert (holder_of(other.getsockname()[1]) or "").endswith(f"(pid {os.getpid()})")
        port = other.getsockname()[1]
    assert holder_of(port) is None


def test_nobody_is_told_where_the_system_does_not_say(tmp_path: Path) -> None:
    assert holder_of(80, tmp_path) is None
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_text("head\n short line\n")
    assert holder_of(80, tmp_path) is None


_HELD = """
import sys
import threading
from pathlib import Path
from sluicegate.server import interpreter

def private():
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in status if line.startswith("RssAnon:"))

if "settled" in sys.argv:
    interpreter.give_large_objects_back()
before = private()

def work():
    # Sizes that fit in the memory that a thread gets from its own arena.
    for _ in range(4):
        large = [b"x" * (6 << 20) for _ in range(8)]
        behind.append(b"x" * 100_000)

behind = []
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(private() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it is glibc's setting, and only Linux tells the memory")
def test_the_memory_of_large_objects_goes_back() -> None:
    def held(*arguments: str) -> int:
        command = [sys.executable, "-c", _HELD, *arguments]
        return int(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)

    assert held("settled") < 8
