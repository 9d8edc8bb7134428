"""How a stage's tests are run, and one of them alone: by pytest, or as cargo's test binaries."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.heartbeat import Heartbeat

STAGE_SECONDS = 1800.0
ALONE_SECONDS = 600.0
BUILD_SECONDS = 1800.0
_NOTHING_COLLECTED = 5


@dataclass(frozen=True)
class Attempt:
    """One run of one test. Times are in seconds."""

    passed: bool
    seconds: float
    longest_stall: float


class PytestRunner:
    """`arguments`: pytest's, for the whole stage. `outcomes`: the file that `tests/conftest.py` writes."""

    def __init__(self, root: Path, seed: int, outcomes: Path, arguments: Sequence[str]) -> None:
        self._root = root
        self._seed = seed
        self._outcomes = outcomes
        self._arguments = list(arguments)
        self.missing: dict[str, list[str]] = {}
        """What was missing, with the tests that were skipped for it."""
        self.slowest: dict[str, float] = {}
        """Seconds of the tests that took longest."""

    def run_all(self) -> tuple[dict[str, Attempt], list[str]]:
        status, lines = self._run(self._arguments, STAGE_SECONDS)
        failed = {
            str(line["test"]): Attempt(False, float(line["seconds"]), float(line["longest_stall"]))
            for line in lines
            if "test" in line
        }
        for line in lines:
            if "skipped" in line:
                self.missing.setdefault(line["missing"], []).append(line["skipped"])
            elif "slow" in line:
                self.slowest[line["slow"]] = float(line["seconds"])
        missed = [line["not_collected"] for line in lines if "not_collected" in line]
        broken = [f"could not be collected: {file}" for file in missed]
        if not broken and status not in ((1,) if failed else (0,)):
            said = "no test was found" if status == _NOTHING_COLLECTED else f"pytest ended with {status}"
            broken.append(said)
        return failed, broken

    def run_one(self, test: str) -> Attempt:
        began = time.monotonic()
        with Heartbeat() as heartbeat:
            status, _ = self._run(["-p", "no:xdist", test], ALONE_SECONDS)
        return Attempt(status == 0, time.monotonic() - began, heartbeat.longest_stall)

    def _run(self, arguments: Sequence[str], seconds: float) -> tuple[int | None, list[dict[str, str]]]:
        self._outcomes.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "--quiet", f"--hypothesis-seed={self._seed}", *arguments]
        environ = {
            "SLUICEGATE_TEST_OUTCOMES": str(self._outcomes),
            # Each process of a stage reads all tests of it: compiled once, they take half of that time.
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(self._root / "target" / "pycache"),
        }
        status = _status(command, self._root, environ, seconds)
        written = self._outcomes.read_text().splitlines() if self._outcomes.exists() else []
        return status, [json.loads(line) for line in written]


class RustRunner:
    """All test binaries of the workspace, one after the other, and the examples in its documentation."""

    def __init__(self, root: Path, seed: int) -> None:
        self._root = root
        self._environ = {"PROPTEST_RNG_SEED": str(seed), "CARGO_TERM_COLOR": "never"}
        self.missing: dict[str, list[str]] = {}
        self.slowest: dict[str, float] = {}
        self._binaries: dict[str, tuple[list[str], Path]] = {}

    def run_all(self) -> tuple[dict[str, Attempt], list[str]]:
        build = ["cargo", "test", "--workspace", "--locked", "--quiet", "--no-run"]
        done = subprocess.run(
            [*build, "--message-format=json-render-diagnostics"],
            cwd=self._root,
            stdout=subprocess.PIPE,
            text=True,
            timeout=BUILD_SECONDS,
        )
        if done.returncode:
            return {}, ["the tests do not build"]
        self._binaries = dict(binaries(done.stdout))
        self._binaries["documentation"] = (
            ["cargo", "test", "--workspace", "--locked", "--doc", "--no-fail-fast", "--"],
            self._root,
        )
        failed: dict[str, Attempt] = {}
        for name in self._binaries:
            began = time.monotonic()
            failed |= self._run_binary(name)
            self.slowest[name] = round(time.monotonic() - began, 1)
        return failed, []

    def run_one(self, test: str) -> Attempt:
        """`test`: binary and test, or a binary alone where all of it has come to grief."""
        name, _, inside = test.partition(" ")
        passed, seconds, stall, _ = self._run(name, ["--exact", inside] if inside else [])
        return Attempt(passed, seconds, stall)

    def _run_binary(self, name: str) -> dict[str, Attempt]:
        passed, seconds, stall, output = self._run(name, [])
        if passed:
            return {}
        tests = [f"{name} {test}" for test in failed_tests(output)] or [name]
        return dict.fromkeys(tests, Attempt(False, seconds, stall))

    def _run(self, name: str, arguments: Sequence[str]) -> tuple[bool, float, float, str]:
        command, directory = self._binaries[name]
        began = time.monotonic()
        with Heartbeat() as heartbeat:
            try:
                done = subprocess.run(
                    [*command, *arguments],
                    cwd=directory,
                    env={**os.environ, **self._environ},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    timeout=ALONE_SECONDS,
                )
                output, passed = done.stdout, done.returncode == 0
            except subprocess.TimeoutExpired as late:
                said = late.stdout if isinstance(late.stdout, bytes) else b""
                output = f"{said.decode(errors='replace')}\nkilled after {ALONE_SECONDS:.0f} s"
                passed = False
        if not passed:
            print(output[-20_000:])
        seconds = time.monotonic() - began
        counts = sum(map(int, re.findall(r"^test result: \w+\. (\d+) passed", output, re.MULTILINE)))
        print(f"{name} {' '.join(arguments)}: {counts} passed, {seconds:.1f} s", flush=True)
        if arguments and not counts:
            passed = False
        return passed, seconds, heartbeat.longest_stall, output


def binaries(messages: str) -> Mapping[str, tuple[list[str], Path]]:
    """Each test binary that cargo's JSON `messages` name: its command, and the folder that it runs in."""
    found: dict[str, tuple[list[str], Path]] = {}
    for line in messages.splitlines():
        message = json.loads(line)
        if (
            message.get("reason") == "compiler-artifact"
            and message["profile"]["test"]
            and message["executable"]
        ):
            package = Path(message["manifest_path"]).parent
            target = message["target"]
            name = f"{package.name}::{target['kind'][0]}::{target['name']}"
            found[name] = ([message["executable"]], package)
    return found


def failed_tests(output: str) -> list[str]:
    """The names of the tests that libtest says have failed."""
    found = re.findall(r"^test (.+?)(?: - should panic)? \.\.\. FAILED$", output, re.MULTILINE)
    return list(dict.fromkeys(found))


def _status(
    command: Sequence[str], directory: Path, environ: Mapping[str, str], seconds: float
) -> int | None:
    """The command's exit status; None if it had to be killed."""
    with subprocess.Popen(command, cwd=directory, env={**os.environ, **environ}) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
            return None
