"""One cell of the matrix: who asks, who answers, and in which form."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from matrix.replies import APIS, REPLIES, Api, Reply

UPSTREAM_MODEL = "small"


@dataclass(frozen=True, slots=True)
class Cell:
    client: Api
    upstream: Api
    client_streams: bool
    upstream_streams: bool
    reply: Reply

    @property
    def id(self) -> str:
        def side(api: Api, streams: bool) -> str:
            return f"{api} {'stream' if streams else 'whole'}"

        asked = side(self.client, self.client_streams)
        return f"{asked} over {side(self.upstream, self.upstream_streams)}: {self.reply.name}"

    @property
    def model(self) -> str:
        """The public name, by which the gateway finds an upstream with this reply."""
        return _model(self.upstream, self.upstream_streams, self.reply)


def cells() -> Iterator[Cell]:
    """All of them."""
    forms = (False, True)
    for client, upstream, reply in itertools.product(APIS, APIS, REPLIES):
        for client_streams, upstream_streams in itertools.product(forms, forms):
            yield Cell(client, upstream, client_streams, upstream_streams, reply)


CELLS = tuple(cells())


def config() -> dict[str, Any]:
    """The gateway's: an upstream for each API, form and reply, which tells the scripted one by a header."""
    upstreams: dict[str, Any] = {}
    for upstream, streams, reply in itertools.product(APIS, (False, True), REPLIES):
        upstreams[_model(upstream, streams, reply)] = {
            "api": upstream,
            "streaming": "always" if streams else "never",
            "headers": {"x-mock": json.dumps(reply.script(upstream, streams=streams))},
        }
    return {
        "upstreams": upstreams,
        "models": {name: f"{name}/{UPSTREAM_MODEL}" for name in upstreams},
    }


def _model(upstream: Api, streams: bool, reply: Reply) -> str:
    return f"{upstream}-{'always' if streams else 'never'}-{reply.name.replace(' ', '-')}"
