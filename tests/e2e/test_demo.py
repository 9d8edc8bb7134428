"""The demo, as a user runs it, in a pipe."""

import subprocess
import sys

import pytest

from harness import needed

pytest.importorskip("sluicegate._core", reason=needed.PACKAGES, exc_type=ImportError)


def test_the_demo_shows_one_reply_with_its_cost_and_succeeds() -> None:
    code = "from sluicegate.testing.demo import run_demo; raise SystemExit(run_demo())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=55)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every boat goes on its way before dark." in done.stdout
    assert "0.0001796 USD" in done.stdout
    assert (
        "-m sluicegate serve --upstream http://127.0.0.1:18101/v1 &\n  curl -N http://127.0.0.1:8080/v1/"
        in done.stdout
    )
    assert done.stderr == ""
