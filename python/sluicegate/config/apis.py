"""Which of the three interfaces for conversations an upstream has."""

from difflib import get_close_matches
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from sluicegate.config.quantities import Words, fault

ApiName = Literal["chat", "responses", "messages"]

_ALONE = (*get_args(ApiName), "both")


def spelled(apis: tuple[ApiName, ...]) -> str:
    """As a file would have it, in the shortest form."""
    if apis == ("chat", "responses"):
        return "both"
    return apis[0] if len(apis) == 1 else f"[{', '.join(apis)}]"


def _listed(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value not in _ALONE:
        close = get_close_matches(value.lower(), _ALONE, n=1, cutoff=0.7)
        raise fault(
            "api",
            "should be 'chat', 'responses', 'messages', 'both' or a list",
            f"did you mean `{close[0]}`?" if close else "a list has some of the first three",
        )
    return ("chat", "responses") if value == "both" else (value,)


def _each_once(apis: tuple[ApiName, ...]) -> tuple[ApiName, ...]:
    if not apis:
        raise fault("api", "is empty", "a server has at least one of chat, responses and messages")
    if len(set(apis)) != len(apis):
        raise fault("api", "names one interface twice", "keep one")
    return apis


Apis = Annotated[
    tuple[ApiName, ...],
    BeforeValidator(_listed),
    AfterValidator(_each_once),
    Words("chat, responses, messages, both, or a list of the first three", spelled),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "enum": [*_ALONE]},
                {
                    "type": "array",
                    "items": {"type": "string", "enum": [*get_args(ApiName)]},
                    "minItems": 1,
                    "uniqueItems": True,
                },
                {"type": "string", "pattern": r"\$\{"},
            ]
        }
    ),
]
"""In the order of preference: a request of another interface is translated to the first."""
