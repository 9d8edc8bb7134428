"""What a release is checked for before anybody gets it."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from deploy import licenses, release
from deploy.release import TARGETS, Target, Unfit

LINUX = TARGETS[0]
NAMES = (
    "sluicegate-1.dist-info/licenses/LICENSE",
    "sluicegate-1.dist-info/licenses/deploy/THIRD-PARTY-LICENSES.txt",
    "sluicegate-1.dist-info/sboms/sluicegate-binding.cyclonedx.json",
)


def wheel(folder: Path, *names: str, tag: str = "cp311-abi3") -> Path:
    made = folder / f"sluicegate-1-{tag}-{LINUX.platform}.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for name in names:
            archive.writestr(name, name)
    return made


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that were asked; all of them are content."""
    asked: list[str] = []

    def run(*command: str, environ: dict[str, str] | None = None) -> str:
        asked.append(command[0])
        return f'consistent with the following platform tag: "{LINUX.platform}"'

    monkeypatch.setattr(release, "_run", run)
    return asked


def test_the_platforms_are_those_that_pip_knows() -> None:
    assert [target.platform for target in TARGETS] == [
        "manylinux_2_28_x86_64", "musllinux_1_2_x86_64", "manylinux_2_28_aarch64", "musllinux_1_2_aarch64",
    ]  # fmt: skip


def test_a_wheel_that_has_all_of_it_is_fit(tmp_path: Path, tools: list[str]) -> None:
    release.check(wheel(tmp_path, *NAMES), LINUX)
    assert tools == ["abi3audit", "auditwheel"]


@pytest.mark.parametrize("missing", NAMES)
def test_one_without_its_licences_or_components_is_not(
    tmp_path: Path, tools: list[str], missing: str
) -> None:
    with pytest.raises(Unfit, match="has no"):
        release.check(wheel(tmp_path, *(name for name in NAMES if name != missing)), LINUX)


def test_nor_is_one_for_another_python_or_platform_or_a_large_one(
    tmp_path: Path, tools: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unfit, match="CPython"):
        release.check(wheel(tmp_path, *NAMES, tag="cp312-cp312"), LINUX)
    other = Target("x86_64-unknown-linux-gnu", "manylinux_2_17")
    with pytest.raises(Unfit, match="auditwheel"):
        release.check(wheel(tmp_path, *NAMES), other)
    monkeypatch.setattr(release, "MOST_BYTES", 100)
    with pytest.raises(Unfit, match="at most 100"):
        release.check(wheel(tmp_path, *NAMES), LINUX)


def test_the_sums_are_what_sha256sum_reads(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).write_text(name)
    text = release.sums(list(tmp_path.iterdir()))
    (tmp_path / "SHA256SUMS").write_text(text)
    done = subprocess.run(
        ["sha256sum", "--check", "SHA256SUMS"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "a: OK\nb: OK\n")


def test_components_lie_beside_their_wheel(tmp_path: Path) -> None:
    made = wheel(tmp_path, *NAMES)
    assert release.components(made).read_text() == NAMES[2]
    assert release.components(made).name == f"{made.stem}.cdx.json"


def test_the_licences_of_all_that_is_compiled_in_are_there() -> None:
    """Made anew by `python -m deploy.licenses`."""
    done = subprocess.run(
        [sys.executable, "-m", "deploy.licenses", "--check"],
        cwd=licenses.ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    text = licenses.FILE.read_text()
    for name in ("mimalloc", "ring", "simd-json", "zstd-sys"):
        assert f"  {name} " in text
    assert "Microsoft Corporation, Daan Leijen" in text, "of the C sources that a package brings"
