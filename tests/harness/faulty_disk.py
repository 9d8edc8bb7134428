"""A disk below a gateway's journal that is slow, fails when it is told to, and loses power."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from harness import needed

_SOURCE = Path(__file__).with_suffix(".c")


class FaultyDisk:
    """For a gateway that is started with `environ`. Skips the test where there is no C compiler."""

    def __init__(self, directory: Path) -> None:
        compiler = shutil.which("cc") or needed.lacking(needed.COMPILER)
        self._folder = directory / "disk"
        self._folder.mkdir()
        library = self._folder / "faulty_disk.so"
        options = ("-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-ldl")
        subprocess.run([compiler, *options, "-o", str(library), str(_SOURCE)], check=True, timeout=60)
        self.environ: Mapping[str, str] = {"LD_PRELOAD": str(library), "FAULTY_DISK": str(self._folder)}

    def break_down(self) -> None:
        """Nothing can be written from here on."""
        (self._folder / "broken").touch()

    def mend(self) -> None:
        (self._folder / "broken").unlink()

    def lose_power(self, files: Path) -> None:
        """The gateway is gone: leave of the files in a folder what had been written to the disk."""
        for path in files.iterdir():
            about = path.stat()
            written = self._folder / str(about.st_ino)
            found = written.read_bytes() if written.exists() else b""
            path.write_bytes(found.ljust(about.st_size, b"\0"))
