"""Models: who serves them, and how they are chosen among."""

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Literal

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError

from sluicegate.config.health import RetryConfig
from sluicegate.config.policies import PolicyConfig
from sluicegate.config.quantities import fault
from sluicegate.config.section import Section
from sluicegate.config.values import Positive, RoutePart, Tier, Weight

ReplyModel = Literal["public", "upstream"]
OnClientLeave = Literal["cancel", "drain"]


def unknown_upstream(
    name: str, known: Collection[str], at: tuple[str | int, ...] = ()
) -> PydanticCustomError | None:
    """A fault where `name` is none of the upstreams `known`."""
    if name in known:
        return None
    close = get_close_matches(name, known, n=1)
    return fault(
        "unknown_upstream",
        f"names the upstream {name!r}, which is not configured",
        f"did you mean `{close[0]}`?" if close else f"configured: {', '.join(sorted(known))}",
        at=at,
        lacks=(("upstreams", name),),
    )


class RouteConfig(Section):
    """One way to serve a model. In short: `upstream`, or `upstream/model`."""

    upstream: RoutePart = Field(description="The name of an upstream.")
    model: RoutePart = Field(
        "",
        description="The upstream's name of the model; left out: the public name. Of a wildcard: with a `*`, "
        "for what the model's own stands for.",
    )
    weight: Weight = Field(
        1.0, description="What part of the requests it takes, beside the weights of the others."
    )
    tier: Tier = Field(0, description="It is used only while nothing in a lower tier can serve.")
    max_streams: Positive | None = Field(
        None, description="It is given no more requests than so many at once; null: any number."
    )
    on_client_leave: OnClientLeave | None = Field(
        None, description="As the model's setting of this name; null: what that says."
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        upstream, slash, model = value.partition("/")
        return {"upstream": upstream, "model": model} if slash else {"upstream": upstream}

    @field_validator("upstream")
    @classmethod
    def _configured(cls, upstream: str, info: ValidationInfo) -> str:
        # A check brings the names along, so that they are known even where an upstream has faults.
        known = info.context.get("upstreams") if info.context else None
        unknown = None if known is None else unknown_upstream(upstream, known)
        if unknown is not None:
            raise unknown
        return upstream

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        full = handler.resolve_ref_schema(handler(core))
        return {"anyOf": [{"type": "string", "description": "upstream, or upstream/model"}, full]}


def star_faults(models: Mapping[str, "ModelConfig"]) -> Iterator[PydanticCustomError]:
    """Where only one of a model and its route has a `*`."""
    for name, model in models.items():
        for index, route in enumerate(model.routes):
            if route.model.count("*") != name.count("*"):
                yield _star(name, route, ("models", name, "routes", index))


def _star(name: str, route: RouteConfig, at: tuple[str | int, ...]) -> PydanticCustomError:
    return fault(
        "wildcard",
        f"`{name}` is a wildcard, and its route `{route.upstream}/{route.model}` has not one `*`"
        if "*" in name
        else f"has a `*` in the route `{route.upstream}/{route.model}` of `{name}`, which is no wildcard",
        "`openai/*: hosted/*`: what the first star stands for is put in place of the second",
        at=at,
        lacks=(),
    )


class ModelConfig(Section):
    """A model that clients ask for, and who serves it. In short: its route, or a list of them."""

    routes: tuple[RouteConfig, ...] = Field(
        description="Who serves the model. Where one has failed, another is tried.",
        json_schema_extra={"minItems": 1},
    )
    policy: PolicyConfig = Field(
        PolicyConfig(), description="Which of them is next; left out: ordered, the first that can serve."
    )
    reply_model: ReplyModel = Field(
        "upstream", description="Whose name of the model the reply's `model` shows."
    )
    on_client_leave: OnClientLeave = Field(
        "cancel",
        description="When the client leaves: cancel: close the connection to the upstream; drain: read the "
        "reply to its end for its usage.",
    )

    retry: RetryConfig = Field(RetryConfig(), description="How its requests are tried again.")

    # Not `min_length`: that counts what is valid, so one bad route would also be called an empty list.
    @field_validator("routes")
    @classmethod
    def _not_empty(cls, routes: tuple[RouteConfig, ...]) -> tuple[RouteConfig, ...]:
        if not routes:
            raise fault("empty", "is empty", "a model needs at least one route")
        if all(route.tier for route in routes):
            raise fault("tier", "has no route in tier 0", "the tier that is used first is 0")
        return routes

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if isinstance(value, list | tuple):
            return {"routes": value}
        if isinstance(value, str) or (isinstance(value, Mapping) and "upstream" in value):
            return {"routes": [value]}
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        full = handler.resolve_ref_schema(handler(core))
        routes = full["properties"]["routes"]
        return {"anyOf": [routes["items"], {**routes, "title": "Routes"}, full]}


def named(name: str, route: RouteConfig) -> RouteConfig:
    """`route` of the model `name`, with a model of its own."""
    return route if route.model else route.model_copy(update={"model": name})
