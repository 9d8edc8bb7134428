"""A parser of event streams written from the standard (WHATWG HTML, 9.2.6), slowly and plainly."""

import json
import re
from dataclasses import dataclass
from typing import Any


@dataclass
class ServerSentEvent:
    data: str
    name: str = ""

    def json(self) -> Any:
        return json.loads(self.data)


def parse(stream: bytes) -> list[ServerSentEvent]:
    """The events that a browser would dispatch; one that the stream ends within is dropped, as it says."""
    text = stream.decode().removeprefix("\ufeff")
    lines = re.split(r"\r\n|\n|\r", text)
    events: list[ServerSentEvent] = []
    data: list[str] = []
    name = ""
    # What stands after the last line ending is no line.
    for line in lines[:-1]:
        if line == "":
            if data:
                events.append(ServerSentEvent("\n".join(data), name))
            data, name = [], ""
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
    return events


def comments(stream: bytes) -> list[str]:
    return [line[1:].lstrip() for line in re.split(r"\r\n|\n|\r", stream.decode()) if line.startswith(":")]


def payloads(stream: bytes) -> list[Any]:
    """The JSON of each event but `[DONE]`."""
    return [event.json() for event in parse(stream) if event.data != "[DONE]"]
