"""The structured log: one JSON object a line; one line for each request and for each event of the process.

Fields that are not known are left out. Numbers are JSON numbers, except costs: decimal text, exact. No line
ever holds a key, a header or any part of a prompt or a reply.
"""

import json
import os
import time
import traceback
from collections.abc import Mapping
from typing import Any, Literal

from sluicegate.telemetry.lines import LineWriter
from sluicegate.telemetry.record import RequestRecord

Level = Literal["debug", "info", "warning", "error"]

_LEVELS: Mapping[str, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# What a console shows in a way of its own.
_HEAD = frozenset({"time", "level", "event"})
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class Log:
    """The process's log. `fd` is where it goes, `console` gives plain text for people in place of JSON."""

    def __init__(self, fd: int = 1, *, level: Level = "info", console: bool = False) -> None:
        self._level = _LEVELS[level]
        self._console = console
        self._lines = LineWriter(fd)
        self._second = (-1, "")

    @classmethod
    def configured(cls, level: Level, form: Literal["auto", "json", "console"], fd: int = 1) -> "Log":
        """As the configuration says; `auto` is console on a terminal."""
        return cls(fd, level=level, console=form == "console" or (form == "auto" and os.isatty(fd)))

    @property
    def dropped(self) -> int:
        """Lines lost because nobody read them."""
        return self._lines.dropped

    def debug(self, event: str, **fields: object) -> None:
        self._event("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._event("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._event("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._event("error", event, fields)

    def request(self, record: RequestRecord) -> None:
        """The one line of a request: `info`, or `warning` where it failed."""
        level: Level = "warning" if record.result == "failed" else "info"
        if _LEVELS[level] < self._level:
            return
        line = record.line(self._now(), level)
        if self._console:
            fields = json.loads(line)
            self._write(level, "request", {name: fields[name] for name in fields if name not in _HEAD})
        else:
            self._lines.write(line)

    def close(self) -> None:
        """Write what waits. Idempotent."""
        self._lines.close()

    def _event(self, level: Level, event: str, fields: Mapping[str, object]) -> None:
        if _LEVELS[level] >= self._level:
            self._write(level, event, {name: value for name, value in fields.items() if value is not None})

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if self._console:
            pairs = " ".join(f"{name}={_plain(value)}" for name, value in fields.items())
            text = f"{self._now()[11:]} {level:7} {event} {pairs}"
        else:
            text = _encode({"time": self._now(), "level": level, "event": event, **fields})
        # A lone surrogate (from an undecodable file name, say) must not stop a line.
        self._lines.write(text.encode("utf-8", "replace") + b"\n")

    def _now(self) -> str:
        now = time.time()
        second = int(now)
        known, text = self._second
        if second != known:
            text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            # In one piece: other threads write, too.
            self._second = (second, text)
        return f"{text}.{int((now - second) * 1000):03d}Z"


def where(error: BaseException) -> str:
    """An exception's type and the place it came from; not its text, which may quote what it is about."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
    return type(error).__name__ + place


def _plain(value: object) -> str:
    text = value if isinstance(value, str) else _encode(value)
    return text if text and text.isprintable() and not set(text) & {" ", '"', "="} else _encode(text)
