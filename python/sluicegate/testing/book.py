"""The scripted upstream's own book: a line for each request, to hold a gateway's ledger against."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sluicegate.testing.records import Record
from sluicegate.testing.reply import Document, Stream


class Book:
    """JSON lines, each written when its request is over, however that ended."""

    def __init__(self, path: str | Path) -> None:
        """What is in the file stays. Raises OSError where there can be no such file."""
        self._path = Path(path)
        self._path.touch()

    def enter(self, record: Record, reply: object) -> None:
        """`reply`: what was to be sent. Health checks and lists of models are no requests of anybody."""
        if record.method != "POST":
            return
        usage, tokens = _sent(record, reply)
        line = {
            "request_id": record.header("x-request-id"),
            "path": record.path,
            "status": record.status,
            "complete": record.complete,
            "client_left": record.client_left,
            "tokens_sent": tokens,
            "usage": usage,
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _sent(record: Record, reply: object) -> tuple[object, int]:
    """The last usage object that was written, and how many events with output."""
    if isinstance(reply, Document):
        return (_usage(reply.value) if record.events_sent else None), 0
    if not isinstance(reply, Stream):
        return None, 0
    sent = reply.events[: record.events_sent]
    tokens = sum(event.kind == "token" for event in sent)
    usages = [_usage(event.data) for event in sent if not isinstance(event.data, str)]
    return next((usage for usage in reversed(usages) if usage is not None), None), tokens


def _usage(data: Mapping[str, Any]) -> object:
    for place in (data, data.get("response"), data.get("message")):
        if isinstance(place, Mapping) and place.get("usage") is not None:
            found: object = place["usage"]
            return found
    return None
