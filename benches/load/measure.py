"""One measurement: one proxy, freshly started, under one scenario."""

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benches.load.accounting import machine_busy_seconds
from benches.load.processes import Process, Ready, free_port, wait_until_ready
from benches.load.proxies import DIRECT, Proxy, Setup
from benches.load.scenarios import Scenario
from benches.load.tool import Mock, Tool, run_load

# The proxy writes its records and closes its connections after the last reply; that is its work too.
_AFTERMATH_SECONDS = 0.2
# What a proxy does at its end is no part of any figure.
_STOP_SECONDS = 0.5
# A paced run that ends later than this factor and these seconds after its last token was due did not keep up.
_LATE_FACTOR, _LATE_SECONDS = 1.05, 0.5
# One busy neighbour must not use up the whole run's patience.
_LONGEST_WAIT_SECONDS = 20.0
# How often a measurement is repeated because others used the machine meanwhile.
_ATTEMPTS = 3


Profiler = Callable[[Process], AbstractContextManager[None]]
"""Watches a proxy for as long as the load lasts."""


@dataclass(frozen=True)
class Measurement:
    """What was measured. CPU in microseconds a unit, latencies in milliseconds, memory in bytes a stream.

    `void` says why nothing here counts: an event was lost, doubled or wrong, or a request failed.
    """

    proxy: str
    scenario: str
    round: int
    void: str | None
    overloaded: bool
    units: int
    cpu_us: float | None
    memory: float | None
    seconds: float
    units_per_second: float
    bytes_per_second: float
    first_p50: float | None
    first_p99: float | None
    transit_p50: float | None
    transit_p99: float | None
    """From the mock's writing of a chunk to its being read, by the clock that both ends share."""
    probe_p50: float | None
    probe_p99: float | None
    """To the first chunk of a stream that began while all others were open."""
    gap_p99: float | None
    gap_max: float | None
    reconnects: int
    mock_cpu_share: float
    load_cpu_share: float
    proxy_cpu_share: float
    other_cpu_share: float
    """CPU that nobody in this measurement used, in cores: how quiet the machine was."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def faults(load: Mapping[str, Any]) -> str | None:
    """Why a run of the load generator is void; None where every event and every reply was right."""
    found = [f"{count} {name.replace('_', ' ')}" for name, count in load["wrongs"].items() if count]
    found += [f"{count} x {reason}" for reason, count in load["failures"].items()]
    if not found and not load["exchanges"]:
        found = ["nothing was exchanged"]
    return ", ".join(found) or None


def wait_until_quiet(cores: float, patience_seconds: float) -> None:
    """Return once this machine's processes use at most `cores`, or after `patience_seconds`."""
    deadline = time.monotonic() + patience_seconds
    while time.monotonic() < deadline:
        begun, busy = time.monotonic(), machine_busy_seconds()
        time.sleep(min(0.25, patience_seconds))
        if (machine_busy_seconds() - busy) / (time.monotonic() - begun) <= cores:
            return


