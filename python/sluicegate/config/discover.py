"""Models that an upstream lists itself."""

from typing import Any

from pydantic import Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from sluicegate.config.section import Section
from sluicegate.config.values import Patience, Seconds


class DiscoverConfig(Section):
    """How an upstream is asked for its models (`GET …/models`). In short: true."""

    interval: Patience = Field(default=30.0, description="Seconds from one list to the next.")
    stale_after: Seconds = Field(
        default=300.0, description="Its last list counts for so long while it does not answer."
    )
    include: tuple[str, ...] = Field(
        default=(), description="Patterns (`llama*`) of its models that are served; empty: all."
    )
    exclude: tuple[str, ...] = Field(default=(), description="Patterns of its models that are not served.")
    prefix: str = Field(default="", max_length=128, description="Put before each name that it lists.")

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        full = handler.resolve_ref_schema(handler(core))
        return {"anyOf": [{"type": "boolean"}, full]}


def whole_form(value: object) -> object:
    """What `discover: true` and `discover: false` stand for."""
    if value is True:
        return {}
    return None if value is False else value
