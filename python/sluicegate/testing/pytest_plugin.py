"""For test suites: `pytest_plugins = ["sluicegate.testing.pytest_plugin"]`."""

from collections.abc import Iterator

import pytest

from sluicegate.testing.server import ScriptedUpstream


@pytest.fixture
def scripted_upstream() -> Iterator[ScriptedUpstream]:
    """A running ScriptedUpstream with a thread of its own: for synchronous and asynchronous tests alike."""
    with ScriptedUpstream.in_thread() as upstream:
        yield upstream
