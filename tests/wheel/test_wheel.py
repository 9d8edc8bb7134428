"""The wheel, as users install it: one for every CPython from 3.11; the gateway answers on each found here.

`SLUICEGATE_TEST_DIST` names the folder of the distributions; `make test-wheel` sets it.
"""

import filecmp
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
VERSIONS = ("3.11", "3.12", "3.13")
BUILD_SECONDS = 900
INSTALL_SECONDS = 300

pytestmark = pytest.mark.timeout(BUILD_SECONDS + INSTALL_SECONDS)


def run(*command: str | Path, timeout: float, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def distributions() -> Path:
    if not (folder := os.environ.get("SLUICEGATE_TEST_DIST")):
        pytest.skip("SLUICEGATE_TEST_DIST names no folder of distributions: make test-wheel")
    return Path(folder)


def interpreters(version: str) -> Iterator[Path]:
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield Path(on_path)
    yield from sorted(Path.home().glob(f".pyenv/versions/{version}*/bin/python{version}"))


def interpreter(version: str) -> Path:
    check = (
        f"import sys, venv, ensurepip; assert sys.version_info[:2] == {tuple(map(int, version.split('.')))}"
    )
    for candidate in interpreters(version):
        if subprocess.run([candidate, "-c", check], capture_output=True, timeout=30).returncode == 0:
            return candidate
    pytest.skip(f"this machine has no CPython {version}")


def test_there_is_one_wheel_for_every_supported_cpython(distributions: Path) -> None:
    wheels = list(distributions.glob("*.whl"))
    assert len(wheels) == 1
    assert "-cp311-abi3-" in wheels[0].name
    names = zipfile.ZipFile(wheels[0]).namelist()
    assert "sluicegate/_core.abi3.so" in names
    assert {"sluicegate/py.typed", "sluicegate/_core.pyi"} <= set(names)
    assert not [name for name in names if name.startswith(("tests/", "benches/", "rust/"))]


def test_the_sdist_holds_what_a_build_needs(distributions: Path, tmp_path: Path) -> None:
    maturin = Path(sys.executable).with_name("maturin")
    if not maturin.exists():
        pytest.skip("maturin is not installed beside the interpreter")
    (sdist,) = distributions.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert all((unpacked / name).is_file() for name in ("README.md", "LICENSE", "Cargo.lock"))
    tree = TARGET / "sdist"
    make_alike(tree, unpacked)
    run(
        maturin,
        "build",
        # Not `--locked`: the lock file names members of the workspace that are not distributed.
        *("--profile", "quick", "--manifest-path", tree / "rust/binding/Cargo.toml"),
        *("--interpreter", sys.executable, "--out", tmp_path / "built"),
        timeout=BUILD_SECONDS,
        CARGO_TARGET_DIR=str(TARGET),
    )
    (wheel,) = distributions.glob("*.whl")
    (built,) = (tmp_path / "built").glob("*.whl")
    assert set(zipfile.ZipFile(built).namelist()) == set(zipfile.ZipFile(wheel).namelist())


def make_alike(tree: Path, other: Path) -> None:
    """Make the files of `tree` those of `other`, and touch none that is the same already.

    Cargo compiles what has another place or another time: so it compiles what has changed since the last run.
    """
    wanted = {path.relative_to(other) for path in other.rglob("*") if path.is_file()}
    for path in tree.rglob("*"):
        if path.is_file() and path.relative_to(tree) not in wanted:
            path.unlink()
    for name in wanted:
        place = tree / name
        if not place.is_file() or not filecmp.cmp(other / name, place, shallow=False):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes((other / name).read_bytes())


@pytest.mark.parametrize("version", VERSIONS)
def test_the_installed_gateway_answers(version: str, distributions: Path, tmp_path: Path) -> None:
    binaries = tmp_path / "venv" / "bin"
    run(interpreter(version), "-m", "venv", "--without-pip", tmp_path / "venv", timeout=INSTALL_SECONDS)
    (wheel,) = distributions.glob("*.whl")
    # By the pip of this environment: to unpack one for each costs as much as what is tested.
    pip = (sys.executable, "-m", "pip", "--python", binaries / "python")
    run(*pip, "install", "--quiet", "--no-compile", wheel, timeout=INSTALL_SECONDS)
    shown = run(binaries / "sluicegate", "demo", timeout=60, NO_COLOR="1", PYTHONPATH="")
    assert "cost" in shown.lower()
