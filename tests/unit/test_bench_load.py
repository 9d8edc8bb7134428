"""The load harness itself: what it counts, and what makes a run void."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benches.load.accounting import cpu_seconds, pss_bytes
from benches.load.measure import Measurement, faults
from benches.load.processes import Process, StartError, free_port, wait_until_ready
from benches.load.report import Results, cpu, markdown, number, table
from benches.load.scenarios import SCENARIOS
from benches.load.targets import TARGETS, targets_table

_BURN = """
import time
def burn(seconds):
    begun = time.process_time()
    while time.process_time() - begun < seconds:
        pass
"""


@contextmanager
def _child(program: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program that says when its work is done, and then waits for its input to close."""
    end = "\nprint('done', flush=True)\nimport sys\nsys.stdin.read()\n"
    with subprocess.Popen(
        [sys.executable, "-c", program + end], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "done\n"
        yield child
        child.communicate()


def test_cpu_of_a_busy_grandchild_is_counted_while_it_lives_and_after() -> None:
    program = f"""{_BURN}
import os, sys
leave, done = os.pipe(), os.pipe()
for seconds, lives in ((0.2, False), (0.3, True)):
    pid = os.fork()
    if pid == 0:
        os.close(leave[1])
        burn(seconds)
        os.write(done[1], b'.')
        if lives:
            os.read(leave[0], 1)
        os._exit(0)
    if not lives:
        os.waitpid(pid, 0)
os.read(done[0], 1)
os.read(done[0], 1)
"""
    with _child("pass") as idle, _child(program) as busy:
        startup = cpu_seconds(idle.pid)
        # One tick for what exited: it is counted in ticks.
        assert cpu_seconds(busy.pid) >= 0.2 + 0.3 - 0.01
        assert cpu_seconds(busy.pid) < 0.2 + 0.3 + 10 * startup + 0.5


def test_memory_of_a_tree_is_its_proportional_share() -> None:
    size = 32 * 1024 * 1024
    with _child("pass") as idle, _child(f"held = b'x' * {size}") as loaded:
        assert pss_bytes(loaded.pid) - pss_bytes(idle.pid) > 0.9 * size


def test_a_tree_that_is_gone_uses_nothing() -> None:
    with _child("pass") as child:
        pid = child.pid
    assert cpu_seconds(pid) == 0
    assert pss_bytes(pid) == 0


def test_a_process_that_ends_while_starting_is_an_error_with_its_output(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('no such upstream'); raise SystemExit(3)"]
    with (
        Process(command, log=tmp_path / "log", cwd=tmp_path) as process,
        pytest.raises(StartError, match="no such upstream"),
    ):
        wait_until_ready(process, lambda: False, 30)


def test_stopping_a_process_ends_what_it_started(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    program = (
        "import os, pathlib, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "pid = os.fork()\n"
        f"pid and pathlib.Path({str(file)!r}).write_text(str(pid))\n"
        "time.sleep(60)\n"
    )
    with Process([sys.executable, "-c", program], log=tmp_path / "log", cwd=tmp_path) as process:
        wait_until_ready(process, lambda: file.exists() and bool(file.read_text()), 30)
        grandchild = int(file.read_text())
    state = Path(f"/proc/{grandchild}/stat")
    # An orphan may stay a zombie until init has read its status.
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] in "ZX"


def test_free_ports_are_ports() -> None:
    assert 1024 <= free_port() <= 65535


def _load(**changes: Any) -> dict[str, Any]:
    return {"exchanges": 5, "wrongs": {"lost": 0, "without_done": 0}, "failures": {}} | changes


def test_a_run_without_faults_counts() -> None:
    assert faults(_load()) is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"wrongs": {"lost": 1, "without_done": 0}}, "1 lost"),
        ({"wrongs": {"lost": 0, "without_done": 2}}, "2 without done"),
        ({"failures": {"status 502": 3}}, "3 x status 502"),
        ({"exchanges": 0}, "nothing was exchanged"),
    ],
)
def test_a_fault_voids_the_run(changes: dict[str, Any], why: str) -> None:
    assert faults(_load(**changes)) == why


