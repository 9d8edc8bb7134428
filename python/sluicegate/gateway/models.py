"""`GET /v1/models` and `GET /v1/models/{id}`: the configured models, in the shape of OpenAI's API."""

import json
import time

from sluicegate.gateway.asgi import Receive, Scope, Send, respond
from sluicegate.gateway.errors import invalid_key, unknown_model
from sluicegate.gateway.state import State

PATH = "/v1/models"

_JSON = ((b"content-type", b"application/json"),)


class ModelsEndpoint:
    """Both of them; ids may contain slashes (`org/model`)."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._shown = state.models
        self._write()

    def _write(self) -> None:
        created = int(time.time())
        objects = [
            {"id": model.name, "object": "model", "created": created, "owned_by": "sluicegate"}
            for model in self._shown
        ]
        self._one = {entry["id"]: _dump(entry) for entry in objects}
        self._all = _dump({"object": "list", "data": objects})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        authorization = dict(scope["headers"]).get(b"authorization")
        if self._state.keys.client(authorization) is None:
            error = invalid_key(authorization is not None)
            await respond(send, error.status, error.headers, error.body)
            return
        if self._shown is not self._state.models:
            self._shown = self._state.models
            self._write()
        name = scope["path"].removeprefix(PATH).removeprefix("/")
        body = self._one.get(name) if name else self._all
        if body is None:
            error = unknown_model(name)
            await respond(send, error.status, error.headers, error.body)
            return
        await respond(send, 200, _JSON, body)


def _dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
