"""Events to bytes: server-sent events with all the liberties that upstreams take, or JSON lines."""

import json
from collections.abc import Mapping
from typing import Any

from sluicegate.testing.reply import Event
from sluicegate.testing.script import Script

_LINE_ENDINGS = {"lf": "\n", "crlf": "\r\n", "cr": "\r"}
BOM = b"\xef\xbb\xbf"


class Encoder:
    """Writes a script's events."""

    def __init__(self, script: Script, *, ndjson: bool) -> None:
        framing, traits = script.framing, script.wire
        self._ndjson = ndjson
        self._framing = framing
        self._eol = _LINE_ENDINGS[framing.line_ending or traits.line_ending]
        self._colon = ": " if framing.space_after_colon else ":"
        trailing = traits.trailing_space if framing.trailing_space is None else framing.trailing_space
        self._trail = " " if trailing else ""
        self._json = json.JSONEncoder(
            ensure_ascii=framing.ensure_ascii,
            separators=(", ", ": ") if framing.json_spaces else (",", ":"),
        ).encode

    def json(self, value: Mapping[str, Any]) -> str:
        return self._json(value)

    def event(self, event: Event, *, last: bool = False) -> bytes:
        """One event, its blank line included unless it is the last and the script leaves that one out."""
        text = event.data if isinstance(event.data, str) else self._json(event.data)
        if self._ndjson:
            return f"{text}\n".encode()
        lines = [] if event.name is None else [f"event{self._colon}{event.name}"]
        lines += self._framing.extra_lines
        lines += [f"{event.field}{self._colon}{part}{self._trail}" for part in self._parts(event, text)]
        blank = "" if last and not self._framing.final_blank_line else self._eol
        return "".join(f"{line}{self._eol}" for line in lines).encode() + blank.encode()

    def keepalive(self) -> bytes:
        """A keep-alive; in JSON lines an empty line."""
        if self._ndjson:
            return b"\n"
        lines = self._framing.keepalive.split("\n")
        return ("".join(f"{line}{self._eol}" for line in lines) + self._eol).encode()

    def comment(self, text: str) -> bytes:
        return b"" if self._ndjson else f": {text}{self._eol}{self._eol}".encode()

    def _parts(self, event: Event, text: str) -> list[str]:
        count = self._framing.data_lines
        if count < 2 or isinstance(event.data, str):
            return text.split("\n")
        # Breaks stand between JSON tokens, where the LF that joins data lines is only white space.
        lines = [line.strip() for line in json.dumps(event.data, indent=0, ensure_ascii=False).split("\n")]
        size = -(-len(lines) // count)
        return ["".join(lines[i : i + size]) for i in range(0, len(lines), size)]


def done_markers(script: Script, api: str) -> int:
    """How many `[DONE]` events end the stream."""
    if script.framing.done_markers is not None:
        return script.framing.done_markers
    if api in ("messages", "ollama", "speech", "transcriptions", "translations", "images", "image_edits"):
        return 0
    return 1 if script.wire.done else 0
