"""The Rust program at both ends of a measurement: the mock upstream and the load generator."""

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benches.load.accounting import cpu_seconds
from benches.load.processes import prepare_child

_REPOSITORY = Path(__file__).resolve().parents[2]
_PACKAGE = "sluicegate-bench-load"


class ToolError(Exception):
    """The mock or the load generator itself failed: nothing was measured."""


@dataclass(frozen=True)
class Tool:
    """The built program, and the priority it is run with."""

    path: Path
    nice: int = 0

    def start(self, *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.path), *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # Safe: this program has one thread.
            preexec_fn=prepare_child(self.nice),
        )


def build() -> Path:
    """Build the program in release mode; its path. Raises CalledProcessError where cargo fails."""
    command = ["cargo", "build", "--release", "--package", _PACKAGE]
    built = subprocess.run(
        [*command, "--message-format", "json-render-diagnostics"],
        cwd=_REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    for line in reversed(built.stdout.splitlines()):
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == _PACKAGE:
            return Path(message["executable"])
    raise ToolError(f"cargo built no {_PACKAGE}")


class Mock:
    """The mock upstream. It ends when its standard input closes, so it cannot outlive this process."""

    def __init__(self, tool: Tool) -> None:
        self._child = tool.start("mock", stdin=subprocess.PIPE)
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise ToolError("the mock upstream did not start")
        self.address: str = json.loads(line)["address"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.communicate()

    def cpu_seconds(self) -> float:
        return cpu_seconds(self._child.pid)


class Load(Mapping[str, Any]):
    """A finished run of the load generator: its result, and the CPU seconds that it used itself."""

    def __init__(self, result: Mapping[str, Any], cpu: float) -> None:
        self._result = result
        self.cpu = cpu

    def __getitem__(self, name: str) -> Any:
        return self._result[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._result)

    def __len__(self) -> int:
        return len(self._result)


def run_load(tool: Tool, plan: Mapping[str, Any], mark: Callable[[str, Mapping[str, Any]], None]) -> Load:
    """Carry out one plan. `mark(name, counts)` is called when the load generator sets a mark."""
    with tool.start("load", json.dumps(plan)) as child:
        try:
            assert child.stdout is not None
            for line in child.stdout:
                message = json.loads(line)
                if message["mark"] == "result":
                    return Load(message, cpu_seconds(child.pid))
                mark(message["mark"], message)
        except BaseException:
            child.kill()
            raise
    raise ToolError(f"the load generator ended with {child.returncode} and without a result")
