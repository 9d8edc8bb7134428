"""A file system of few bytes, for tests of a full disk."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(place: Path, size: int) -> Iterator[Path]:
    """Mount a file system of `size` bytes at `place`. Skips the test where that is not allowed."""
    place.mkdir()
    if not ran("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)):
        pytest.skip("no file system can be mounted here")
    try:
        yield place
    finally:
        ran("umount", "-l", str(place))


def ran(*command: str) -> bool:
    """Whether `command` ended well. Its output is not shown."""
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    return False
