"""Every test belongs to a stage of `make test`."""

import re

import pytest

from harness.tree import ROOT, tracked

FILES = [path for path in tracked("tests/*/test_*.py") if path.name.startswith("test_")]
FOLDERS = sorted({path.relative_to(ROOT).parts[1] for path in FILES})


MARK = "pytest.mark." + "alone"


def recipes() -> dict[str, str]:
    """Each stage's commands."""
    makefile = (ROOT / "Makefile").read_text()
    stages = re.findall(r"^STAGES = (.+)$", makefile, re.MULTILINE)[0].split()
    found = dict(re.findall(r"^(test-[a-z0-9]+):.*\n((?:\t.*\n)+)", makefile, re.MULTILINE))
    assert set(stages) == found.keys()
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_of_tests_is_run(folder: str) -> None:
    assert any(re.search(rf"tests/{folder}\b", recipe) for recipe in recipes().values())


def test_what_runs_alone_is_run() -> None:
    marked = [path for path in FILES if MARK in path.read_text()]
    assert marked
    assert {str(path.relative_to(ROOT)) for path in marked} == set(
        re.findall(r"tests/\w+/test_\w+\.py", recipes()["test-alone"])
    )


def test_what_is_skipped_for_want_of_a_package_says_how_to_install_it() -> None:
    calls = [
        f"{path.name}: {call}"
        for path in FILES
        for call in re.findall(r"^[^\"\n]*importorskip\(.*", path.read_text(), re.MULTILINE)
    ]
    assert calls
    assert [call for call in calls if "reason=needed." not in call] == []
