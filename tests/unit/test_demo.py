"""The demo's own ears: what it hears, and that it notices what is missing."""

import io
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from rich.console import Console

from sluicegate.testing import Fault, Script, ScriptedUpstream
from sluicegate.testing.demo import SCRIPT, DemoFailed, _ready, listen, run_demo
from sluicegate.testing.speech import PASSAGE, THOUGHT

# What the gateway is expected to add: (48 - 16) * 0.5 + 16 * 0.1 + output * 2, per million.
COST = Decimal("0.0000176") + 81 * Decimal("0.000002")


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    quick = replace(SCRIPT, first_token_delay=0.0, pace=0.0)
    with ScriptedUpstream.in_thread(quick) as upstream:
        yield upstream


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=80)


def with_cost(script: Script, cost: object) -> Script:
    return replace(script, usage=replace(script.usage, extra={"cost": cost}))


def test_a_whole_reply_lacks_nothing(upstream: ScriptedUpstream, console: Console) -> None:
    upstream.script = with_cost(upstream.script, float(COST))
    heard = listen((upstream.host, upstream.port), console)
    assert (heard.text, heard.reasoning, heard.done) == (PASSAGE, THOUGHT, True)
    assert heard.cost == COST
    assert heard.first_chunk is not None
    assert heard.missing(upstream.requests[0].wait_ended().events_sent) == []
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert PASSAGE in shown
    assert THOUGHT in shown


def test_a_missing_cost_is_noticed(upstream: ScriptedUpstream, console: Console) -> None:
    heard = listen((upstream.host, upstream.port), console)
    assert heard.missing(heard.events) == [f"a cost of {COST} USD (it was None)"]


def test_a_wrong_cost_is_noticed(upstream: ScriptedUpstream, console: Console) -> None:
    upstream.script = with_cost(upstream.script, 0.0001)
    heard = listen((upstream.host, upstream.port), console)
    assert heard.missing(heard.events) == [f"a cost of {COST} USD (it was 0.0001)"]


def test_lost_events_are_noticed(upstream: ScriptedUpstream, console: Console) -> None:
    upstream.script = replace(upstream.script, faults=(Fault(action="error", events=10),))
    heard = listen((upstream.host, upstream.port), console)
    missing = heard.missing(100)
    assert missing[0] == "100 events (there were 11)"
    assert missing[1:] == [
        "the whole text",
        "the reasoning",
        "a finish reason",
        "usage",
        "a cost of None USD (it was None)",
        "[DONE]",
    ]


def test_an_error_reply_is_a_failure(upstream: ScriptedUpstream, console: Console) -> None:
    upstream.script = Script(status=503)
    with pytest.raises(DemoFailed, match="HTTP 503"):
        listen((upstream.host, upstream.port), console)


def test_a_gateway_that_does_not_start_is_a_failure_with_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\nno such thing\n")
    with (
        subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]) as process,
        pytest.raises(DemoFailed, match="status 3:\none\nno such thing"),
    ):
        _ready(process, log)


def test_a_port_that_is_taken_ends_the_demo(upstream: ScriptedUpstream, console: Console) -> None:
    assert run_demo(upstream_port=upstream.port, console=console) == 1
    assert "failed: " in console.file.getvalue()  # type: ignore[attr-defined]
