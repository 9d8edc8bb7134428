"""Names of models: what wildcards match, and what aliases stand for."""

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches

from pydantic_core import PydanticCustomError

from sluicegate.config.quantities import fault


def matches(pattern: str, name: str) -> bool:
    """Whether `pattern`, which has one `*`, stands for `name`; the star stands for at least one character."""
    before, _, after = pattern.partition("*")
    return len(name) > len(before) + len(after) and name.startswith(before) and name.endswith(after)


def target(alias: str, aliases: Mapping[str, str]) -> str | None:
    """The name that an alias, or an alias of an alias, stands for; None where they go round in a circle."""
    passed = {alias}
    name = aliases[alias]
    while name in aliases:
        if name in passed:
            return None
        passed.add(name)
        name = aliases[name]
    return name


def alias_faults(
    aliases: Mapping[str, str], models: Collection[str], *, may_be_found: bool
) -> Iterator[PydanticCustomError]:
    """Where one of `aliases` leads nowhere. `may_be_found`: models may be listed by upstreams."""
    patterns = [name for name in models if "*" in name]
    for alias in aliases:
        at = ("aliases", alias)
        if alias in models:
            hint = "a name stands for one thing: rename one"
            yield fault("alias", "is the name of a model", hint, at=at, lacks=())
            continue
        name = target(alias, aliases)
        if name is None:
            yield fault("alias", "stands for itself", "let it stand for a model", at=at, lacks=())
            continue
        if name in models and "*" not in name:
            continue
        if may_be_found or any("*" not in name and matches(pattern, name) for pattern in patterns):
            continue
        close = get_close_matches(name, models, n=1)
        yield fault(
            "alias",
            f"stands for `{name}`, and there is no such model",
            f"did you mean `{close[0]}`?" if close else "let it stand for a model",
            at=at,
            lacks=(("models", name), ("aliases", name)),
        )
