"""The page of the documentation that says how real servers did, of which each run writes one row."""

import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Self

from real.server import Server

_HEAD = """\
# Servers that the gateway was tried with

`make real-NAME` (the names are in the table) installs a server into an environment of its own below
`.real`, starts it on 127.0.0.1 with a model of two dozen words, puts the gateway before it, checks what is
listed here, and writes its row of this page. The checks are in `tests/real`:

- the packages of OpenAI and Anthropic get the model's very words, whole and streamed, for Chat Completions,
  Responses and Messages over each API that the server has, and go through a tool loop where it parses calls;
- the tokens in the log and in the reply are the server's own, and the cost is exactly theirs;
- what the server refuses is refused with its status, in the client's protocol;
- a client that leaves in the middle is recorded as such, and the server serves the next one;
- the server is killed in the middle of streams: each client hears of it in its own protocol, and the next
  request is a 502 at once.

| server | version | tried | its APIs | checks | right |
| --- | --- | --- | --- | ---: | ---: |
{rows}

## What they do otherwise

What is known of these servers, and what becomes of it.
{deviations}"""

_ROW = re.compile(r"^\| `real-(?P<name>[a-z-]+)` .*\|$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Row:
    """One server's line of the table, as text."""

    name: str
    text: str

    @classmethod
    def of(cls, server: Server, version: str, day: date, checks: int, right: int) -> Self:
        apis = ", ".join(server.apis)
        cells = (f"`real-{server.name}`", f"{server.package} {version}", day.isoformat(), apis, checks, right)
        return cls(server.name, f"| {' | '.join(map(str, cells))} |")


def page(servers: Iterable[Server], before: str, new: Row) -> str:
    """The whole file: `new` in place of its server's row in `before`, the other rows as they are there."""
    rows = {match["name"]: match[0] for match in _ROW.finditer(before)} | {new.name: new.text}
    known = list(servers)
    return _HEAD.format(
        rows="\n".join(rows[server.name] for server in known if server.name in rows),
        deviations="".join(_deviations(server) for server in known if server.deviations),
    )


def _deviations(server: Server) -> str:
    lines = "".join(f"{_wrapped(text)}\n" for text in server.deviations)
    return f"\n### {server.title}\n\n{lines}"


def _wrapped(text: str) -> str:
    return textwrap.fill(
        text, 120, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
