"""The licences of all Rust packages that are compiled into the wheels.

    python -m deploy.licenses            write deploy/THIRD-PARTY-LICENSES.txt
    python -m deploy.licenses --check    say whether that file is up to date; 1 where it is not

Texts are those that come with each package, C sources that it brings along included. Needs cargo.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FILE = ROOT / "deploy" / "THIRD-PARTY-LICENSES.txt"
PLATFORMS = (
    "x86_64-unknown-linux-gnu",
    "aarch64-unknown-linux-gnu",
    "x86_64-unknown-linux-musl",
    "aarch64-unknown-linux-musl",
    "x86_64-apple-darwin",
    "aarch64-apple-darwin",
)
EXTENSION = "sluicegate-binding"
_TEXT = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)\b.*", re.IGNORECASE)
# Of tests, benchmarks and documentation, whose texts concern nothing that is compiled.
_ELSEWHERE = {"tests", "test", "benches", "examples", "doc", "docs", "corpus", "fuzz"}


def packages() -> list[dict[str, Any]]:
    """Cargo's descriptions of the packages, sorted; those of this project are left out."""
    platforms = [word for each in PLATFORMS for word in ("--filter-platform", each)]
    command = ["cargo", "metadata", "--format-version", "1", "--locked", *platforms]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    metadata = json.loads(said)
    by_id = {each["id"]: each for each in metadata["packages"]}
    nodes = {each["id"]: each for each in metadata["resolve"]["nodes"]}
    [first] = [id for id, each in by_id.items() if each["name"] == EXTENSION]
    linked, waiting = {first}, [first]
    while waiting:
        for dependency in nodes[waiting.pop()]["deps"]:
            if dependency["pkg"] not in linked and _is_linked(dependency):
                linked.add(dependency["pkg"])
                waiting.append(dependency["pkg"])
    found = [by_id[id] for id in linked if by_id[id]["source"] is not None]
    return sorted(found, key=lambda each: (each["name"], each["version"]))


def _is_linked(dependency: Mapping[str, Any]) -> bool:
    """Not where it is for tests or for build scripts alone."""
    return any(kind["kind"] is None for kind in dependency["dep_kinds"])


def texts(package: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and texts of the licences that lie in the package."""
    folder = Path(package["manifest_path"]).parent
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if _TEXT.fullmatch(path.name) and path.is_file() and _ELSEWHERE.isdisjoint(inside.parts[:-1]):
            text = path.read_text(errors="replace").strip()
            if text and path.suffix not in (".rs", ".c", ".h", ".py", ".toml"):
                yield inside.as_posix(), text


def document() -> str:
    """The whole file: which package is under which licence, and each text once, with those that bring it."""
    table: list[str] = []
    # The same but for line ends is the same.
    brought: dict[str, tuple[str, list[str]]] = {}
    for package in packages():
        name = f"{package['name']} {package['version']}"
        files = dict(texts(package))
        told = package["license"] or "see its text"
        table.append(f"  {name}: {told}" + ("" if files else " (its package has no text)"))
        for file, text in files.items():
            _, owners = brought.setdefault(" ".join(text.split()), (text, []))
            owners.append(f"{name} ({file})")
    parts = ["The Rust packages that are compiled into sluicegate, and their licences.", "\n".join(table)]
    for text, owners in sorted(brought.values(), key=lambda each: each[1]):
        parts.append("\n".join(["=" * 100, *(f"Of {owner}:" for owner in owners), "", text]))
    return "\n\n".join(parts) + "\n"


def main(arguments: list[str]) -> int:
    made = document()
    if arguments == ["--check"]:
        if FILE.exists() and FILE.read_text() == made:
            return 0
        print(f"{FILE.relative_to(ROOT)} is not up to date: python -m deploy.licenses", file=sys.stderr)
        return 1
    FILE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
