"""What a failed test's second and third attempt make of a run."""

import fcntl
import json
import re
import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pytest

import rerun
from harness import needed
from harness.heartbeat import Heartbeat
from harness.quarantine import Quarantine, QuarantineFault
from harness.runners import Attempt, PytestRunner, binaries, failed_tests
from rerun import Report, Retried, Stage, Turns, problems

TODAY = date(2026, 5, 10)
NONE = Quarantine(())


class Played:
    """A stage whose tests have these outcomes, in order."""

    def __init__(self, outcomes: Mapping[str, str], broken: tuple[str, ...] = ()) -> None:
        self.missing: dict[str, list[str]] = {}
        self.slowest: dict[str, float] = {}
        self._left = {test: list(each) for test, each in outcomes.items()}
        self._broken = broken

    def run_all(self) -> tuple[dict[str, Attempt], list[str]]:
        first = {test: self.run_one(test) for test in self._left}
        return {test: attempt for test, attempt in first.items() if not attempt.passed}, list(self._broken)

    def run_one(self, test: str) -> Attempt:
        return Attempt(self._left[test].pop(0) == "+", 1.0, 0.25)


@pytest.fixture
def turn(tmp_path: Path) -> Path:
    """The file that says whose turn it is."""
    return tmp_path / "turn"


def run_stage(name: str, runner: rerun.Runner, seed: int, turn: Path) -> tuple[Stage, list[Retried]]:
    return rerun.run_stage(name, runner, seed, Turns(turn))


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ({"a": "+", "b": "+"}, []),
        ({"a": "-+"}, []),
        ({"a": "--+", "b": "-+", "c": "-+"}, []),
        ({"a": "---", "b": "+"}, ["failed each time: a"]),
        (dict.fromkeys("abcd", "-+"), ["more than 3 tests did not pass at once"]),
    ],
)
def test_a_run_is_red_for_what_fails_each_time_and_for_too_many(
    outcomes: dict[str, str], expected: list[str], turn: Path
) -> None:
    stage, retried = run_stage("stage", Played(outcomes), 7, turn)
    assert problems([stage], retried, None, TODAY) == expected
    assert {each.test for each in retried} == {test for test, each in outcomes.items() if each[0] == "-"}


def test_so_many_failures_are_not_run_again(turn: Path) -> None:
    _, retried = run_stage("stage", Played(dict.fromkeys("abcdefghi", "-")), 7, turn)
    assert [each.outcomes for each in retried] == [["failed"]] * 9


def test_what_cannot_be_run_is_red(turn: Path) -> None:
    stage, retried = run_stage("stage", Played({}, broken=("the tests do not build",)), 7, turn)
    assert problems([stage], retried, None, TODAY) == ["stage: the tests do not build"]


def test_a_strict_run_wants_a_second_attempt_announced(turn: Path) -> None:
    _, retried = run_stage("stage", Played({"a": "-+", "b": "+"}), 7, turn)
    assert problems([], retried, NONE, TODAY) == ["needed another attempt and is not in quarantine: a"]
    known = Quarantine.parse(entry("a", "2026-05-01", "2026-05-15"))
    assert problems([], retried, known, TODAY) == []
    assert len(problems([], retried, known, date(2026, 5, 16))) == 1


class Watching(Played):
    """Notes at each attempt whether another stage could run beside it."""

    def __init__(self, outcomes: Mapping[str, str], turn: Path) -> None:
        super().__init__(outcomes)
        self._turn = turn
        self.alone: list[bool] = []

    def run_one(self, test: str) -> Attempt:
        with self._turn.open("a") as another:
            try:
                fcntl.flock(another, fcntl.LOCK_SH | fcntl.LOCK_NB)
                self.alone.append(False)
            except BlockingIOError:
                self.alone.append(True)
        return super().run_one(test)


@pytest.mark.parametrize("alone", [False, True])
def test_stages_run_side_by_side_and_what_is_run_again_runs_alone(turn: Path, alone: bool) -> None:
    watching = Watching({"a": "-+", "b": "--+"}, turn)
    _, retried = rerun.run_stage("stage", watching, 7, Turns(turn), alone=alone)
    assert [each.passed for each in retried] == [True, True]
    assert watching.alone == [alone, alone, True, True, True]


def entry(test: str, since: str, until: str) -> str:
    return f'[[quarantined]]\ntest = "{test}"\nreason = "known"\nsince = {since}\nuntil = {until}\n'


@pytest.mark.parametrize(
    "text",
    [
        entry("a", "2026-05-01", "2026-05-16"),
        entry("a", "2026-05-02", "2026-05-01"),
        entry("", "2026-05-01", "2026-05-02"),
        entry("a", '"2026-05-01"', "2026-05-02"),
        '[[quarantined]]\ntest = "a"\n',
        entry("a", "2026-05-01", "2026-05-02") * 6,
        "[other]\n",
        "[[",
    ],
    ids=["long", "backwards", "nameless", "no date", "half", "six", "other", "no TOML"],
)
def test_a_quarantine_is_short_and_complete(text: str) -> None:
    with pytest.raises(QuarantineFault):
        Quarantine.parse(text)


def test_the_quarantine_of_this_tree_is_in_order() -> None:
    Quarantine.read(rerun.ROOT / "tests" / "quarantine.toml")


