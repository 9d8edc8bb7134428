"""The tree itself: sizes, names, one version."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import needed
from harness.tree import ROOT, tracked

SOURCES = ("python", "rust", "tests", "benches")
SUFFIXES = {".py", ".pyi", ".rs"}
MAX_LINES = 600
MAX_WIDTH = 120
# One extension module has one stub, and the stub is where it is documented.
ONE_BY_NATURE = {"python/sluicegate/_core.pyi"}
NAMES_THAT_SAY_NOTHING = {"utils", "util", "helpers", "helper", "common", "misc"}


def sources() -> Iterator[Path]:
    for folder in SOURCES:
        yield from (path for path in tracked(folder) if path.suffix in SUFFIXES)


def test_there_are_sources_to_look_at() -> None:
    assert {path.suffix for path in sources()} == SUFFIXES


def test_no_file_is_two_things() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources()}
    too_long = {name: length for name, length in lengths.items() if length > MAX_LINES}
    assert too_long.keys() - ONE_BY_NATURE == set()


def test_comments_are_not_too_wide() -> None:
    # rustfmt leaves comments as they are. Examples in them are code, whose strings may be wide.
    wide = []
    for path in sources():
        example = False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            comment = line.lstrip()
            if path.suffix == ".rs" and comment.startswith("//"):
                fence = comment.lstrip("/!").lstrip().startswith("```")
                example ^= fence
                if len(line) > MAX_WIDTH and not example and not fence:
                    wide.append(f"{path.relative_to(ROOT)}:{number}")
            else:
                example = False
    assert wide == []


def test_names_say_what_is_inside() -> None:
    parts = {part.partition(".")[0]: path for path in sources() for part in path.relative_to(ROOT).parts}
    assert NAMES_THAT_SAY_NOTHING & parts.keys() == set()


# === version ===


def workspace_version() -> str:
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert isinstance(version, str)
    return version


def test_the_version_is_written_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" in project["dynamic"]
    assert "version" not in project
    for manifest in tracked("rust/*Cargo.toml", "benches/*Cargo.toml"):
        package = tomllib.loads(manifest.read_text()).get("package", {})
        # A crate outside the workspace (fuzzing) has no version to share, and none of its own.
        assert package.get("version") in ({"workspace": True}, "0.0.0", None), manifest
    for path in sources():
        if path.suffix in (".py", ".pyi"):
            assert not re.search(r"^__version__\s*(:\s*\w+\s*)?=", path.read_text(), re.MULTILINE), path


def test_the_package_reports_that_version() -> None:
    core = pytest.importorskip("sluicegate._core", reason=needed.PACKAGES, exc_type=ImportError)
    assert core.__version__ == workspace_version()


# === what both languages name ===


def test_the_configuration_names_the_cores_dialects() -> None:
    from typing import get_args

    from sluicegate.config import Dialect

    text = (ROOT / "rust/core/src/usage/dialect.rs").read_text()
    names = re.findall(r"^    \w+, \"([^\"]+)\", \w+;$", text, re.MULTILINE)
    assert sorted(names) == sorted(get_args(Dialect))


def test_the_binding_raises_exceptions_that_exist() -> None:
    import sluicegate.errors

    text = (ROOT / "rust/binding/src/errors.rs").read_text()
    names = set(re.findall(r"=> \"(\w+)\"|raise\(py, \"(\w+)\"", text))
    classes = {name for pair in names for name in pair if name}
    assert classes
    for name in classes:
        assert issubclass(getattr(sluicegate.errors, name), sluicegate.errors.Error)
