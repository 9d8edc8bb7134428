"""Runs one stage of the tests; what fails is run again alone, up to twice.

    python tests/rerun.py STAGE pytest ARGUMENTS...    a stage of Python tests
    python tests/rerun.py STAGE cargo                  all Rust tests
    python tests/rerun.py --end                        what the stages of one `make test` come to

Stages may run side by side. With `--alone`, and wherever a test is run again, nothing runs beside it.

A run is red if a test failed each time, if more than three tests needed another attempt, or if a stage could
not be carried out; else it is green. With `STRICT=1` each test that needed another attempt must also stand in
`tests/quarantine.toml`. Each run ends with `retried: N` and the names. What was run again is kept in
`target/test-report/retried.jsonl`.

A stage is a run of its own unless `SLUICEGATE_TEST_RUN=1` says that others come before and after it.
`SEED` repeats the seed of hypothesis and proptest.
"""

import argparse
import contextlib
import fcntl
import json
import os
import random
import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Protocol

from harness.quarantine import Quarantine, QuarantineFault
from harness.runners import Attempt, PytestRunner, RustRunner

ROOT = Path(__file__).parents[1]
ATTEMPTS = 3
MAX_RETRIED = 3
MINUTES = 6
"""What `make test` takes on two quiet cores in a clone that is built. CONTRIBUTING.md says the same."""
LISTED = 20
MAX_RUN_AGAIN = 8
"""Beyond these nothing is run again: so many failures are no accident, and the run is red anyway."""


class Runner(Protocol):
    """One stage's tests. What was `missing` and which were `slowest` is known once all have run."""

    missing: dict[str, list[str]]
    slowest: dict[str, float]

    def run_all(self) -> tuple[dict[str, Attempt], list[str]]:
        """The tests that failed, and what could not be run at all."""

    def run_one(self, test: str) -> Attempt:
        """That test alone."""


@dataclass
class Retried:
    """A test that did not pass at once."""

    stage: str
    test: str
    seed: int
    outcomes: list[str] = field(default_factory=list)
    """`passed` or `failed`, in order."""
    seconds: list[float] = field(default_factory=list)
    longest_stall: list[float] = field(default_factory=list)
    """Seconds that a thread which wakes up every 20 ms was late, at most, during each attempt."""

    def add(self, attempt: Attempt) -> None:
        self.outcomes.append("passed" if attempt.passed else "failed")
        self.seconds.append(round(attempt.seconds, 2))
        self.longest_stall.append(round(attempt.longest_stall, 2))

    @property
    def passed(self) -> bool:
        return self.outcomes[-1] == "passed"


@dataclass
class Stage:
    """What came of a stage.

    `seconds` are those in which its tests ran, and `cpu_seconds` those of all processes that it started.
    """

    stage: str
    seconds: float
    cpu_seconds: float
    broken: list[str]
    missing: dict[str, list[str]] = field(default_factory=dict)
    """The tests that were skipped, by what was missing: its name, and the line that installs it."""
    slowest: dict[str, float] = field(default_factory=dict)
    """Seconds of the tests that took longest."""


