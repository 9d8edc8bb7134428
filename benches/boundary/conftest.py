"""The tables at the end of a run."""

from typing import Any

import pytest
from benches.boundary import report

from sluicegate import _core


def pytest_configure(config: pytest.Config) -> None:
    # Without --benchmark-only nothing is measured, and any build will do.
    if config.getoption("benchmark_only", False) and _core.BUILD != "release":
        raise pytest.UsageError(f"this is a {_core.BUILD} build: make setup PROFILE=release")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    session = getattr(config, "_benchmarksession", None)
    if session is not None and session.benchmarks:
        terminalreporter.write_line("")
        terminalreporter.write_line(report.tables(report.results(session.benchmarks)))
