"""How a model's deployments are chosen among: the name of a policy, or one name with its options."""

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Literal, Self

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from sluicegate.config.own import import_own, load_own
from sluicegate.config.quantities import fault
from sluicegate.config.routing import ShownHeader
from sluicegate.config.section import Section

Load = Literal["streams", "tokens"]


class PlainConfig(Section):
    """A policy without options."""


class LeastBusyConfig(Section):
    """The deployment with the least to do."""

    by: Load = Field(
        default="streams",
        description="What counts: streams in flight, or their estimated input tokens, for very unequal "
        "prompts.",
    )


class AffinityConfig(Section):
    """The deployment that has the conversation's beginning in its cache, unless it has too much to do."""

    header: ShownHeader | None = Field(
        default=None,
        description="The client's header that names the conversation (`x-session-id`); left out, or where a "
        "request does not have it: `prompt_cache_key`, else the conversation's beginning.",
    )
    load_factor: float = Field(
        default=1.75,
        ge=1.0,
        le=100.0,
        description="How many times the mean of streams a deployment may have before a conversation goes to "
        "the next one.",
    )


class OwnPolicyConfig(Section):
    """A policy of one's own: any class with a method `rank`."""

    path: str = Field(description="`package.module:Class`, to be found by Python's own search path.")
    options: Mapping[str, Any] = Field(default={}, description="What the class is made with, by keyword.")

    def load(self) -> Callable[..., Any]:
        """The class. Raises whatever importing it raises, and `AttributeError` where it is not there."""
        found: Callable[..., Any] = load_own(self.path)
        return found

    @model_validator(mode="after")
    def _there(self) -> Self:
        found = import_own(self.path)
        if not inspect.isclass(found) or not callable(getattr(found, "rank", None)):
            raise fault(
                "policy",
                f"names `{self.path}`, which is no class with a method `rank`",
                "see docs/routing.md",
            )
        try:
            inspect.signature(found).bind(**self.options)
        except (TypeError, ValueError) as error:
            raise fault(
                "policy", f"`{self.path}` does not take these options: {error}", "see its `__init__`"
            ) from None
        return self


class PolicyConfig(Section):
    """How a model's deployments are chosen among. One of these; in short: its name alone."""

    ordered: PlainConfig | None = Field(default=None, description="As configured: the next one by a fault.")
    weighted: PlainConfig | None = Field(default=None, description="By chance, in the ratio of the weights.")
    round_robin: PlainConfig | None = Field(default=None, description="One after the other, in turn.")
    least_busy: LeastBusyConfig | None = Field(
        default=None, description="The one that has less to do for its weight."
    )
    latency: PlainConfig | None = Field(
        default=None, description="The one whose first token is likely to come sooner."
    )
    affinity: AffinityConfig | None = Field(
        default=None, description="A conversation stays where it was, within bounds of load."
    )
    own: OwnPolicyConfig | None = Field(
        default=None, description="In short: `package.module:Class`, with its options where it has some."
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if isinstance(value, str):
            value = {value: None}
        if not isinstance(value, Mapping):
            return value
        if not value:
            return value
        if len(value) != 1:
            raise fault("policy", "should be one policy", "such as `least_busy`, or {affinity: {…}}")
        [(name, options)] = value.items()
        options = {} if options is None else options
        if isinstance(name, str) and name not in cls.model_fields:
            if ":" not in name:
                known = [known for known in cls.model_fields if known != "own"]
                close = get_close_matches(name.lower(), known, n=1)
                hint = (
                    f"did you mean `{close[0]}`?"
                    if close
                    else f"known: {', '.join(known)}, `package.module:Class`"
                )
                raise fault("policy", f"names the policy {name!r}, which is not known", hint)
            return {"own": {"path": name, "options": options}}
        return {name: options}

    @property
    def name(self) -> str:
        """Of the policy; of one's own, its path."""
        if self.own is not None:
            return self.own.path
        return next((name for name in type(self).model_fields if getattr(self, name) is not None), "ordered")

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        full = handler.resolve_ref_schema(handler(core))
        return {
            "anyOf": [{"type": "string", "description": "a policy's name, or package.module:Class"}, full]
        }
