"""How much whoever calls may use."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from sluicegate.config.quantities import Words, fault
from sluicegate.config.section import Section
from sluicegate.config.values import Name, Positive

Window = Literal["minute", "hour", "day", "week", "month"]

_WINDOWS = get_args(Window)
_RATE = re.compile(r"\s*([0-9]{1,16}(?:\.[0-9]{1,6})?)([kMG]?)\s*/\s*([a-z]{1,10})\s*")
_SIZES = {"": 1, "k": 1000, "M": 1000**2, "G": 1000**3}
_MOST = 10**15


@dataclass(frozen=True, slots=True)
class Rate:
    """So much in a window: `600/minute`, `20M/day`."""

    amount: Decimal
    window: Window

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            _rate, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "pattern": rf"^\s*[0-9]+(\.[0-9]+)?[kMG]?\s*/\s*({'|'.join(_WINDOWS)})\s*$"}

    def __str__(self) -> str:
        return f"{self.amount.normalize():f}/{self.window}"


def _rate(value: object) -> Rate:
    if isinstance(value, Rate):
        return value
    found = _RATE.fullmatch(value) if isinstance(value, str) else None
    if found is None or found[3] not in _WINDOWS:
        raise fault(
            "rate",
            "is not an amount in a window",
            f"such as 600/minute, 400k/minute, 20M/day; windows: {', '.join(_WINDOWS)}",
        )
    amount = Decimal(found[1]) * _SIZES[found[2]]
    if not 0 < amount <= _MOST:
        raise fault("rate", f"should be more than 0 and at most {_MOST}", "write it as digits")
    return Rate(amount, found[3])  # type: ignore[arg-type]


def _several(value: object) -> object:
    return value if isinstance(value, list | tuple) else (value,)


def _windows_once(rates: tuple[Rate, ...]) -> tuple[Rate, ...]:
    if len({rate.window for rate in rates}) != len(rates):
        raise fault("rate", "has two amounts for one window", "keep the smaller one")
    return rates


def _whole(rates: tuple[Rate, ...]) -> tuple[Rate, ...]:
    if any(rate.amount != rate.amount.to_integral_value() for rate in rates):
        raise fault("rate", "should be a whole number", "requests and tokens are not divided")
    return rates


_WORDS = Words("rate, or list of rates", lambda rates: ", ".join(map(str, rates)) or "none")
_Rates = Annotated[tuple[Rate, ...], BeforeValidator(_several), AfterValidator(_windows_once)]
WholeRates = Annotated[_Rates, AfterValidator(_whole), _WORDS]
CostRates = Annotated[_Rates, _WORDS]


class Amounts(Section):
    """How much may be used. What is left out has no limit."""

    requests: WholeRates = Field(default=(), description="How many requests: `600/minute`.")
    tokens: WholeRates = Field(
        default=(), description="Tokens, of input and output together: `[400k/minute, 20M/day]`."
    )
    cost: CostRates = Field(default=(), description="What they may cost, in USD: `[25/day, 400/month]`.")
    concurrent: Positive | None = Field(default=None, description="Requests under way at once.")


class LimitSet(Amounts):
    """How much a caller, a key, a team or a user may use.

    Minutes and hours slide; days, weeks (from Monday) and months are the calendar's.
    """

    models: Mapping[Name, Amounts] = Field(
        default={}, description="Beside these, for one model each, by its public name."
    )
    reserve: Literal["likely", "maximum"] = Field(
        default="likely",
        description="How much output a request is held against before it runs. likely: twice what such "
        "requests use on average; maximum: the client's own bound.",
    )
    unpriced: Literal["allow", "refuse"] = Field(
        default="allow",
        description="Whether a limit of cost lets requests pass to models whose price is not known.",
    )