def _measurement(proxy: str, round_number: int, cpu_us: float | None, **changes: Any) -> Measurement:
    values: dict[str, Any] = {
        "proxy": proxy,
        "scenario": "unloaded",
        "round": round_number,
        "void": None,
        "overloaded": False,
        "units": 1000,
        "cpu_us": cpu_us,
        "memory": None,
        "seconds": 1.0,
        "units_per_second": 1000.0,
        "bytes_per_second": 1.0,
        "first_p50": 1.0,
        "first_p99": 2.0,
        "gap_p99": 3.0,
        "gap_max": 4.0,
        "reconnects": 0,
        "mock_cpu_share": 0.1,
        "load_cpu_share": 0.1,
        "proxy_cpu_share": 0.1,
        "other_cpu_share": 0.0,
    }
    return Measurement(**values | changes)


def test_ratios_are_taken_within_a_round_and_then_the_median() -> None:
    # The machine was twice as slow in round 1: pairs cancel that, a ratio of medians would not.
    base = [_measurement("nginx", 0, 10.0), _measurement("nginx", 1, 20.0), _measurement("nginx", 2, 10.0)]
    ours = [_measurement("x", 0, 12.0), _measurement("x", 1, 24.0), _measurement("x", 2, 30.0)]
    figure = Results(base + ours).figure("x", "unloaded", cpu)
    assert figure is not None
    assert (figure.value, figure.low, figure.high) == (24.0, 12.0, 30.0)
    assert (figure.ratio, figure.ratio_low, figure.ratio_high) == (1.2, 1.2, 3.0)


def test_a_void_round_counts_for_nothing_and_is_named() -> None:
    lost = _measurement("x", 1, 1.0, void="3 lost")
    results = Results([_measurement("nginx", 0, 10.0), _measurement("x", 0, 20.0), lost])
    figure = results.figure("x", "unloaded", cpu)
    assert figure is not None
    assert (figure.value, figure.rounds) == (20.0, 1)
    assert Results([lost]).figure("x", "unloaded", cpu) is None
    text = markdown(results, _CONDITIONS)
    assert "- void: x, unloaded, round 1: 3 lost" in text
    assert "| x | void |" in markdown(Results([lost]), _CONDITIONS)


def test_added_latency_is_over_the_direct_way_of_the_same_round() -> None:
    direct = _measurement("direct", 0, None, first_p50=0.5)
    results = Results([direct, _measurement("nginx", 0, 1.0), _measurement("x", 0, 1.0, first_p50=2.0)])
    figure = results.added("x", "unloaded", lambda one: one.first_p50)
    assert figure is not None
    assert (figure.value, figure.ratio) == (1.5, 3.0)
    assert results.proxies == ["nginx", "x"]


def test_targets_say_what_was_missed_and_leave_out_what_was_not_measured() -> None:
    base = _measurement("nginx", 0, 10.0, scenario="requests")
    text = targets_table(Results([base, _measurement("sluicegate", 0, 46.0, scenario="requests")]))
    assert "| CPU a small request, over nginx | ≤ 4.50 | 4.60 | missed |" in text
    assert len(text.splitlines()) == 3
    text = targets_table(Results([base, _measurement("sluicegate", 0, 45.0, scenario="requests")]))
    assert "| 4.50 | met |" in text
    assert targets_table(Results([base])) == ""
    assert {target.met(79.9) for target in TARGETS if target.at_least} == {True, False}


def test_overloaded_is_marked() -> None:
    results = Results([_measurement("nginx", 0, 1.0), _measurement("x", 0, 2.0, overloaded=True)])
    assert "| x | 2.00 (2.00) overloaded |" in markdown(results, _CONDITIONS)


def test_tables_and_numbers() -> None:
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
    shown = [number(value) for value in (0.0, 0.0123, 1.234, 12.34, 1234.5)]
    assert shown == ["0", "0.012", "1.23", "12.3", "1,234"]


def test_scenarios_hold_their_streams_open_past_the_window() -> None:
    for scenario in SCENARIOS:
        for quick in (False, True):
            plan = scenario.planned(quick)
            if scenario.window:
                opening = plan["connections"] / plan["ramp"] if plan.get("ramp") else 0
                needed = opening + plan["settle_seconds"] + plan["window_seconds"]
                assert plan["tokens"] / plan["rate"] > needed + 0.9, scenario.name
            due = scenario.due_seconds(quick)
            assert due is None or due < plan["limit_seconds"] / 2


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benches.load.plot import draw

    results = Results([_measurement("nginx", 0, 1.0), _measurement("x", 0, 2.0)])
    draw(results, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


_CONDITIONS = {
    "date": "2026-01-01",
    "cores": 2,
    "processor": "some",
    "kernel": "6",
    "rounds": 1,
    "workers": 1,
    "quick": True,
    "versions": {"nginx": "1"},
}
