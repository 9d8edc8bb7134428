"""What a release consists of: built, checked and described.

    python -m deploy.release [--output dist] [--target TRIPLE]...

Wheels for each of `TARGETS`, cross-built with zig, each for every CPython from 3.11; the source distribution;
the components of each wheel (CycloneDX); and `SHA256SUMS`. Each wheel is checked: its size, its licences, and
that it uses no symbols but those of Python's stable ABI (abi3audit) and of its platform's C library
(auditwheel). Those for this machine are installed into an environment of their own, and answer a request.

Needs rustup, and the group `release` of pyproject.toml.
"""

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_BYTES = 25 * 10**6
"""Of a wheel."""


@dataclass(frozen=True, slots=True)
class Target:
    """A platform that wheels are built for. `tag`: of wheels, without the processor."""

    triple: str
    tag: str

    @property
    def platform(self) -> str:
        return f"{self.tag}_{self.triple.partition('-')[0]}"

    @property
    def runs_here(self) -> bool:
        """Whether this machine, and this Python, can run it."""
        libc = "manylinux" if platform.libc_ver()[0] == "glibc" else "musllinux"
        return self.platform.startswith(libc) and self.platform.endswith(platform.machine())


TARGETS = tuple(
    Target(f"{processor}-unknown-linux-{libc}", tag)
    for processor in ("x86_64", "aarch64")
    for libc, tag in (("gnu", "manylinux_2_28"), ("musl", "musllinux_1_2"))
)


class Unfit(Exception):
    """Something is not as a release has to be."""


def build(target: Target, output: Path) -> Path:
    """The wheel for `target`."""
    _run("rustup", "target", "add", target.triple)
    before = set(output.glob("*.whl"))
    _run(
        "maturin", "build", "--profile", "release", "--locked", "--zig",
        "--target", target.triple, "--compatibility", target.tag, "--out", str(output),
    )  # fmt: skip
    made = {wheel for wheel in output.glob("*.whl") if target.platform in wheel.name}
    if len(made) != 1:
        raise Unfit(f"{target.triple}: no wheel for {target.platform} among {sorted(made | before)}")
    return made.pop()


def check(wheel: Path, target: Target) -> None:
    """Raises `Unfit`."""
    if "-cp311-abi3-" not in wheel.name:
        raise Unfit(f"{wheel.name}: not for every CPython from 3.11")
    size = wheel.stat().st_size
    if size > MOST_BYTES:
        raise Unfit(f"{wheel.name}: {size} bytes, and at most {MOST_BYTES} are wanted")
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in ("licenses/LICENSE", "licenses/deploy/THIRD-PARTY-LICENSES.txt", ".cyclonedx.json"):
        if not any(name.endswith(wanted) for name in names):
            raise Unfit(f"{wheel.name}: has no {wanted}")
    _run("abi3audit", "--strict", "--summary", str(wheel))
    shown = _run("auditwheel", "show", str(wheel))
    if f'"{target.platform}"' not in shown:
        raise Unfit(f"{wheel.name}: auditwheel says\n{shown}")


def try_out(wheel: Path) -> float:
    """Install it as a user would, and let its gateway answer a request. How long `--version` takes, in s."""
    with tempfile.TemporaryDirectory() as folder:
        binaries = Path(folder, "venv", "bin")
        _run(sys.executable, "-m", "venv", str(binaries.parent))
        _run(str(binaries / "python"), "-m", "pip", "install", "--quiet", str(wheel))
        environ = {**os.environ, "NO_COLOR": "1", "HOME": folder}
        _run(str(binaries / "sluicegate"), "--version", environ=environ)
        began = time.perf_counter()
        _run(str(binaries / "sluicegate"), "--version", environ=environ)
        took = time.perf_counter() - began
        shown = _run(str(binaries / "sluicegate"), "demo", environ=environ)
        if "cost" not in shown.lower():
            raise Unfit(f"{wheel.name}: the demo shows no cost:\n{shown}")
    return took


def components(wheel: Path) -> Path:
    """The list of components that the wheel has in itself, beside it."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".cyclonedx.json")]
        written = wheel.with_suffix(".cdx.json")
        written.write_bytes(archive.read(name))
    return written


def sums(files: Sequence[Path]) -> str:
    """As `sha256sum --check` reads it."""
    return "".join(
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(files)
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.release", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--target", action="append", choices=[target.triple for target in TARGETS])
    asked = parser.parse_args(arguments)
    output: Path = asked.output.resolve()
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    try:
        _run("maturin", "sdist", "--out", str(output))
        for target in TARGETS:
            if asked.target and target.triple not in asked.target:
                continue
            wheel = build(target, output)
            check(wheel, target)
            components(wheel)
            tried = f", starts in {try_out(wheel):.2f} s" if target.runs_here else ""
            _say(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB{tried}")
        files = [file for file in output.iterdir() if file.is_file()]
        Path(output, "SHA256SUMS").write_text(sums(files))
    except Unfit as unfit:
        _say(f"unfit for a release: {unfit}")
        return 1
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _run(*command: str, environ: dict[str, str] | None = None) -> str:
    """What it writes. Raises `Unfit` where it fails. Programs of this environment come first."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environ = environ or {**os.environ, "PATH": path, "VIRTUAL_ENV": str(Path(sys.executable).parents[1])}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unfit(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        )
    return done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
