"""Who may know whom: imports go downwards only, and the layers below know nothing of those above."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.tree import ROOT, tracked

PACKAGE = ROOT / "python" / "sluicegate"

# From the bottom up. What shares a line does not know each other: it meets in the gateway.
LAYERS = (
    ("errors", "catalogue", "offload"),
    ("_core",),
    ("streams",),
    ("config",),
    ("telemetry",),
    ("storage",),
    ("identity",),
    ("admission", "discovery", "pricing", "routing", "ledger", "responses"),
    ("gateway", "admin"),
    ("server",),
    ("testing",),
    ("cli",),
    ("__main__",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

# The packages that touch the extension, each named in ARCHITECTURE.md. The others are plain Python.
CORE_USERS = {
    "streams",
    "telemetry",
    "admission",
    "pricing",
    "routing",
    "ledger",
    "responses",
    "gateway",
    "server",
}


def module_files() -> list[Path]:
    return tracked("python/sluicegate/*.py")


def name_of(path: Path) -> tuple[str, ...]:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """What a file imports, at its top, inside a function or for types: line, dotted name."""
    package = ("sluicegate", *name_of(path))
    if path.name != "__init__.py" or path.parent == PACKAGE:
        package = package[:-1]
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) + "." if node.level else ""
            home = (base + (node.module or "")).rstrip(".")
            if home == "sluicegate":
                for alias in node.names:
                    yield node.lineno, f"sluicegate.{alias.name}"
            else:
                yield node.lineno, home


def inner_imports(path: Path) -> Iterator[tuple[int, str]]:
    """The parts of the package that a file imports: line, first name below `sluicegate`."""
    for line, name in imports(path):
        first, _, rest = name.partition(".")
        if first == "sluicegate" and rest:
            yield line, rest.partition(".")[0]


def test_every_part_has_its_layer() -> None:
    parts = {name_of(path)[0] for path in module_files()} - {"__init__"}
    assert parts <= RANK.keys()


# The face of the package is no layer: it names what is in all of them, and loads it when it is used.
LAYERED = [path for path in module_files() if name_of(path) != ("__init__",)]


@pytest.mark.parametrize("path", LAYERED, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_downwards_only(path: Path) -> None:
    own = name_of(path)[0]
    wrong = []
    for line, part in inner_imports(path):
        # `from sluicegate import __version__`: the face itself holds nothing else of its own.
        if part in (own, "__version__"):
            continue
        if part not in RANK or RANK[part] >= RANK[own]:
            wrong.append(f"{path.relative_to(ROOT)}:{line}: {own} imports {part}")
    assert wrong == []


def test_the_extension_is_imported_in_few_places() -> None:
    users = {name_of(path)[0] for path in LAYERED if "_core" in {part for _, part in inner_imports(path)}}
    assert users <= CORE_USERS
    guide = (ROOT / "ARCHITECTURE.md").read_text()
    named = {user for user in users if f"/{user}`" in guide or f"/{user}.py`" in guide}
    assert named == users


def test_the_package_is_cheap_to_import() -> None:
    code = "import sys, threading, sluicegate, sluicegate.cli; print(threading.active_count(), *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT / "python"
    )
    threads, *modules = done.stdout.split()
    assert threads == "1"
    heavy = {"granian", "starlette", "genai_prices", "pydantic", "yaml", "prometheus_client", "uvloop"}
    assert heavy & {name.partition(".")[0] for name in modules} == set()
    own = {name.split(".")[1] for name in modules if name.startswith("sluicegate.")}
    assert own == {"errors", "cli"}


def dependencies(crate: str, packages: dict[str, list[str]]) -> set[str]:
    found: set[str] = set()
    left = [crate]
    while left:
        name = left.pop()
        for dependency in packages.get(name, []):
            if dependency not in found:
                found.add(dependency)
                left.append(dependency)
    return found


def test_the_crates_know_only_what_is_below_them() -> None:
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    packages: dict[str, list[str]] = {}
    for package in locked:
        names = [dependency.split()[0] for dependency in package.get("dependencies", [])]
        packages.setdefault(package["name"], []).extend(names)
    core = dependencies("sluicegate-core", packages)
    assert core & {"pyo3", "tokio", "hyper", "sluicegate-relay"} == set()
    journal = dependencies("sluicegate-journal", packages)
    assert journal & {"pyo3", "tokio", "hyper", "sluicegate-core", "sluicegate-relay"} == set()
    # But for what its tests are written with.
    assert [name for name in packages["sluicegate-limits"] if name != "proptest"] == []
    relay = dependencies("sluicegate-relay", packages)
    assert "sluicegate-core" in relay
    assert "pyo3" not in relay


CORE = ROOT / "rust" / "core" / "src"
TABLE = {"protocols/mod", "protocols/target"}
PROTOCOL_FILES = [path.relative_to(CORE / "protocols") for path in tracked("rust/core/src/protocols")]
PROTOCOLS = tuple(
    sorted({f"protocols/{path.parts[0].removesuffix('.rs')}" for path in PROTOCOL_FILES} - TABLE)
)

# The modules of the core from the bottom up; what shares a line does not know each other. Each protocol is a
# module of its own, and so is the table of them.
CORE_LAYERS = (
    ("api", "base64", "error", "form", "limits"),
    ("json", "mode", "record", "sse"),
    ("cost", "input", "rendezvous", "request", "usage"),
    ("output", "pricing", "watch"),
    ("protocol",),
    PROTOCOLS,
    ("harmony",),
    ("protocols",),
    ("pipeline",),
    ("meter",),
)
CORE_RANK = {name: rank for rank, names in enumerate(CORE_LAYERS) for name in names}


def core_module(parts: list[str]) -> str:
    """The module of a path below the core's root: `protocols/chat` of `protocols/chat/fold/item`."""
    name = "/".join(parts[:2])
    return name if name in CORE_RANK else parts[0]


def core_files() -> list[Path]:
    return [path for path in tracked("rust/core/src/*.rs") if path.stem != "tests" and path.name != "lib.rs"]


def test_the_core_imports_downwards_only() -> None:
    wrong = []
    for path in core_files():
        place = path.relative_to(CORE)
        own = core_module(list(place.with_suffix("").parts))
        assert own in CORE_RANK, f"{place} has no layer"
        text = path.read_text().partition("#[cfg(test)]\nmod tests")[0]
        code = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
        for used in re.findall(r"\bcrate::(\w+(?:::\w+)?)", code):
            other = core_module(used.split("::"))
            if other != own and CORE_RANK[other] >= CORE_RANK[own]:
                wrong.append(f"{place}: {own} uses {other}")
    assert wrong == []
