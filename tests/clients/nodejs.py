"""Clients that run on Node.js: `make node-clients` installs them."""

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness import needed

DIRECTORY = Path(__file__).parent / "node"
SECONDS = 50.0
OWN = ("ANTHROPIC_", "CLAUDE", "CODEX_", "OPENAI_")
"""Beginnings of variables by which whoever runs the tests may have set up such clients for other servers."""

needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not (DIRECTORY / "node_modules").is_dir(),
    reason=needed.NODE,
)


async def run_program(
    *arguments: str,
    program: Path = Path("node"),
    directory: Path | None = None,
    seconds: float = SECONDS,
    **environ: str,
) -> tuple[int | None, str, str]:
    """`program` with these arguments: its exit code, standard output and standard error."""
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        cwd=directory,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.startswith(OWN)} | environ,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), seconds)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, out.decode(), err.decode()


async def run_script(name: str, *arguments: str) -> Any:
    """What the script `name` prints: one JSON value."""
    code, out, err = await run_program(str(DIRECTORY / name), *arguments)
    assert code == 0, f"{err[-6000:]}\n{out[-2000:]}"
    return json.loads(out)
