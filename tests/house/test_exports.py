"""Public names: each has one home, is exported once, and is there."""

import ast
from collections import Counter
from pathlib import Path

import pytest

import sluicegate
from harness.tree import ROOT, tracked
from sluicegate import errors

PACKAGE = ROOT / "python" / "sluicegate"
PACKAGES = tracked("python/sluicegate/*__init__.py")


def exported(path: Path) -> list[str]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets
        ):
            names = ast.literal_eval(node.value)
            assert isinstance(names, list)
            return names
    return []


def bound(path: Path) -> set[str]:
    """What the module's own text binds at its top."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: str(path.parent.relative_to(PACKAGE)))
def test_what_a_package_exports_is_there_and_sorted(path: Path) -> None:
    names = exported(path)
    assert sorted(set(names)) == sorted(names)
    if path.parent != PACKAGE:
        assert set(names) <= bound(path)


def test_no_two_packages_export_the_same_name() -> None:
    counts = Counter(name for path in PACKAGES if path.parent != PACKAGE for name in exported(path))
    assert [name for name, count in counts.items() if count > 1] == []


def test_the_face_of_the_package_exports_each_name_once_from_its_home() -> None:
    assert sorted(sluicegate.__all__) == sorted(sluicegate._HOME)
    assert sum(len(names) for names in sluicegate._HOMES.values()) == len(sluicegate._HOME)
    for name, home in sluicegate._HOME.items():
        parts = home.split(".")[1:]
        path = PACKAGE.joinpath(*parts)
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if parts == ["_core"]:
            file = file.with_suffix(".pyi")
        assert name in bound(file), f"{home} has no {name}"


@pytest.mark.parametrize(
    "name", sorted(name for name, home in sluicegate._HOME.items() if "_core" not in home)
)
def test_a_name_is_loaded_when_it_is_used(name: str) -> None:
    assert getattr(sluicegate, name).__name__ == name
    assert name in dir(sluicegate)


def test_what_is_not_public_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        sluicegate.nothing  # noqa: B018


def test_every_exception_is_public_and_an_error() -> None:
    classes = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert classes <= set(sluicegate.__all__)
    assert all(issubclass(getattr(errors, name), errors.Error) for name in classes)
    drawn = (errors.__doc__ or "").split("Every exception sluicegate raises.")[-1]
    assert all(name in drawn for name in classes)
