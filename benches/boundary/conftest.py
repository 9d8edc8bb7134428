"""The tables at the end of a run."""

from typing import Any

import pytest
from benches.boundary import report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    session = getattr(config, "_benchmarksession", None)
    if session is not None and session.benchmarks:
        terminalreporter.write_line("")
        terminalreporter.write_line(report.tables(report.results(session.benchmarks)))