class Turns:
    """Who may use the machine: many stages together, or one alone. A lock on `file`."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @contextlib.contextmanager
    def take(self, *, alone: bool) -> Iterator[None]:
        """Held while this is entered; waits for whoever must end before that."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as held:
            fcntl.flock(held, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            yield


class Report:
    """What one run leaves below `target/test-report`."""

    def __init__(self, folder: Path) -> None:
        self._retried = folder / "retried.jsonl"
        self._stages = folder / "stages.jsonl"
        self._began = folder / "began"
        self._minutes = folder / "minutes"
        folder.mkdir(parents=True, exist_ok=True)

    def begin(self) -> None:
        """Forget the last run, and say how long this one may take."""
        last = f"; the last run here took {self._minutes.read_text()}" if self._minutes.exists() else ""
        print(f"all tests: {MINUTES} minutes on two quiet cores, once everything is built{last}", flush=True)
        self._began.write_text(str(time.time()))
        self.forget()

    def forget(self) -> None:
        """Forget the last run."""
        self._retried.write_text("")
        self._stages.write_text("")

    def end(self) -> None:
        """Keep how long the run took, for the next one."""
        if self._began.exists():
            minutes = (time.time() - float(self._began.read_text())) / 60
            self._minutes.write_text(f"{minutes:.1f} minutes")
            self._began.unlink()

    def add(self, stage: Stage, retried: Sequence[Retried]) -> None:
        _append(self._retried, [asdict(each) for each in retried])
        _append(self._stages, [asdict(stage)])

    def retried(self) -> list[Retried]:
        return [Retried(**line) for line in _read(self._retried)]

    def stages(self) -> list[Stage]:
        return [Stage(**line) for line in _read(self._stages)]


def _append(file: Path, lines: Sequence[Mapping[str, object]]) -> None:
    with file.open("a") as out:
        out.writelines(json.dumps(line) + "\n" for line in lines)


def _read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def run_stage(
    name: str, runner: Runner, seed: int, turns: Turns, *, alone: bool = False
) -> tuple[Stage, list[Retried]]:
    """All tests of a stage, and those that failed again. `alone`: while no other stage runs."""
    before = _cpu_seconds()
    with turns.take(alone=alone):
        began = time.monotonic()
        failed, broken = runner.run_all()
        seconds = time.monotonic() - began
    retried = [Retried(name, test, seed) for test in failed]
    for each in retried:
        each.add(failed[each.test])
    if len(retried) <= MAX_RUN_AGAIN and retried:
        with turns.take(alone=True):
            began = time.monotonic()
            for each in retried:
                _run_again(each, runner)
            seconds += time.monotonic() - began
    cpu_seconds = round(_cpu_seconds() - before, 1)
    stage = Stage(name, round(seconds, 1), cpu_seconds, broken, runner.missing, runner.slowest)
    return stage, retried


def _run_again(test: Retried, runner: Runner) -> None:
    """Until it passes, or has failed as often as it may."""
    while not test.passed and len(test.outcomes) < ATTEMPTS:
        print(f"\n{test.stage}: once more, alone: {test.test}", flush=True)
        test.add(runner.run_one(test.test))


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def problems(
    stages: Sequence[Stage], retried: Sequence[Retried], quarantine: Quarantine | None, today: date
) -> list[str]:
    """Why the run is red; nothing if it is green. `quarantine`: where the run is strict."""
    found = [f"{stage.stage}: {broken}" for stage in stages for broken in stage.broken]
    found += [f"failed each time: {each.test}" for each in retried if not each.passed]
    if len(retried) > MAX_RETRIED:
        found.append(f"more than {MAX_RETRIED} tests did not pass at once")
    if quarantine is not None:
        known = quarantine.tests(today)
        found += [
            f"needed another attempt and is not in quarantine: {each.test}"
            for each in retried
            if each.passed and each.test not in known
        ]
    return found


def end(report: Report) -> int:
    """Says what the run comes to; its exit status."""
    stages, retried = report.stages(), report.retried()
    print()
    for stage in stages:
        print(f"{stage.stage:<14} {stage.seconds:>7.1f} s   {stage.cpu_seconds:>7.1f} s of CPU")
    slowest = sorted(
        ((seconds, test) for stage in stages for test, seconds in stage.slowest.items()), reverse=True
    )
    if slowest:
        print("\ntook longest:")
    for seconds, test in slowest[:LISTED]:
        print(f"{seconds:>7.1f} s   {test}")
    missing: dict[str, list[str]] = {}
    for stage in stages:
        for thing, tests in stage.missing.items():
            missing.setdefault(thing, []).extend(tests)
    if missing:
        print("\nnot tested, because something is missing here:")
    for thing, tests in sorted(missing.items()):
        name, _, install = thing.partition(": ")
        print(f"  {name} ({len(tests)} skipped, {tests[0]} first). To install it: {install}")
    print()
    red: list[str] = []
    quarantine = None
    try:
        found = Quarantine.read(ROOT / "tests" / "quarantine.toml")
        quarantine = found if os.environ.get("STRICT") == "1" else None
    except QuarantineFault as fault:
        red.append(f"tests/quarantine.toml: {fault}")
    red += problems(stages, retried, quarantine, date.today())
    for problem in red:
        print(f"red: {problem}")
    print(f"retried: {len(retried)}")
    for each in retried:
        print(f"  {each.test}: {', '.join(each.outcomes)} (longest stalls {each.longest_stall} s)")
    return 1 if red else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="rerun.py")
    parser.add_argument("--end", action="store_true", help="what the stages of this run come to")
    parser.add_argument("--begin", action="store_true", help="forget the last run")
    parser.add_argument("--alone", action="store_true", help="wait until no other stage runs")
    parser.add_argument("stage", nargs="?")
    parser.add_argument("kind", nargs="?", choices=("pytest", "cargo"))
    options, arguments = parser.parse_known_args()
    folder = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "test-report"
    report = Report(folder)
    if options.begin:
        report.begin()
        return 0
    if options.end:
        report.end()
        return end(report)
    if options.kind is None:
        parser.error("a stage, and pytest or cargo, are needed")
    part = os.environ.get("SLUICEGATE_TEST_RUN") == "1"
    if not part:
        report.forget()
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
    runner: Runner
    if options.kind == "cargo":
        runner = RustRunner(ROOT, seed)
    else:
        runner = PytestRunner(ROOT, seed, folder / f"{options.stage}.outcomes.jsonl", arguments)
    # What a stage builds has the machine's cores to itself, and no share of those that make hands out.
    for name in ("MAKEFLAGS", "MFLAGS"):
        os.environ.pop(name, None)
    turns = Turns(folder / "turn")
    stage, retried = run_stage(options.stage, runner, seed, turns, alone=options.alone)
    report.add(stage, retried)
    print(f"{stage.stage}: {stage.seconds:.0f} s ({stage.cpu_seconds:.0f} s of CPU), seed {seed}", flush=True)
    if not part:
        return end(report)
    return 1 if stage.broken or not all(each.passed for each in retried) else 0


if __name__ == "__main__":
    sys.exit(main())
