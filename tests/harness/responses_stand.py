"""A gateway that answers `/v1/responses` over upstreams that know only Chat Completions, seen as bytes."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from harness.responses_stream import Streamed, check
from harness.strict_openai import missing_members, validate
from harness.wire_stand import MODEL, Exchange, WireStand, wire_stand
from sluicegate.testing import Script

RESPONSES = "/v1/responses"
ALWAYS = "always"
"""The same model; its upstream is always asked to stream."""
NEVER = "never"
"""The same model; its upstream is never asked to."""
HURRIED = "hurried"
"""The same model; its upstream must not be silent between tokens for longer than `PATIENCE`."""
PATIENCE = 0.3


class ResponsesStand:
    """Requests for a response, and what came of them, checked in every promise."""

    def __init__(self, wire: WireStand) -> None:
        self.wire = wire

    async def ask(self, script: Script, **members: Any) -> Exchange:
        """One request. `members` go into its body."""
        return await self.wire.ask(script, path=RESPONSES, body=request(**members))

    async def stream(self, script: Script, **members: Any) -> Streamed:
        """A streamed response."""
        exchange = await self.ask(script, stream=True, **members)
        assert exchange.reply.status == 200, exchange.body
        assert exchange.reply.headers["content-type"].startswith("text/event-stream")
        return check(exchange.body, complete=True)

    async def whole(self, script: Script, **members: Any) -> dict[str, Any]:
        """A response that is no stream."""
        exchange = await self.ask(script, **members)
        assert exchange.reply.status == 200, exchange.body
        assert exchange.reply.headers["content-type"] == "application/json"
        response: dict[str, Any] = exchange.reply.json()
        validate(response)
        assert not missing_members(response)
        return response


def request(**members: Any) -> bytes:
    """A body."""
    return json.dumps({"model": MODEL, "input": "Say something.", **members}).encode()


@contextlib.asynccontextmanager
async def responses_stand(
    directory: Path, config: Mapping[str, Any] | None = None
) -> AsyncIterator[ResponsesStand]:
    """A stand that keeps no responses: nothing depends on what was asked before.

    `config` adds to the configuration as for `wire_stand`.
    """
    added = {"responses": {"store": False}, **(config or {})}
    upstreams = {
        "always": {"streaming": "always"},
        "never": {"streaming": "never"},
        "hurried": {"deadlines": {"between_tokens": PATIENCE}},
        **added.get("upstreams", {}),
    }
    models = {name: f"{name}/{MODEL}" for name in (ALWAYS, NEVER, HURRIED)} | added.get("models", {})
    async with wire_stand(directory, {**added, "upstreams": upstreams, "models": models}) as wire:
        yield ResponsesStand(wire)
