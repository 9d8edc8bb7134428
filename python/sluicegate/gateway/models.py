"""`GET /v1/models` and `GET /v1/models/{id}`: the configured models, in the shape of OpenAI's API."""

import json
import time

from sluicegate.gateway.app_request import AppRequest
from sluicegate.gateway.state import State

PATH = "/v1/models"

_JSON = ((b"content-type", b"application/json"),)


class ModelsEndpoint:
    """Both of them; ids may contain slashes (`org/model`)."""

    def __init__(self, state: State) -> None:
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

    async def __call__(self, asked: AppRequest) -> None:
        caller = asked.identify()
        if self._shown is not asked.serving.models:
            self._shown = asked.serving.models
            self._write()
        name = asked.scope["path"].removeprefix(PATH).removeprefix("/")
        if not name:
            await asked.respond(_JSON, self._all)
            return
        model = asked.asked_model(caller, name)
        await asked.respond(_JSON, self._one[model.name])


def _dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