class Bench:
    """What all measurements of a run share."""

    def __init__(
        self,
        tool: Tool,
        mock: Mock,
        *,
        threads: int,
        quick: bool,
        quiet_cores: float,
        patience_seconds: float,
        profiler: Profiler | None = None,
    ) -> None:
        """`patience_seconds` is for the whole run: for waiting until others are quiet, and for repeating."""
        self._tool = tool
        self._mock = mock
        self._threads = threads
        self._quick = quick
        self._quiet_cores = quiet_cores
        self._patience_seconds = patience_seconds
        self._profiler = profiler

    def measure(self, proxy: Proxy, scenario: Scenario, number: int) -> Measurement:
        """Measure, and again where others used more than `quiet_cores` meanwhile: the quietest run counts.

        What is chosen by is the machine's noise, never the figure. Raises StartError where the proxy does not
        come up.
        """
        attempts: list[Measurement] = []
        while len(attempts) < _ATTEMPTS:
            begun = time.monotonic()
            wait_until_quiet(self._quiet_cores, min(self._patience_seconds, _LONGEST_WAIT_SECONDS))
            waited = time.monotonic()
            attempts.append(self._measure(proxy, scenario, number))
            # The first attempt is the run's own time.
            self._patience_seconds -= (waited if len(attempts) == 1 else time.monotonic()) - begun
            if attempts[-1].other_cpu_share <= self._quiet_cores or self._patience_seconds <= 0:
                break
        void = next((one for one in attempts if one.void), None)
        return void or min(attempts, key=lambda one: one.other_cpu_share)

    def _measure(self, proxy: Proxy, scenario: Scenario, number: int) -> Measurement:
        if proxy is DIRECT:
            return self._under_load(proxy, None, self._mock.address, scenario, number)
        with tempfile.TemporaryDirectory(prefix="sluicegate-bench-") as name:
            directory = Path(name)
            directory.chmod(0o755)
            setup = Setup(free_port(), self._mock.address, self._threads * scenario.threads, directory)
            program = proxy.find()
            assert program is not None
            command = proxy.command(program, setup)
            log = directory / "output.log"
            with Process(
                command,
                log=log,
                cwd=directory,
                environment=proxy.environment,
                nice=self._tool.nice,
                stop_seconds=_STOP_SECONDS,
            ) as process:
                path = scenario.planned(self._quick)["path"]
                wait_until_ready(process, Ready(setup.port, path, proxy.key), proxy.start_seconds)
                address = f"127.0.0.1:{setup.port}"
                return self._under_load(proxy, process, address, scenario, number)

    def _under_load(
        self, proxy: Proxy, process: Process | None, address: str, scenario: Scenario, number: int
    ) -> Measurement:
        plan = scenario.planned(self._quick) | {
            "address": address,
            "expect_cost": proxy.cost,
            "key": proxy.key,
        }
        self._warm_up(plan, scenario.memory)
        idle_memory = process.pss_bytes() if process and scenario.memory else 0
        samples = _Samples(process, scenario)
        mock_before, machine_before = self._mock.cpu_seconds(), machine_busy_seconds()
        cpu_before = process.cpu_seconds() if process else 0.0
        begun = time.monotonic()
        with self._profiler(process) if self._profiler and process else nullcontext():
            load = run_load(self._tool, plan, samples.mark)
        time.sleep(_AFTERMATH_SECONDS)
        elapsed = time.monotonic() - begun
        cpu = (process.cpu_seconds() if process else 0.0) - cpu_before
        mock_cpu = self._mock.cpu_seconds() - mock_before
        machine = machine_busy_seconds() - machine_before
        units = int(load["tokens" if scenario.unit == "chunk" else "exchanges"])
        counted, counted_cpu = (samples.units, samples.cpu) if scenario.window else (units, cpu)
        memory = (samples.memory - idle_memory) / plan["connections"] if samples.memory else None
        void = faults(load)
        if scenario.window and not counted:
            void = void or "not all streams were open at once"
        return Measurement(
            proxy=proxy.name,
            scenario=scenario.name,
            round=number,
            void=void,
            overloaded=self._overloaded(scenario, load),
            units=counted,
            cpu_us=counted_cpu / counted * 1e6 if process and counted else None,
            memory=memory,
            seconds=load["seconds"],
            units_per_second=units / load["seconds"],
            bytes_per_second=load["bytes_per_second"],
            first_p50=_of(load, "first_event_ms", "p50"),
            first_p99=_of(load, "first_event_ms", "p99"),
            transit_p50=_of(load, "transit_ms", "p50"),
            transit_p99=_of(load, "transit_ms", "p99"),
            probe_p50=_of(load, "probe_first_event_ms", "p50"),
            probe_p99=_of(load, "probe_first_event_ms", "p99"),
            gap_p99=_of(load, "gap_ms", "p99"),
            gap_max=_of(load, "gap_ms", "max"),
            reconnects=load["reconnects"],
            mock_cpu_share=mock_cpu / elapsed,
            load_cpu_share=load.cpu / elapsed,
            proxy_cpu_share=cpu / elapsed,
            other_cpu_share=max(0.0, machine - cpu - mock_cpu - load.cpu) / elapsed,
        )

    def _warm_up(self, plan: Mapping[str, Any], held: bool) -> None:
        """A second or two of the same kind of work: imports, caches, and connections in the pools.

        Streams that will be held are warmed up with small requests: what an allocator keeps of large ones
        would count as idle memory, and then be used again by the streams.
        """
        bounds = {"connections": min(plan["connections"], 64), "exchanges": 20, "seconds": 0.5}
        calm = {"tokens": 5, "rate": 0.0, "ramp": 0.0, "window_seconds": 0.0, "limit_seconds": 30.0}
        small = {"prompt_bytes": 0} if held else {}
        warm = {**plan, **bounds, **calm, **small, "probes": None}
        run_load(self._tool, warm, lambda _name, _counts: None)

    def _overloaded(self, scenario: Scenario, load: Mapping[str, Any]) -> bool:
        due = scenario.due_seconds(self._quick)
        return due is not None and bool(load["seconds"] > due * _LATE_FACTOR + _LATE_SECONDS)


class _Samples:
    """What is read at the marks: CPU and counts at both, memory at the second, while all streams are open."""

    def __init__(self, process: Process | None, scenario: Scenario) -> None:
        self._process = process
        self._memory_wanted = scenario.memory
        self.cpu = 0.0
        self.units = 0
        self.memory = 0

    def mark(self, name: str, counts: Mapping[str, Any]) -> None:
        sign = -1 if name == "window_start" else 1
        if self._process:
            self.cpu += sign * self._process.cpu_seconds()
        self.units += sign * counts["tokens"]
        if sign == 1 and self._process and self._memory_wanted:
            self.memory = self._process.pss_bytes()


def _of(load: Mapping[str, Any], name: str, quantile: str) -> float | None:
    summary = load[name]
    return None if summary is None else float(summary[quantile])
