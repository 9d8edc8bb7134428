"""Every test belongs to a stage of `make test`."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = sorted({path.relative_to(ROOT).parts[1] for path in (ROOT / "tests").glob("*/**/test_*.py")})


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_of_tests_is_run(folder: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    stages = re.findall(r"^STAGES = (.+)$", makefile, re.MULTILINE)[0].split()
    recipes = dict(re.findall(r"^(test-[a-z0-9]+):.*\n((?:\t.*\n)+)", makefile, re.MULTILINE))
    assert set(stages) == recipes.keys()
    if folder == "soak":
        # All of it is for a quiet machine.
        assert re.search(r"pytest -m alone tests$", recipes["test-alone"], re.MULTILINE)
    else:
        assert any(f"tests/{folder}" in recipe for recipe in recipes.values())
