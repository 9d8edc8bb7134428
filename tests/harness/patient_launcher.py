"""A gateway that waits longer than others do: for the server of its counters, and for the echo of a signal.

`python -m harness.patient_launcher SECONDS CONFIG` serves as `sluicegate serve` does: on a busy machine,
tests of what a server says must not become tests of what holds without it, nor an echo a second order.
"""

import sys
from pathlib import Path

from sluicegate.config import load_file
from sluicegate.server import serve, signals
from sluicegate.storage import redis

if __name__ == "__main__":
    redis.DEADLINE_SECONDS = signals.SAME_SIGNAL_SECONDS = float(sys.argv[1])
    path = Path(sys.argv[2])
    raise SystemExit(serve(load_file(path), path))
