"""Times and sizes, which a file may give with a unit: `30s`, `64MiB`. A plain number counts the base unit."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

# Longer numbers are beyond every bound there is.
_NUMBER = r"[-+]?[0-9]{1,20}(?:\.[0-9]{1,9})?"
_WITH_UNIT = re.compile(rf"\s*({_NUMBER})\s*([A-Za-z]+)\s*")


Lacks = tuple["str | tuple[str | int, ...]", ...]


def fault(
    kind: str, message: str, hint: str | None, *, at: tuple[str | int, ...] = (), lacks: Lacks | None = None
) -> PydanticCustomError:
    """What a validator raises; neither text may repeat the value, which may be a secret.

    `at`: where in the section it is, for `raise_all`. `lacks`: what would have to be there for it to be none:
    members of the section, or places in the whole file. Where that has a fault of its own, only that is told.
    None: that is not known, and may be anything around the place.
    """
    # All of it rides in the context, where `config.check` finds it.
    context = {"message": message, "hint": hint, "at": at, "lacks": lacks}
    return PydanticCustomError(kind, "{message}", context)


def raise_all(title: str, faults: Iterable[PydanticCustomError]) -> None:
    """Raise them together, each at its place; for a validator. `title`: of the section."""
    details = [InitErrorDetails(type=each, loc=(each.context or {})["at"], input=None) for each in faults]
    if details:
        raise ValidationError.from_exception_data(title, details, hide_input=True)


@dataclass(frozen=True, slots=True)
class Unit:
    """What a number counts, where it takes no other unit: an annotation for the table of settings."""

    name: str


@dataclass(frozen=True, slots=True)
class Words:
    """What a value may be, where its type does not say so, and how a file has one: for the table."""

    kind: str
    spell: Callable[[Any], str]


class Quantity:
    """A number that may be written with one of several units: an annotation of a number's type.

    `units` maps each unit's name to how many of the base unit (the first one of size 1) it is. Case makes no
    difference in a file. Raises a fault for text that is neither a number nor a number with such a unit.
    """

    def __init__(self, kind: str, base: str, units: Mapping[str, str], hint: str, *, whole: bool) -> None:
        self.kind = kind
        self.base = base
        self._sizes = {name: Decimal(size) for name, size in units.items()}
        self._by_lower = {name.lower(): size for name, size in self._sizes.items()}
        self._hint = hint
        self._whole = whole

    def read(self, value: object) -> object:
        """What pydantic is to check as a number: `value`, in the base unit where it has a unit."""
        if not isinstance(value, str):
            return value
        found = _WITH_UNIT.fullmatch(value)
        size = self._by_lower.get(found[2].lower()) if found else None
        if found is None or size is None:
            try:
                float(value)
            except ValueError:
                raise fault("quantity", f"should be a {self.kind}", self._hint) from None
            return value
        amount = Decimal(found[1]) * size
        if self._whole and amount != amount.to_integral_value():
            raise fault("quantity", f"should be a whole number of {self.base}", self._hint)
        return int(amount) if self._whole else float(amount)

    def spell(self, value: float) -> str:
        """`value` in the largest unit that it is a whole number of: `16MiB`, `30s`."""
        exact = Decimal(repr(value))
        fitting = [(size, name) for name, size in self._sizes.items() if exact and exact % size == 0]
        size, name = max(fitting, default=(Decimal(1), ""))
        return f"{(exact / size).normalize():f}{name}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.read, handler(source))

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        number = handler(core)
        names = "|".join(self._sizes)
        text = {"type": "string", "pattern": rf"^\s*{_NUMBER}\s*({names})\s*$"}
        return {"anyOf": [*number.get("anyOf", [number]), text]}


TIME = Quantity(
    "time",
    "seconds",
    {"ms": "0.001", "s": "1", "m": "60", "h": "3600", "d": "86400"},
    "a number of seconds, or a number with ms, s, m, h or d: 30, 500ms, 5m",
    whole=False,
)
SIZE = Quantity(
    "size",
    "bytes",
    {
        "B": "1",
        "kB": "1000",
        "MB": "1000000",
        "GB": "1000000000",
        "TB": "1000000000000",
        "KiB": "1024",
        "MiB": "1048576",
        "GiB": "1073741824",
        "TiB": "1099511627776",
    },
    "a number of bytes, or a number with kB, MB, GB, TB, KiB, MiB, GiB or TiB: 65536, 64MiB",
    whole=True,
)
