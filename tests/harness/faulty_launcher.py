"""A gateway whose process does what it is told: hold the GIL, lose a thread, decide late.

`python -m harness.faulty_launcher PATIENCE CONFIG` serves as `sluicegate serve` does, but waits PATIENCE
seconds for a decision, and follows the commands on its standard input, one a line:

- `hold-gil SECONDS`: one call into C that keeps the GIL. The event `holds_gil` is printed just before.
- `decide-late SECONDS`: the thread that decides does nothing for that long, after the event `decides_late`.
- `end-engine`: the engine's event queue fails: the thread ends by a panic as soon as something happens.
- `end-deciding`: an exception is raised in the thread that decides, at its next step.
"""

import contextlib
import ctypes
import functools
import importlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from sluicegate.config import Config, load_file
from sluicegate.gateway import Gateway, create_app
from sluicegate.gateway.engines import start_engines
from sluicegate.server import serve


class Faults:
    """Makes the gateway, and follows commands."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._queues: set[int] = set()
        self._gateway: Gateway | None = None

    def create(self, config: Config, **options: Any) -> Gateway:
        """`create_app`."""
        self._gateway = create_app(config, engines=self._start_engines, **options)
        return self._gateway

    def _start_engines(self, config: Config) -> Any:
        before = _event_queues()
        engines = start_engines(config, patience=self._patience)
        self._queues = _event_queues() - before
        return engines

    def follow(self) -> None:
        """Commands, until there are no more."""
        for line in sys.stdin:
            command, *arguments = line.split()
            getattr(self, f"_{command.replace('-', '_')}")(*map(float, arguments))

    def _hold_gil(self, seconds: float) -> None:
        _say("holds_gil")
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))

    def _decide_late(self, seconds: float) -> None:
        assert self._gateway is not None
        self._gateway._decider.post(functools.partial(_sleep, seconds))

    def _end_engine(self) -> None:
        [queue, *_] = sorted(self._queues)
        nothing = os.open(os.devnull, os.O_RDONLY)
        # In its place: the number still belongs to the engine, which closes it.
        os.dup2(nothing, queue)

    def _end_deciding(self) -> None:
        [thread] = [each for each in threading.enumerate() if each.name == "sluicegate-decisions"]
        assert thread.ident is not None
        raised = ctypes.py_object(SystemExit)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), raised)
        assert self._gateway is not None
        self._gateway._decider.wake()


def _sleep(seconds: float) -> None:
    _say("decides_late")
    time.sleep(seconds)


def _say(event: str) -> None:
    # One write: the log's lines go the same way.
    os.write(sys.stdout.fileno(), f'{{"event": "{event}"}}\n'.encode())


def _event_queues() -> set[int]:
    """The descriptors of this process that are event queues (epoll)."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # The listing's own.
            if "eventpoll" in str(descriptor.readlink()):
                found.add(int(descriptor.name))
    return found


def main() -> int:
    """Serve."""
    patience, path = float(sys.argv[1]), Path(sys.argv[2])
    faults = Faults(patience)
    # The package has the function under the module's name.
    importlib.import_module("sluicegate.server.serve").create_app = faults.create  # type: ignore[attr-defined]
    threading.Thread(target=faults.follow, daemon=True).start()
    return serve(load_file(path), path)


if __name__ == "__main__":
    sys.exit(main())
