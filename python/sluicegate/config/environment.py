"""`${NAME}` and `${NAME:-default}` in any string of a configuration; `$${` stands for `${` itself.

The value is put in after the file was parsed, so whatever a variable holds stays one string.
"""

import re
from collections.abc import Mapping
from typing import Any

from sluicegate.config.source import Place, Source

_REFERENCE = re.compile(r"(?P<escaped>\$\$\{)|\$\{(?P<inside>[^{}]*)\}|(?P<open>\$\{)")
_INSIDE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-.*)?", re.DOTALL)


def expand(source: Source, environ: Mapping[str, str]) -> frozenset[Place]:
    """Put the variables into `source.data`. Gives the places of those that are missing, which are now faults.

    A missing one is left as it is written, so that the rest can still be checked.
    """
    missing: set[Place] = set()
    source.data = _expanded(source.data, (), source, environ, missing)
    return frozenset(missing)


def _expanded(
    value: Any, place: Place, source: Source, environ: Mapping[str, str], missing: set[Place]
) -> Any:
    if isinstance(value, Mapping):
        return {
            name: _expanded(item, (*place, name), source, environ, missing) for name, item in value.items()
        }
    if isinstance(value, list):
        return [
            _expanded(item, (*place, index), source, environ, missing) for index, item in enumerate(value)
        ]
    if not isinstance(value, str) or "${" not in value:
        return value

    def fault(message: str, hint: str, written: str) -> str:
        source.add(place, message, hint)
        missing.add(place)
        return written

    def replacement(found: re.Match[str]) -> str:
        written = found[0]
        if found["escaped"]:
            return "${"
        inside = _INSIDE.fullmatch(found["inside"] or "")
        if inside is None:
            # What stands between the braces may be a secret that was pasted there: it is not repeated.
            return fault(
                "has a reference to a variable that cannot be read",
                "write ${NAME} or ${NAME:-default}",
                written,
            )
        name, default = inside["name"], inside["default"]
        known = environ.get(name)
        if default is not None:
            return known or default.removeprefix(":-")
        if known is None:
            return fault(
                f"the environment variable {name} is not set",
                f"set it, or write ${{{name}:-default}}",
                written,
            )
        return known

    return _REFERENCE.sub(replacement, value)
