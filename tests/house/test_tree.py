"""What looks at all files looks at those that git tracks, and at nothing that lies beside them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.tree import ROOT, tracked

PLACES = (".venv-other/lib", "foreign", "benches", "docs", "python/sluicegate", "rust/core/src", "tests")
"""Where something foreign may lie: beside the folders of the project, and in them."""

BAD_FILES = {
    "README.md": f"# Wide\n\n{'wide ' * 50}\n\n[nowhere](nowhere.md)\n\n```nonsense\nnever closed\n",
    "utils.py": "import sluicegate.cli\n" + "x  =  (1\n" * 700,
    "__init__.py": "__all__ = ['Config', 'Config', 'load_file']\n__version__ = '9'\nSERVER = 'uvicorn'\n",
    "stub.pyi": "def  broken(:\n",
    "test_foreign.py": "import pytest\n\n@pytest.mark." + "alone\ndef test_foreign():\n    assert False\n",
    "wide.rs": f"// {'wide ' * 50}\nfn  main( ) {{}}\n" + "\n" * 700,
    "Cargo.toml": '[package]\nname = "foreign"\nversion = "9.9.9"\n',
    "foreign.sse": "data: {\n\n",
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The tree as it is now, in a repository of its own, with foreign files in and beside it."""
    for path in tracked():
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    for command in ("init", "add --all"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    for place in PLACES:
        folder = tmp_path / place / "foreign"
        folder.mkdir(parents=True)
        for name, text in BAD_FILES.items():
            (folder / name).write_text(text)
    return tmp_path


def test_foreign_files_disturb_nothing(copy: Path) -> None:
    pytest_command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    _passes(copy, *pytest_command, "tests/house", "tests/docs", "-k", "(house and not foreign) or language")
    _passes(copy, "make", "lint", f"BIN={Path(sys.executable).parent}")


def _passes(tree: Path, *command: str) -> None:
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "SLUICEGATE_", "MAKE"))
    }
    done = subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