def test_the_end_names_what_was_retried(
    tmp_path: Path, turn: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report(tmp_path)
    report.begin()
    assert rerun.end(report) == 0
    assert capsys.readouterr().out.endswith("retried: 0\n")
    report.add(*run_stage("stage", Played({"a": "--+"}), 7, turn))
    assert rerun.end(report) == 0
    assert "retried: 1\n  a: failed, failed, passed" in capsys.readouterr().out
    [line] = map(json.loads, (tmp_path / "retried.jsonl").read_text().splitlines())
    assert line == {
        "stage": "stage",
        "test": "a",
        "seed": 7,
        "outcomes": ["failed", "failed", "passed"],
        "seconds": [1.0] * 3,
        "longest_stall": [0.25] * 3,
    }
    report.add(Stage("next", 1.0, 1.0, ["pytest ended with 3"]), [])
    assert rerun.end(report) == 1


def pytest_stage(folder: Path, text: str) -> PytestRunner:
    (folder / "test_it.py").write_text(text)
    (folder / "conftest.py").write_text((rerun.ROOT / "tests" / "conftest.py").read_text())
    plugins = "--disable-plugin-autoload -p hypothesispytest"
    (folder / "pytest.ini").write_text(
        f"[pytest]\naddopts = {plugins}\npythonpath = {rerun.ROOT / 'tests'}\n"
    )
    return PytestRunner(folder, 7, folder / "outcomes.jsonl", ["-q", "-p", "no:cacheprovider", "."])


def test_the_end_says_what_was_missing_and_what_took_long(
    tmp_path: Path, turn: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = f"import pytest\n\n@pytest.mark.skip(reason={needed.REDIS!r})\n"
    other = "def test_not_for_this_database():\n    pytest.skip('it has one writer at a time')\n"
    runner = pytest_stage(tmp_path, f"{absent}def test_counters():\n    pass\n\n{other}")
    report = Report(tmp_path / "report")
    report.begin()
    assert f"{rerun.MINUTES} minutes on two quiet cores" in capsys.readouterr().out
    report.add(*run_stage("stage", runner, 7, turn))
    report.end()
    assert rerun.end(report) == 0
    said = capsys.readouterr().out
    assert "Redis or Valkey (1 skipped, test_it.py::test_counters first)" in said
    assert "To install it: apt-get install redis-server" in said
    assert "one writer" not in said
    assert "s   test_it.py::test_counters\n" in said
    report.begin()
    assert re.search(r"the last run here took \d+\.\d minutes", capsys.readouterr().out)


@pytest.mark.timeout(180)
def test_pytest_is_asked_again_for_what_failed(tmp_path: Path) -> None:
    passes_later = "def test_once(tmp_path_factory):\n    import pathlib\n    mark = pathlib.Path('mark')\n"
    passes_later += "    if not mark.exists():\n        mark.touch()\n        assert False\n"
    fails = "def test_twice():\n    assert False\n"
    runner = pytest_stage(tmp_path, passes_later + fails + "def test_well():\n    pass\n")
    failed, broken = runner.run_all()
    assert (sorted(failed), broken) == (["test_it.py::test_once", "test_it.py::test_twice"], [])
    assert not any(attempt.passed for attempt in failed.values())
    assert runner.run_one("test_it.py::test_once").passed
    assert not runner.run_one("test_it.py::test_twice").passed
    assert not runner.run_one("test_it.py::test_that_is_not_there").passed


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nothing_of_that_name\n", "could not be collected: test_it.py"),
        ("def no_test():\n    pass\n", "no test was found"),
        ("import os\n\ndef test_end():\n    os._exit(9)\n", "pytest ended with 9"),
    ],
    ids=["import", "empty", "exit"],
)
def test_a_stage_that_is_cut_short_is_broken(tmp_path: Path, text: str, said: str) -> None:
    assert pytest_stage(tmp_path, text).run_all() == ({}, [said])


def test_failed_tests_are_read_from_libtest() -> None:
    said = "test a::b ... ok\ntest a::c ... FAILED\ntest d - should panic ... FAILED\n"
    said += "test rust/core/src/x.rs - x::y (line 3) ... FAILED\n\nfailures:\n    a::c\n"
    assert failed_tests(said) == ["a::c", "d", "rust/core/src/x.rs - x::y (line 3)"]


def test_test_binaries_are_read_from_cargo() -> None:
    artifact = {
        "reason": "compiler-artifact",
        "manifest_path": "/tree/rust/core/Cargo.toml",
        "target": {"kind": ["test"], "name": "cases"},
        "profile": {"test": True},
        "executable": "/target/cases",
    }
    library = {**artifact, "profile": {"test": False}, "executable": None}
    messages = "\n".join(map(json.dumps, [artifact, library, {"reason": "build-finished"}]))
    assert binaries(messages) == {"core::test::cases": (["/target/cases"], Path("/tree/rust/core"))}


def test_a_heartbeat_notices_a_stall() -> None:
    with Heartbeat() as heartbeat:
        before = sys.getswitchinterval()
        sys.setswitchinterval(60)
        try:
            sum(range(20_000_000))
        finally:
            sys.setswitchinterval(before)
        assert heartbeat.longest_stall > 0.02
