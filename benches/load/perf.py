"""Where a proxy's CPU goes while it is under load, by `perf`."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benches.load.accounting import tree
from benches.load.processes import Process

# The clock of the CPU, since virtual machines seldom have counters.
_EVENT, _SAMPLES_A_SECOND = "cpu-clock", 999
_STOP_SECONDS = 30.0
_LINES = 45


class PerfError(Exception):
    """perf is missing or refuses."""


class Perf:
    """One recording: `<file>.data` for `perf report`, and `<file>.txt` by thread and by function."""

    def __init__(self, file: Path) -> None:
        self._data, self._text = file.with_name(f"{file.name}.data"), file.with_name(f"{file.name}.txt")

    @contextmanager
    def watch(self, process: Process) -> Iterator[None]:
        """Record all that `process` and its children do inside of the block. Raises PerfError."""
        if shutil.which("perf") is None:
            raise PerfError("perf is not installed (Debian: linux-perf)")
        self._data.parent.mkdir(parents=True, exist_ok=True)
        pids = ",".join(str(pid) for pid in sorted(tree(process.pid)))
        options = ["-e", _EVENT, "-F", str(_SAMPLES_A_SECOND), "-o", str(self._data), "-p", pids]
        with subprocess.Popen(
            ["perf", "record", "--quiet", *options], stderr=subprocess.PIPE, text=True
        ) as recorder:
            try:
                yield
            finally:
                recorder.send_signal(signal.SIGINT)
                try:
                    _, errors = recorder.communicate(timeout=_STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    recorder.kill()
                    raise
        if not self._data.exists():
            raise PerfError(f"nothing was recorded: {errors.strip()}")

    def report(self) -> str:
        """The shares of each thread, then of each function: its head; the whole is beside the recording."""
        parts = [self._shares("comm"), self._shares("comm,dso,symbol")]
        self._text.write_text("\n".join(parts))
        heads = ["\n".join(part.splitlines()[:_LINES]) for part in parts]
        return "\n\n".join([*heads, f"all of it: {self._text}; perf report -i {self._data}"])

    def _shares(self, by: str) -> str:
        report = subprocess.run(
            ["perf", "report", "--stdio", "--sort", by, "-i", str(self._data)],
            capture_output=True,
            text=True,
            check=True,
        )
        # perf ends each line with columns that are empty without branch records.
        lines = (line.rstrip(" -") for line in report.stdout.splitlines())
        return "\n".join(line for line in lines if line and not line.startswith("#"))
