"""The load harness itself: what it counts, and what makes a run void."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness import needed

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benches.load import picture
from benches.load.accounting import cpu_seconds, pss_bytes
from benches.load.gates import (
    FURTHER,
    GATES,
    Against,
    Gate,
    gated_scenarios,
    gates_table,
    missed,
    verdict,
)
from benches.load.measure import Measurement, faults
from benches.load.perf import Perf, PerfError
from benches.load.processes import Process, StartError, free_port, wait_until_ready
from benches.load.proxies import ACCOUNTS, PEERS, SLUICEGATE, VARIANTS, Proxy, Setup
from benches.load.proxies.gateways import THREADS_SETTING, refuse_build
from benches.load.report import Results, cpu, first_p50, markdown, number, per_second, table
from benches.load.scenarios import SCENARIOS

from harness.tree import ROOT, tracked
from sluicegate.config import load_data

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
    command = [sys.executable, "-c", program]
    with Process(command, log=tmp_path / "log", cwd=tmp_path, stop_seconds=0.5) as process:
        wait_until_ready(process, lambda: file.exists() and bool(file.read_text()), 30)
        grandchild = int(file.read_text())
    # What is killed ends a little later, and an orphan may stay a zombie until init has read its status.
    deadline = time.monotonic() + 20
    while _runs(grandchild) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _runs(grandchild)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


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
        "transit_p50": 0.1,
        "transit_p99": 0.2,
        "probe_p50": None,
        "probe_p99": None,
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
    text = markdown(results, _CONDITIONS, "")
    assert "- void: x, unloaded, round 1: 3 lost" in text
    assert "| x | void |" in markdown(Results([lost]), _CONDITIONS, "")


def _gate(**changes: Any) -> Gate:
    values: dict[str, Any] = {"title": "x", "scenario": "unloaded", "value": cpu, "gate": 1.2, "aim": 1.1}
    return Gate(**values | changes)


def test_added_time_is_over_the_direct_way_of_the_same_round() -> None:
    results = Results(
        [
            _measurement("direct", 0, None, first_p50=0.5),
            _measurement("nginx", 0, 1.0),
            _measurement("sluicegate", 0, 1.0, first_p50=2.0),
            # Without a direct way in its round nothing can be said of it.
            _measurement("sluicegate", 1, 1.0, first_p50=9.0),
        ]
    )
    gate = _gate(value=first_p50, over_direct=True)
    assert gate.values(results, "sluicegate") == {0: 1.5}
    assert gate.compared(results, "sluicegate") == [3.0]
    assert results.proxies == ["nginx", "sluicegate"]


@pytest.mark.parametrize(
    ("changes", "compared"),
    [
        ({"against": Against.NOTHING}, [12.0]),
        ({"against": Against.BASELINE_RATIO}, [1.2]),
        ({"against": Against.BASELINE_DIFFERENCE}, [2.0]),
        ({"against": Against.ITSELF, "base": "saturated"}, [3.0]),
        ({"against": Against.US, "rival": "slow"}, [40.0]),
        ({"against": Against.BASELINE_RATIO, "value": lambda one: one.memory}, []),
    ],
)
def test_a_figure_is_held_against_what_its_gate_names(changes: dict[str, Any], compared: list[float]) -> None:
    results = Results(
        [
            _measurement("nginx", 0, 10.0),
            _measurement("sluicegate", 0, 12.0),
            _measurement("sluicegate", 0, 4.0, scenario="saturated"),
            _measurement("slow", 0, 480.0),
        ]
    )
    assert _gate(**changes).compared(results, "sluicegate") == pytest.approx(compared)


@pytest.mark.parametrize(
    ("ours", "changes", "word"),
    [
        (10.9, {}, "met, and the aim"),
        (11.0, {}, "met, and the aim"),
        (11.9, {}, "met"),
        (12.1, {}, "missed"),
        (11.0, {"aim": None}, "met"),
        (12.1, {"gate": None}, ""),
        (12.1, {"at_least": True, "aim": None}, "met"),
        (11.9, {"at_least": True, "aim": None}, "missed"),
        (11.9, {"at_least": True, "cores": 5}, "missed, but 2 cores show little"),
        (None, {}, "not measured"),
    ],
)
def test_a_verdict_is_of_our_median(ours: float | None, changes: dict[str, Any], word: str) -> None:
    measurements = [_measurement("nginx", number, 10.0) for number in range(3)]
    if ours:
        measurements += [
            _measurement("sluicegate", number, value) for number, value in enumerate((5.0, ours, 99.0))
        ]
    assert verdict(_gate(**changes), Results(measurements), 2) == word


def test_the_table_puts_ours_first_beside_the_peers_and_the_bounds() -> None:
    results = Results(
        [
            _measurement(proxy, number, value, scenario="requests")
            for proxy, value in (("nginx", 10.0), ("sluicegate", 26.0), ("envoy", 19.0))
            for number in range(2)
        ]
    )
    assert gates_table(results, 2).splitlines() == [
        "| figure | sluicegate | nginx | envoy | gate | aim |  |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| CPU a small request, µs | 26.0 (2.60; 2.60 to 2.60) | 10.0 (1.00) | 19.0 (1.90) "
        "| ≤ 2.50 × nginx | ≤ 2.00 × nginx | missed |",
    ]
    assert [gate.title for gate in missed(results, 2)] == ["CPU a small request, µs"]
    assert gates_table(Results([]), 2) == ""


def test_a_gate_that_this_machine_cannot_show_is_not_missed() -> None:
    results = Results(
        [
            _measurement("sluicegate", 0, 1.0, scenario=scenario, units_per_second=1000.0)
            for scenario in ("saturated", "saturated-two")
        ]
    )
    assert any(gate.value is per_second and gate.cores > 2 for gate in GATES)
    assert missed(results, 2) == []
    assert len(missed(results, 8)) == 1
    assert "missed, but 2 cores show little" in gates_table(results, 2)


def test_every_gate_has_a_scenario_and_bounds_that_agree() -> None:
    known = {scenario.name: scenario for scenario in SCENARIOS}
    for gate in (*GATES, *FURTHER):
        assert gate.scenarios <= known.keys(), gate.title
        assert (gate.base is not None) == (gate.against is Against.ITSELF)
        assert (gate.rival is not None) == (gate.against is Against.US)
        if gate.over_direct:
            assert known[gate.scenario].direct, gate.title
        if gate.aim is not None:
            assert gate.gate is not None
            assert gate.holds(gate.gate, gate.aim), gate.title
    assert gated_scenarios() < known.keys()


def test_only_a_release_build_is_measured() -> None:
    assert refuse_build("release") is None
    for build in ("quick", "debug", "unknown"):
        assert build in (refuse_build(build) or "")


def test_every_peer_gets_the_number_of_threads(tmp_path: Path) -> None:
    for proxy in PEERS:
        command = proxy.command("/bin/proxy", Setup(1234, "127.0.0.1:5678", 7, tmp_path))
        files = "".join(path.read_text() for path in tmp_path.iterdir())
        said = " ".join(command) + files
        assert "7" in said.replace("5678", ""), proxy.name
        assert "1234" in said, proxy.name
        for path in tmp_path.iterdir():
            path.unlink()


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_a_variant_of_sluicegate_does_more_than_the_plain_one(variant: Proxy, tmp_path: Path) -> None:
    setup = Setup(1234, "127.0.0.1:5678", 1, tmp_path)
    loaded = []
    for proxy in (SLUICEGATE, variant):
        command = proxy.command(sys.executable, setup)
        loaded.append(load_data(yaml.safe_load(Path(command[-1]).read_text())))
    plain, config = loaded
    assert not plain.limits
    assert plain.ledger is None
    assert len(plain.models["bench"].routes) == 1
    if variant is ACCOUNTS:
        [limits] = config.limits.values()
        assert limits.requests
        assert limits.tokens
        assert limits.concurrent
        assert limits.cost
        assert [caller.name for caller in config.callers] == [key.name for key in config.keys]
        assert config.ledger is not None
    else:
        assert len(config.models["bench"].routes) == 8
        assert config.health.enabled
    assert {gate.rival for gate in FURTHER} >= {variant.name}


def test_the_setting_of_threads_is_one_that_the_gateway_has() -> None:
    from sluicegate.config import Config

    server = Config.model_fields["server"].annotation
    assert server is not None
    assert THREADS_SETTING in server.model_fields


def test_a_profile_without_perf_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with (
        Process(command, log=tmp_path / "log", cwd=tmp_path) as process,
        pytest.raises(PerfError, match="not installed"),
        Perf(tmp_path / "profile").watch(process),
    ):
        pass


def test_overloaded_is_marked() -> None:
    results = Results([_measurement("nginx", 0, 1.0), _measurement("x", 0, 2.0, overloaded=True)])
    assert "| x | 2.00 (2.00) overloaded |" in markdown(results, _CONDITIONS, "")


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
    pytest.importorskip("matplotlib", reason=needed.PACKAGES)
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
    "threads": 1,
    "quick": True,
    "versions": {"nginx": "1"},
}


# === the README's picture ===


def test_the_readme_shows_the_newest_results() -> None:
    newest = max(tracked("benches/load/results/????-??-??.json"))
    drawn = picture.svg(picture.read(newest), picture.caption(newest))
    command = f"python -m benches.load.picture {newest.relative_to(ROOT)} docs/assets/load.svg"
    assert (ROOT / "docs/assets/load.svg").read_text() == drawn, command


def test_the_picture_shows_peers_that_are_better_too() -> None:
    newest = max(tracked("benches/load/results/????-??-??.json"))
    text = picture.svg(picture.read(newest), "now")
    for proxy in ("nginx", "sluicegate", "envoy", "smg", "vllm-router"):
        assert text.count(f">{proxy}</text>") == len(picture.SHOWN)
