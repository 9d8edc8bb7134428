"""The fenced blocks of the documentation, and what the pages say about how they are to be tested.

A page may say three things, each in an HTML comment on the line before a block:

- `<!-- gateway -->` before a YAML block: the shell and Python blocks of this page talk to a gateway with this
  configuration. `<!-- gateway: {"dialect": "vllm"} -->` also says how the scripted upstream behind it replies
  (the fields of `sluicegate.testing.Script`).
- `<!-- fault: TEXT -->` before a YAML block: its check must find a fault whose message contains this text.
- `<!-- not run: REASON -->` before any block: it is checked for its syntax only.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.tree import ROOT, tracked

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,})(?P<language>[\w+-]*)\s*$")
_MARKER = re.compile(r"^ *<!-- (?P<name>gateway|fault|not run)(?:: (?P<value>.*?))? -->\s*$")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block. `line` is that of its first line of text."""

    page: Path
    line: int
    language: str
    text: str
    marker: str | None = None
    value: str | None = None
    """What the marker says after its colon."""

    @property
    def id(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def not_run(self) -> bool:
        return self.marker == "not run"

    @property
    def script(self) -> dict[str, Any] | None:
        """For a block that configures its page's gateway: the fields of the upstream's script."""
        if self.marker != "gateway":
            return None
        fields = json.loads(self.value or "{}")
        assert isinstance(fields, dict)
        return fields


def pages() -> list[Path]:
    """README.md and all of `docs`, in a fixed order."""
    return tracked("README.md", "docs/*.md")


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of `page`. Raises AssertionError for a fence that is never closed."""
    lines = page.read_text().splitlines()
    number = 0
    while number < len(lines):
        opened = _FENCE.match(lines[number])
        number += 1
        if opened is None:
            continue
        begun = number
        closing = opened["indent"] + opened["fence"]
        while number < len(lines) and lines[number].rstrip() != closing:
            number += 1
        assert number < len(lines), f"{page}:{begun}: the block is never closed"
        said = _MARKER.match(lines[begun - 2]) if begun >= 2 else None
        yield Block(
            page,
            begun + 1,
            opened["language"],
            "".join(f"{line.removeprefix(opened['indent'])}\n" for line in lines[begun:number]),
            said["name"] if said else None,
            said["value"] if said else None,
        )
        number += 1


def all_blocks(*languages: str) -> list[Block]:
    """Every block in one of `languages`; without any, every block."""
    found = [block for page in pages() for block in blocks(page)]
    return [block for block in found if not languages or block.language in languages]


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a console block, and the lines that it is said to print."""

    text: str
    output: tuple[str, ...]


def console(block: Block) -> list[Command]:
    """What a console block shows: commands after `$ ` (and `> ` where they go on), then their output."""
    commands: list[tuple[list[str], list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            commands.append(([line[2:]], []))
        elif line.startswith("> ") and commands and not commands[-1][1]:
            commands[-1][0].append(line[2:])
        else:
            assert commands, f"{block.id}: output before the first command"
            commands[-1][1].append(line)
    return [Command("\n".join(text), tuple(output)) for text, output in commands]


def shell_text(block: Block) -> str:
    """The commands of a shell or console block, as one script."""
    if block.language == "console":
        return "".join(f"{command.text}\n" for command in console(block))
    return block.text


def missing_line(wanted: list[str], printed: str) -> str | None:
    """The first of `wanted` that does not stand in `printed` after those before it; `…` stands for anything.

    Lines that nobody asked for may stand between them.
    """
    lines = iter(printed.splitlines())
    for line in wanted:
        parts = [re.escape(part) for part in line.rstrip().split("…")]
        pattern = re.compile(".*".join(parts))
        if not any(pattern.fullmatch(printed_line.rstrip()) for printed_line in lines):
            return line
    return None
