"""Rights that are to models which nobody serves."""

from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches

from sluicegate.config.names import matches, target
from sluicegate.config.root import Config

Unserved = tuple[int, str, str]
"""Which of the patterns it is, what is wrong with it, and what to do about it."""


def unserved_models(patterns: Iterable[str], config: Config) -> Iterator[Unserved]:
    """Those of `patterns`, names and starts of names (`llama-*`), that no model of `config` has. Nothing can
    be said where an upstream lists its models itself.
    """
    if any(upstream.discover is not None for upstream in config.upstreams.values()):
        return
    for index, pattern in enumerate(patterns):
        if _stands_for_one(pattern, config.models):
            continue
        if pattern in config.aliases:
            name = target(pattern, config.aliases)
            yield index, f"names `{pattern}`, an alias: rights go by the model's own name", f"name `{name}`"
            continue
        close = get_close_matches(pattern, config.models, n=1)
        hint = f"did you mean `{close[0]}`?" if close else f"served: {', '.join([*config.models][:5])}"
        yield index, f"names `{pattern}`, and no such model is served", hint


def _stands_for_one(pattern: str, models: Collection[str]) -> bool:
    """Whether it stands for a model's name, or may for one that a wildcard of `models` matches."""
    start, star, _ = pattern.partition("*")
    for name in models:
        before, wild, _ = name.partition("*")
        if wild and star:
            found = start.startswith(before) or before.startswith(start)
        elif wild:
            found = matches(name, pattern)
        else:
            found = name.startswith(start) if star else name == pattern
        if found:
            return True
    return False
