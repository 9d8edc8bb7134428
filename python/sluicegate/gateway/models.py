"""`GET /v1/models` and `GET /v1/models/{id}`: the configured models, in the shape of the client's API."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sluicegate.gateway.app_request import AppRequest
from sluicegate.gateway.errors import Form
from sluicegate.gateway.state import State
from sluicegate.routing import ModelTable

PATH = "/v1/models"

_Entry = dict[str, Any]

_JSON = ((b"content-type", b"application/json"),)


class ModelsEndpoint:
    """Both of them; ids may contain slashes (`org/model`). A client that names a version of Anthropic's API
    gets Anthropic's shape, with all models on one page.
    """

    def __init__(self, state: State) -> None:
        self._shown = state.models
        self._write()

    def _write(self) -> None:
        now = time.time()
        self._written: dict[Form, _Shape] = {
            "openai": _openai(self._shown, now),
            "anthropic": _anthropic(self._shown, now),
        }

    async def __call__(self, asked: AppRequest) -> None:
        caller = asked.authorize()
        if self._shown is not asked.serving.models:
            self._shown = asked.serving.models
            self._write()
        shape = self._written[asked.form]
        name = asked.scope["path"].removeprefix(PATH).removeprefix("/")
        if not name:
            await asked.respond(_JSON, shape.all if not caller.models else shape.of(caller.may_use))
            return
        model = asked.asked_model(caller, name)
        # What a wildcard matches is not listed.
        await asked.respond(_JSON, shape.one.get(model.asked) or shape.make(model.asked))


class _Shape:
    """The models in one API's shape, as they are sent."""

    def __init__(
        self, models: ModelTable, entry: Callable[[str], _Entry], whole: Callable[[list[_Entry]], _Entry]
    ) -> None:
        objects = [entry(model.asked) for model in models]
        # An alias is allowed where what it stands for is.
        self._named = [(model.name, made) for model, made in zip(models, objects, strict=True)]
        self.one = {entry["id"]: _dump(entry) for entry in objects}
        self.all = _dump(whole(objects))
        self._entry = entry
        self._whole = whole

    def of(self, may_use: Callable[[str], bool]) -> bytes:
        """Those that a caller may use."""
        return _dump(self._whole([entry for name, entry in self._named if may_use(name)]))

    def make(self, name: str) -> bytes:
        """One that is not among them."""
        return _dump(self._entry(name))


def _openai(models: ModelTable, now: float) -> _Shape:
    return _Shape(
        models,
        lambda name: {"id": name, "object": "model", "created": int(now), "owned_by": "sluicegate"},
        lambda objects: {"object": "list", "data": objects},
    )


def _anthropic(models: ModelTable, now: float) -> _Shape:
    created = f"{datetime.fromtimestamp(int(now), UTC):%Y-%m-%dT%H:%M:%SZ}"

    def whole(objects: list[_Entry]) -> _Entry:
        ends = {
            name: objects[index]["id"] if objects else None
            for name, index in (("first_id", 0), ("last_id", -1))
        }
        return {"data": objects, "has_more": False, **ends}

    return _Shape(
        models,
        lambda name: {"type": "model", "id": name, "display_name": name, "created_at": created},
        whole,
    )


def _dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
