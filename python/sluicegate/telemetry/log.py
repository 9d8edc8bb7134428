"""The structured log: one JSON object a line; one line for each request and for each event of the process.

Fields that are not known are left out. Numbers are JSON numbers, except costs: decimal text, exact. No line
ever holds a key, a header or any part of a prompt or a reply.
"""

import json
import os
import time
import traceback
from collections.abc import Mapping
from json.encoder import encode_basestring as quoted
from typing import Any, Literal

from sluicegate.telemetry.lines import LineWriter
from sluicegate.telemetry.record import RequestRecord, Try

Level = Literal["debug", "info", "warning", "error"]

_LEVELS: Mapping[str, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
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
        members = request_members(record)
        if self._console:
            self._write(level, "request", json.loads(f"{{{members}}}"))
        else:
            head = f'{{"time":"{self._now()}","level":"{level}","event":"request",'
            self._lines.write(f"{head}{members}}}\n".encode("utf-8", "replace"))

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


def request_members(record: RequestRecord) -> str:
    """The JSON members of a request's line, without braces. Times are seconds, to the microsecond.

    Written out by hand: each request pays for it, and a dictionary through `json` takes three times as long.
    """
    text = (
        f'"request_id":{quoted(record.request_id)},"endpoint":"{record.endpoint}",'
        f'"status":{record.status},"result":"{record.result}","duration":{record.duration:.6f}'
    )
    if record.key is not None:
        text += f',"key":{quoted(record.key)}'
    if record.model:
        text += f',"model":{quoted(record.model)}'
    elif record.requested_model is not None:
        text += f',"requested_model":{quoted(record.requested_model)}'
    if record.code is not None:
        text += f',"code":{quoted(record.code)}'
    if record.path is not None:
        text += f',"path":{quoted(record.path)}'
    if record.response_id is not None:
        text += f',"response_id":{quoted(record.response_id)}'
    if record.client_left:
        text += ',"client_left":true,"stalled":true' if record.stalled else ',"client_left":true'
    return text + _attempt_members(record) if record.attempts else text


def _attempt_members(record: RequestRecord) -> str:
    text = (
        f',"upstream":{quoted(record.upstream)},"upstream_model":{quoted(record.upstream_model)},'
        f'"attempts":{record.attempts},"streamed":{"true" if record.streamed else "false"}'
    )
    if record.upstream_request_id is not None:
        text += f',"upstream_request_id":{quoted(record.upstream_request_id)}'
    if record.fault is not None:
        text += f',"fault":"{record.fault}"{_cause(record.last_failed)}'
    if len(record.tries) > 1:
        failed = [f"{attempt[0]}: {attempt[2]}" for attempt in record.failed_attempts]
        text += f',"failed_attempts":{_encode(failed)},"tries":[{",".join(map(_try, record.tries))}]'
    if record.left_out:
        text += f',"left_out":{_encode(record.left_out)}'
    if record.finish_reason is not None:
        text += f',"finish_reason":{quoted(record.finish_reason)}'
    if record.streamed:
        for name, seconds in (
            ("time_to_first_token", record.time_to_first_token),
            ("inter_token_latency", record.inter_token_latency),
            ("longest_gap", record.longest_gap),
        ):
            if seconds is not None:
                text += f',"{name}":{seconds:.6f}'
    if record.client_blocked:
        text += f',"client_blocked_seconds":{record.client_blocked:.6f}'
    if record.input_tokens is not None:
        text += f',"input_tokens":{record.input_tokens}'
    if record.cached_input_tokens is not None:
        text += f',"cached_input_tokens":{record.cached_input_tokens}'
    if record.cache_write_tokens is not None:
        text += f',"cache_write_tokens":{record.cache_write_tokens}'
    if record.output_tokens is not None:
        text += f',"output_tokens":{record.output_tokens}'
    if record.reasoning_tokens is not None:
        text += f',"reasoning_tokens":{record.reasoning_tokens}'
    if record.estimated:
        text += ',"estimated":true'
    if record.cost is not None:
        text += f',"cost":"{record.cost}"'
    if record.upstream_cost is not None:
        text += f',"upstream_cost":{quoted(record.upstream_cost)}'
    if not record.priced:
        text += ',"unpriced":true'
    if record.events:
        text += f',"events":{record.events}'
    if record.malformed:
        text += f',"malformed":{record.malformed}'
    return f'{text},"bytes_in":{record.bytes_in},"bytes_out":{record.bytes_out}'


def _cause(attempt: Try | None) -> str:
    """What the kind of a fault leaves open: the upstream's status, and why there was no connection."""
    if attempt is None:
        return ""
    _, _, kind, status, reason, *_ = attempt
    if kind == "status" and status is not None:
        return f',"fault_status":{status}'
    return f',"fault_reason":"{reason}"' if reason is not None else ""


def _try(attempt: Try) -> str:
    upstream, model, fault, status, reason, began, seconds = attempt
    text = f'{{"upstream":{quoted(upstream)},"upstream_model":{quoted(model)}'
    if fault is not None:
        text += f',"fault":"{fault}"'
    if status is not None:
        text += f',"status":{status}'
    if reason is not None:
        text += f',"reason":"{reason}"'
    return f'{text},"began":{began:.6f},"duration":{seconds:.6f}}}'
