"""Every setting of the configuration, as its model has it: `docs/settings.md` is made of this."""

import builtins
import json
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from sluicegate.config.quantities import Quantity, Unit, Words
from sluicegate.config.root import Config
from sluicegate.config.section import Section


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `path` has `NAME` where names are the user's own, and `[]` where there is a list."""

    path: str
    type: str
    default: str | None
    """As a file would give it; None: it must be given; empty: its members have defaults of their own."""
    unit: str | None
    """What a plain number counts; None where it counts nothing but itself."""
    text: str
    section: "builtins.type[Section] | None" = None
    """Of a mapping with members that are settings; these follow it."""
    members: str = ""
    """What stands before the members' names in their paths."""


def settings(section: type[Section] = Config, path: str = "") -> Iterator[Setting]:
    """The settings of `section`, in the model's order, each followed by its members."""
    for name, info in section.model_fields.items():
        place = f"{path}.{name}" if path else name
        kind = _kind(info.annotation, info.metadata)
        inner = kind.section
        begin = place + kind.step if inner is not None else ""
        yield Setting(place, kind.name, _default(info, kind), kind.unit, info.description or "", inner, begin)
        if inner is not None:
            yield from settings(inner, begin)


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    quantity: Quantity | Words | None = None
    unit: str | None = None
    section: type[Section] | None = None
    step: str = ""
    """What a path says between the setting and the members of its section."""


_PLAIN: Mapping[type, str] = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    Decimal: "number",
    str: "text",
    SecretStr: "text (secret)",
}


def _kind(annotation: Any, metadata: list[Any]) -> _Kind:
    """What a value of this type is. Raises `TypeError` for a type that this does not know."""
    if hasattr(annotation, "__metadata__"):
        return _kind(annotation.__origin__, [*annotation.__metadata__, *metadata])
    for mark in metadata:
        if isinstance(mark, Quantity):
            return _Kind(mark.kind, mark, mark.base)
        if isinstance(mark, Words):
            return _Kind(mark.kind, mark)
        if isinstance(mark, Unit):
            return _Kind("number", unit=mark.name)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        inner = _kind(next(arg for arg in args if arg is not type(None)), [])
        return _Kind(f"{inner.name}, or null", inner.quantity, inner.unit, inner.section, inner.step)
    if origin is Literal:
        return _Kind(" or ".join((", ".join(args[:-1]), args[-1])) if len(args) > 1 else args[0])
    if origin is tuple:
        inner = _kind(args[0], [])
        name = "list of mappings" if inner.section else f"list of {inner.name}"
        return _Kind(name, section=inner.section, step=f"[]{inner.step}")
    if isinstance(origin, type) and issubclass(origin, Mapping):
        inner = _kind(args[1], [])
        name = "mapping by name" if inner.section else f"mapping of names to {inner.name}"
        return _Kind(name, section=inner.section, step=f".NAME{inner.step}")
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return _Kind("mapping", section=annotation)
    if annotation is Any:
        return _Kind("anything")
    if annotation in _PLAIN:
        return _Kind(_PLAIN[annotation])
    raise TypeError(f"no words for {annotation}")


def _default(info: FieldInfo, kind: _Kind) -> str | None:
    if info.is_required():
        return None
    if info.default_factory is not None:
        # What it gives depends on the machine; its docstring says how.
        text = (info.default_factory.__doc__ or "").partition(".")[0]
        return text[:1].lower() + text[1:]
    value = info.default
    if isinstance(value, Section):
        return ""
    if kind.quantity is not None and value is not None:
        return kind.quantity.spell(value)
    return value if isinstance(value, str) and value else json.dumps(value)
