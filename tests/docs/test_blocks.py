"""Every block of code in README.md and in `docs` does what its page says."""

import asyncio
import json
import shutil
import sys
import tomllib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from harness import needed
from harness.docs_stand import Stands, run, variables
from harness.markdown_blocks import (
    Block,
    all_blocks,
    console,
    missing_line,
    shell_text,
)
from sluicegate.config import check_file

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(90)]

LANGUAGES = {"yaml", "toml", "json", "python", "sh", "console", "text"}
"""`text` is output, or a format of its own: nobody can run it."""

NOT_RUN = 8
"""As many blocks at most need something that is not here: a build, another host, another program."""

# What a block that shows one section leaves out.
REST: Mapping[str, Any] = {
    "upstreams": {"local": {"base_url": "http://127.0.0.1:8000/v1"}},
    "models": {"tiny": "local"},
}

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason=needed.CURL)


def each(*languages: str, run: bool | None = None) -> pytest.MarkDecorator:
    chosen = [block for block in all_blocks(*languages) if run is None or block.not_run is not run]
    assert chosen or run is False
    return pytest.mark.parametrize("block", chosen, ids=lambda block: block.id)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stands(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stands]:
    stands = await Stands.start(tmp_path_factory.mktemp("pages"))
    yield stands
    await stands.close()


async def test_every_block_has_a_language_that_is_tested() -> None:
    assert [block.id for block in all_blocks() if block.language not in LANGUAGES] == []


async def test_few_blocks_are_not_run_and_each_says_why() -> None:
    not_run = [block for block in all_blocks() if block.not_run]
    assert [block.id for block in not_run if not block.value] == []
    assert len(not_run) <= NOT_RUN


# === formats ===


@each("yaml")
async def test_a_configuration_passes_its_check(block: Block, tmp_path: Path) -> None:
    text, shown = block.text, yaml.safe_load(block.text)
    assert isinstance(shown, dict)
    rest = {name: value for name, value in REST.items() if name not in shown}
    file = tmp_path / "gateway.yaml"
    file.write_text(text + yaml.safe_dump(rest) if rest else text)
    environ = variables(text)
    for name in environ:
        # A variable that stands for a file needs one.
        if name.endswith("_FILE"):
            environ[name] = str(tmp_path / name)
            (tmp_path / name).touch()
    report = check_file(file, environ)
    found = [str(fault) for fault in report.faults]
    if block.marker == "fault":
        assert any(str(block.value) in fault for fault in found), found
    else:
        assert found == []
        assert [str(warning) for warning in report.warnings if "serves no model" not in str(warning)] == []


@each("toml")
async def test_toml_can_be_read(block: Block) -> None:
    assert tomllib.loads(block.text)


@each("json")
async def test_json_can_be_read(block: Block) -> None:
    json.loads(block.text)


# === programs ===


@each("python", run=True)
async def test_python_runs(block: Block, stands: Stands, tmp_path: Path) -> None:
    stand = await stands.of(block.page)
    done = await run(stand, block, tmp_path, sys.executable, "-W", "error", "-c", text=block.text)
    assert done.status == 0, done.output


@needs_curl
@each("sh", "console", run=True)
async def test_a_shell_runs_it(block: Block, stands: Stands, tmp_path: Path) -> None:
    stand = await stands.of(block.page)
    text = shell_text(block)
    done = await run(stand, block, tmp_path, "bash", "-euo", "pipefail", "-c", text=text)
    assert done.status == 0, done.output
    if block.language == "console":
        wanted = [line for command in console(block) for line in command.output]
        missing = missing_line(wanted, done.output)
        assert missing is None, f"{missing!r} is not in\n{done.output}"


@each("python", "sh", "console", run=False)
async def test_what_is_not_run_is_at_least_well_formed(block: Block) -> None:
    text = shell_text(block)
    if block.language == "python":
        compile(text, block.id, "exec")
        return
    shell = await asyncio.create_subprocess_exec("bash", "-n", "-c", text)
    async with asyncio.timeout(10):
        assert await shell.wait() == 0
