"""What replies say, in each protocol: read from their bytes, so that nothing of a client's stands between."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import httpx

from real.server import Api
from real.stand import CACHED_INPUT, INPUT, OUTPUT


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens: `cached` ones are among the `input`."""

    input: int
    cached: int
    output: int

    @property
    def cost(self) -> Decimal:
        """USD, exactly."""
        full = (self.input - self.cached) * INPUT + self.cached * CACHED_INPUT + self.output * OUTPUT
        return full / 1_000_000


def question(api: Api, text: str, *, max_tokens: int = 100) -> dict[str, Any]:
    """A request's members but the model."""
    asked = [{"role": "user", "content": text}]
    if api == "responses":
        return {"input": text, "temperature": 0, "max_output_tokens": max_tokens, "store": False}
    return {"messages": asked, "temperature": 0, "max_tokens": max_tokens}


def payloads(text: str) -> Iterator[dict[str, Any]]:
    """The JSON of each event of a stream, whatever it is called."""
    for line in text.splitlines():
        data = line.removeprefix("data:").strip()
        if data != line.strip() and data != "[DONE]":
            yield json.loads(data)


def usage_of(api: Api, reply: httpx.Response) -> dict[str, Any] | None:
    """The usage object of a reply, streamed or not."""
    if not reply.headers["content-type"].startswith("text/event-stream"):
        found: dict[str, Any] | None = reply.json().get("usage")
        return found
    return _last_usage(api, payloads(reply.text))


def _last_usage(api: Api, events: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    usage: dict[str, Any] | None = None
    for event in events:
        places = (event, event.get("response") or {}, event.get("message") or {})
        for found in (place.get("usage") for place in places):
            if found and api == "messages":
                # The first event has the input, the last one the output.
                usage = {**(usage or {}), **found}
            elif found:
                usage = found
    return usage


def counts(api: Api, usage: dict[str, Any]) -> Counts:
    """Of a usage object."""
    if api == "messages":
        cached = usage.get("cache_read_input_tokens") or 0
        written = usage.get("cache_creation_input_tokens") or 0
        return Counts(usage["input_tokens"] + cached + written, cached, usage["output_tokens"])
    names = (
        ("input_tokens", "output_tokens") if api == "responses" else ("prompt_tokens", "completion_tokens")
    )
    details = usage.get(f"{names[0]}_details") or {}
    return Counts(usage[names[0]], details.get("cached_tokens") or 0, usage[names[1]])
