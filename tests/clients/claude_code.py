"""Claude Code, in a home of its own, with a gateway as its only API."""

import json
from pathlib import Path
from typing import Any

from clients.nodejs import DIRECTORY, run_program

PROGRAM = DIRECTORY / "node_modules" / ".bin" / "claude"
COMMAND_TOOL = "Bash"
COMMAND = "echo harbour"
SAID_BY_COMMAND = "harbour"

_QUIET = {
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
}


async def run_claude_code(
    base_url: str,
    key: str,
    model: str,
    prompt: str,
    directory: Path,
    seconds: float,
    *,
    succeeds: bool = True,
) -> list[dict[str, Any]]:
    """The events that it prints. It may run `COMMAND`, in a folder of its own in `directory`.

    `base_url`: without `/v1`. `succeeds`: whether its exit status must be zero, or must not.
    """
    home, work = directory / "home", directory / "work"
    home.mkdir(exist_ok=True)
    work.mkdir(exist_ok=True)
    code, out, err = await run_program(
        "-p", prompt, "--output-format", "stream-json", "--verbose",
        "--allowedTools", f"{COMMAND_TOOL}(echo:*)",
        program=PROGRAM, directory=work, seconds=seconds,
        HOME=str(home), ANTHROPIC_BASE_URL=base_url, ANTHROPIC_AUTH_TOKEN=key,
        ANTHROPIC_MODEL=model, ANTHROPIC_DEFAULT_HAIKU_MODEL=model, **_QUIET,
    )  # fmt: skip
    assert (code == 0) is succeeds, f"{err[-3000:]}\n{out[-3000:]}"
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def blocks(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """All content blocks of a type (`tool_use`, `tool_result`, `text`) in its messages, in order."""
    messages = [event["message"] for event in events if event["type"] in ("assistant", "user")]
    return [block for message in messages for block in message["content"] if block["type"] == kind]
