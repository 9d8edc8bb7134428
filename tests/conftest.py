"""What a run of tests leaves for `tests/rerun.py`: its failures, each with its time and the longest stall,
what was skipped because something is missing, and which tests took longest.

Nothing is written unless `SLUICEGATE_TEST_OUTCOMES` names a file.
"""

import json
import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

from harness.heartbeat import Heartbeat
from harness.needed import MISSING

_STALL = "longest_stall"
LISTED = 20
"""Tests whose time is told, of those that took longest."""


def pytest_configure(config: pytest.Config) -> None:
    file = os.environ.get("SLUICEGATE_TEST_OUTCOMES")
    if not file:
        return
    config.pluginmanager.register(_Stalls(), "sluicegate-stalls")
    # The reports of pytest-xdist's workers arrive in the process that started them.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Failures(Path(file)), "sluicegate-failures")


class _Stalls:
    """Adds the longest stall during a test to each of its reports."""

    def __init__(self) -> None:
        self._heartbeat = Heartbeat()
        self._heartbeat.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self._heartbeat.restart()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        report.user_properties.append((_STALL, self._heartbeat.longest_stall))
        return report

    def pytest_unconfigure(self) -> None:
        self._heartbeat.stop()


class _Failures:
    """Writes a line of JSON for each file that cannot be collected and, at the end, for each failed test."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._stalls: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if report.skipped and isinstance(report.longrepr, tuple):
            self._skipped(report.nodeid, report.longrepr[2])
        if report.failed:
            stalls = [value for name, value in report.user_properties if name == _STALL]
            found = max((value for value in stalls if isinstance(value, float)), default=0.0)
            self._stalls[report.nodeid] = max(found, self._stalls.get(report.nodeid, 0.0))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            self._skipped(report.nodeid, report.longrepr[2])
        if report.failed:
            self._write({"not_collected": report.nodeid})

    def _skipped(self, test: str, reason: str) -> None:
        missing = reason.removeprefix("Skipped: ")
        if missing.startswith(MISSING):
            self._write({"skipped": test, "missing": missing.removeprefix(MISSING)})

    def pytest_sessionfinish(self) -> None:
        for test, stall in self._stalls.items():
            self._write({"test": test, "seconds": round(self._seconds[test], 2), _STALL: round(stall, 2)})
        for test in sorted(self._seconds, key=self._seconds.__getitem__, reverse=True)[:LISTED]:
            self._write({"slow": test, "seconds": round(self._seconds[test], 1)})

    def _write(self, line: dict[str, object]) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")
