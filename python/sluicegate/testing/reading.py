"""A script from JSON. Strict: a misspelt field is an error that names it, never a field ignored."""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from sluicegate.errors import Error
from sluicegate.testing.dialects import DIALECTS, DialectName
from sluicegate.testing.script import Script, Step

T = TypeVar("T")


class ScriptError(Error, ValueError):
    """A script that cannot be read: which field, and what it should be."""


def script_from_json(text: str | bytes, base: Script | None = None) -> Script:
    """The script that a JSON object describes. Fields it leaves out are those of `base`.

    Raises ScriptError.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ScriptError(f"script: not JSON: {error}") from error
    return script_from(value, base)


def script_from(value: object, base: Script | None = None) -> Script:
    """As `script_from_json`, from what a JSON parser makes of it.

    `usage`, `framing` and `traits` are merged with the base's own, member by member; `traits` with those of
    the dialect. A byte step is a string (sent as UTF-8) or `{"base64": …}`; `{"do": "reset"}` is an action.
    """
    base = base or Script()
    if isinstance(value, Mapping) and "traits" in value and value["traits"] is not None:
        name = value.get("dialect", base.dialect)
        if name not in get_args(DialectName):
            raise _wrong("script.dialect", DialectName, name)
        traits = base.traits if base.traits is not None and "dialect" not in value else DIALECTS[name]
        merged = _merged(traits, value["traits"], "script.traits")
        base = replace(base, traits=merged)
        value = {key: member for key, member in value.items() if key != "traits"}
    elif isinstance(value, Mapping) and "dialect" in value:
        base = replace(base, traits=None)
    return _merged(base, value, "script")


_hints: Callable[[Any], dict[str, Any]] = cache(get_type_hints)


def _merged(base: T, value: object, path: str) -> T:
    if not isinstance(value, Mapping):
        raise ScriptError(f"{path}: should be an object, not {_shown(value)}")
    hints = _hints(type(base))
    changes: dict[str, Any] = {}
    for name, member in value.items():
        if name not in hints:
            raise ScriptError(f"{path}.{name}: no such field; there are {', '.join(sorted(hints))}")
        inner = getattr(base, name)
        if is_dataclass(inner) and isinstance(member, Mapping):
            changes[name] = _merged(inner, member, f"{path}.{name}")
        else:
            changes[name] = _read(hints[name], member, f"{path}.{name}")
    return replace(base, **changes)  # type: ignore[type-var]


def _read(kind: Any, value: object, path: str) -> Any:
    if kind is Any:
        return value
    if kind == Step:
        return _step(value, path)
    if is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, Mapping):
            raise ScriptError(f"{path}: should be an object, not {_shown(value)}")
        required = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
        missing = [name for name in required if name not in value]
        if missing:
            raise ScriptError(f"{path}: {' and '.join(missing)} must be given")
        first = {name: _read(_hints(kind)[name], value[name], f"{path}.{name}") for name in required}
        return _merged(kind(**first), value, path)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _read_union(arguments, value, path)
    if origin is Literal:
        if value not in arguments or not isinstance(value, str):
            raise _wrong(path, kind, value)
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ScriptError(f"{path}: should be a list, not {_shown(value)}")
        return tuple(_read(arguments[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise ScriptError(f"{path}: should be an object, not {_shown(value)}")
        return {str(key): _read(arguments[1], member, f"{path}.{key}") for key, member in value.items()}
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return _not_negative(float(value), value, path)
    if kind is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if kind in (bool, str) and isinstance(value, kind):
        return value
    raise _wrong(path, kind, value)


def _read_union(arguments: tuple[Any, ...], value: object, path: str) -> Any:
    if value is None and NoneType in arguments:
        return None
    rest = [argument for argument in arguments if argument is not NoneType]
    for argument in rest[:-1]:
        try:
            return _read(argument, value, path)
        except ScriptError:
            continue
    return _read(rest[-1], value, path)


def _step(value: object, path: str) -> Step:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _not_negative(float(value), value, path)
    match value:
        case {"do": "close"}:
            return "close"
        case {"do": "reset"}:
            return "reset"
        case {"do": "stall"}:
            return "stall"
        case {"base64": str(text)}:
            try:
                return base64.b64decode(text, validate=True)
            except binascii.Error as error:
                raise ScriptError(f"{path}.base64: {error}") from error
    raise ScriptError(
        f'{path}: should be a string, a number of seconds, {{"base64": …}} or {{"do": "close"}} (or "reset", '
        f'"stall"), not {_shown(value)}'
    )


def _not_negative(number: float, value: object, path: str) -> float:
    if not 0 <= number < float("inf"):
        raise ScriptError(f"{path}: should be seconds, not {_shown(value)}")
    return number


def _wrong(path: str, kind: Any, value: object) -> ScriptError:
    if get_origin(kind) is Literal:
        wanted = f"one of {', '.join(map(str, get_args(kind)))}"
    else:
        names = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
        wanted = names.get(kind, str(kind))
    return ScriptError(f"{path}: should be {wanted}, not {_shown(value)}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
