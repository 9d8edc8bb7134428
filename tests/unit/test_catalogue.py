"""What is said of each error code: every code that can be met is there, and nothing else."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from sluicegate import gateway
from sluicegate._core import FAULT_KINDS
from sluicegate.catalogue import CATALOGUE
from sluicegate.cli import main

ROOT = Path(__file__).parents[2]
GATEWAY = Path(gateway.__file__).parent


def codes() -> set[str]:
    """Those of the application, of the front, and the kinds of faults, as the sources have them."""
    python = "".join((GATEWAY / name).read_text() for name in ("errors.py", "stored_errors.py"))
    front = (ROOT / "rust/front/src/refusal.rs").read_text()
    named = front.partition("fn code(self)")[2].partition("fn status")[0]
    found = set(re.findall(r'code="(\w+)"', python)) | set(re.findall(r'=> "(\w+)"', named))
    assert len(found) > 25
    return found | set(FAULT_KINDS)


def test_every_code_is_explained_and_no_other() -> None:
    assert CATALOGUE.keys() == codes()


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_an_explanation_is_whole(code: str) -> None:
    entry = CATALOGUE[code]
    for text in (entry.meaning, *entry.causes, *entry.remedies):
        assert re.fullmatch(r"[A-Z`].*[.]", text, re.DOTALL), text
    assert entry.causes
    assert entry.remedies
    done = CliRunner().invoke(main, ["explain", code])
    assert done.exit_code == 0
    assert done.stdout.startswith(code)
    assert "Likely causes:" in done.stdout
    assert all(len(line) <= 100 for line in done.stdout.splitlines())


def test_all_codes_are_listed() -> None:
    lines = CliRunner().invoke(main, ["explain"]).stdout.splitlines()
    assert [line.split()[0] for line in lines] == sorted(CATALOGUE)


def test_a_code_that_is_not_there() -> None:
    done = CliRunner().invoke(main, ["explain", "overlaoded"])
    assert done.exit_code == 2
    assert "Did you mean `overloaded`?" in done.stderr
    assert "lists them all" in CliRunner().invoke(main, ["explain", "xyz"]).stderr
