"""Which model a name stands for: a model's own, an alias, or what a wildcard matches."""

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class Wildcards(Generic[T]):
    """What there is by pattern; each pattern has one `*`, which stands for at least one character.

    The longest pattern that matches is found by looking up the beginnings that a name has, not by going
    through the patterns: the cost is bounded by the lengths that patterns have, whatever their number."""

    __slots__ = ("_beginnings", "_by_beginning")

    def __init__(self, patterns: Mapping[str, T]) -> None:
        self._by_beginning: dict[str, tuple[list[int], dict[str, T]]] = {}
        """By what stands before the star: the lengths of what may stand behind it, the longest first, and
        what there is by that."""
        for pattern, value in patterns.items():
            before, _, after = pattern.partition("*")
            self._by_beginning.setdefault(before, ([], {}))[1][after] = value
        for lengths, ends in self._by_beginning.values():
            lengths += sorted({len(after) for after in ends}, reverse=True)
        self._beginnings = _lengths(self._by_beginning)

    def find(self, name: str) -> tuple[T, str] | None:
        """What the longest pattern that matches stands for, and what its star stands for in `name`."""
        found: tuple[T, str] | None = None
        longest = -1
        for length in self._beginnings:
            if length >= len(name):
                continue
            entry = self._by_beginning.get(name[:length])
            if entry is None:
                continue
            lengths, ends = entry
            for after in lengths:
                if length + after <= longest:
                    break
                if length + after >= len(name):
                    continue
                value = ends.get(name[len(name) - after :])
                if value is not None:
                    found, longest = (value, name[length : len(name) - after]), length + after
                    break
        return found


def _lengths(texts: Iterable[str]) -> list[int]:
    return sorted({len(text) for text in texts}, reverse=True)
