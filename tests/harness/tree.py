"""The files of the project: those that git tracks. Whatever else lies in the folder is somebody else's."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def tracked(*patterns: str) -> list[Path]:
    """The tracked files that match one of git's `patterns` (`*.md`, `docs`, `python/*.py`), sorted.

    A `*` of these matches `/` as well. Without patterns: all files. A file that was deleted and is still
    tracked is left out.
    """
    command = ["git", "ls-files", "-z", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60)
    found = sorted({ROOT / name for name in listed.stdout.split("\0") if name})
    return [path for path in found if path.exists()]
