"""The wheel, as users install it: one for every CPython from 3.11; the gateway answers on each found here.

`SLUICEGATE_TEST_DIST` names the folder of the distributions; `make test-wheel` sets it.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import needed

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.11", "3.12", "3.13")
LATER = VERSIONS[1:]
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
    pytest.skip(f"{needed.MISSING}CPython {version}: uv python install {version}, or pyenv install {version}")


def test_there_is_one_wheel_for_every_supported_cpython(distributions: Path) -> None:
    wheels = list(distributions.glob("*.whl"))
    assert len(wheels) == 1
    assert "-cp311-abi3-" in wheels[0].name
    names = zipfile.ZipFile(wheels[0]).namelist()
    assert "sluicegate/_core.abi3.so" in names
    assert {"sluicegate/py.typed", "sluicegate/_core.pyi", "sluicegate/profiles/groq.yaml"} <= set(names)
    assert {"sluicegate/admission/take.lua", "sluicegate/admission/settle.lua"} <= set(names)
    assert not [name for name in names if name.startswith(("tests/", "benches/", "rust/"))]


def test_the_sdist_holds_what_a_build_needs(distributions: Path, tmp_path: Path) -> None:
    maturin = Path(sys.executable).with_name("maturin")
    if not maturin.exists():
        pytest.skip("maturin is not installed beside the interpreter")
    (sdist,) = distributions.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        archive.extractall(tmp_path, filter="data")
    assert {"README.md", "LICENSE", "Cargo.lock"} <= names
    (tree,) = tmp_path.iterdir()
    run(
        maturin,
        "build",
        # Not `--locked`: the lock file names members of the workspace that are not distributed.
        *("--profile", "quick", "--manifest-path", tree / "rust/binding/Cargo.toml"),
        *("--interpreter", sys.executable, "--out", tmp_path / "built"),
        timeout=BUILD_SECONDS,
        # What the wheel was built from is not compiled a second time: these files have times of long ago.
        CARGO_TARGET_DIR=os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target")),
    )
    (wheel,) = distributions.glob("*.whl")
    (built,) = (tmp_path / "built").glob("*.whl")
    assert set(zipfile.ZipFile(built).namelist()) == set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(version, marks=pytest.mark.nightly) if version in LATER else version
        for version in VERSIONS
    ],
)
def test_the_installed_gateway_answers(version: str, distributions: Path, tmp_path: Path) -> None:
    binaries = tmp_path / "venv" / "bin"
    run(interpreter(version), "-m", "venv", "--without-pip", tmp_path / "venv", timeout=INSTALL_SECONDS)
    (wheel,) = distributions.glob("*.whl")
    # By the pip of this environment: to unpack one for each costs as much as what is tested.
    pip = (sys.executable, "-m", "pip", "--python", binaries / "python")
    run(*pip, "install", "--quiet", "--no-compile", wheel, timeout=INSTALL_SECONDS)
    shown = run(binaries / "sluicegate", "demo", timeout=60, NO_COLOR="1", PYTHONPATH="")
    assert "cost" in shown.lower()
