"""The pages for people: their width, their links, and what some of them promise."""

import re
from pathlib import Path

import pytest

from harness.markdown_blocks import blocks
from harness.tree import ROOT, tracked

MAX_WIDTH = 120
README_LINES = 150
RECIPE_LINES = 12
# A program writes them: one wide table after the other.
WRITTEN_BY_PROGRAMS = ("benches/load/results", "docs/profiles.md", "docs/settings.md")
# Everybody writes into it at once: it is brought into shape with a release.
ANY_WIDTH = {"CHANGELOG.md"}

_URL = re.compile(r"https?://")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<inline>[^)\s]+)\)|^\[[^\]]+\]: (?P<defined>\S+)", re.MULTILINE)
_IMAGE = re.compile(r"!\[[^\]]*\]\((?P<file>[^)\s]+)\)")
_NAMED = re.compile(r"\[[^\]]*\]\[(?P<name>[^\]]+)\]")
_DEFINED = re.compile(r"^\[(?P<name>[^\]]+)\]: ", re.MULTILINE)
_PATH = re.compile(r"`(?P<path>(?:rust|python|tests|docs|benches)/[\w./-]+)`")


def pages() -> list[Path]:
    found = [
        path for path in tracked("*.md") if not str(path.relative_to(ROOT)).startswith(WRITTEN_BY_PROGRAMS)
    ]
    assert {path.name for path in found} >= {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "vllm.md"}
    return found


each_page = pytest.mark.parametrize("page", pages(), ids=lambda path: str(path.relative_to(ROOT)))


@each_page
def test_lines_are_not_too_wide(page: Path) -> None:
    """Only a table's row or a link's target may be, because of an address that cannot be broken."""
    if page.name in ANY_WIDTH:
        return
    wide = [
        number
        for number, line in enumerate(page.read_text().splitlines(), start=1)
        if len(line) > MAX_WIDTH and not (line.startswith(("|", "[")) and _URL.search(line))
    ]
    assert wide == []


def anchors(page: Path) -> set[str]:
    """The anchors of its headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    targets = [found["inline"] or found["defined"] for found in _LINK.finditer(text)]
    targets += [found["file"] for found in _IMAGE.finditer(text)]
    broken = []
    for target in targets:
        if _URL.match(target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []
    named = {found["name"] for found in _NAMED.finditer(text)}
    assert named - {found["name"] for found in _DEFINED.finditer(text)} == set()


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES


def test_every_page_of_the_documentation_is_in_its_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / found["inline"]).resolve() for found in _LINK.finditer(index.read_text())}
    assert {path for path in tracked("docs/*.md") if path != index} <= linked


def test_the_files_that_a_change_touches_are_there() -> None:
    page = ROOT / "docs" / "changing-sluicegate.md"
    named = {found["path"] for found in _PATH.finditer(page.read_text())}
    assert len(named) > 20
    assert {path for path in named if "NAME" not in path and not (ROOT / path).exists()} == set()


@pytest.mark.parametrize("page", tracked("docs/recipes/*.md"), ids=lambda path: path.stem)
def test_a_recipe_has_all_its_parts(page: Path) -> None:
    text = page.read_text()
    for part in ("**Client.**", "**Proof.**", "**What does not work**"):
        assert part in text
    shown = [block for block in blocks(page) if block.script is not None]
    assert len(shown) == 1
    assert len(shown[0].text.splitlines()) <= RECIPE_LINES
    assert any(block.language == "console" and not block.not_run for block in blocks(page))
