"""Validation that finds every fault at once.

What concerns several settings can be looked at only where each of them is good. So what has a fault is left
out, and the rest is looked at again, until nothing more is found. A fault that may only be there because
something was left out is not told.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sluicegate.config.root import Config, discovers
from sluicegate.config.source import Place

# Each leaves more out. No file needs nearly as many.
_MOST_ROUNDS = 16
# Lists of which an entry can be left out, by how their places begin and how long they are.
_LISTS = ("keys", "callers", "passthrough")

Found = tuple[Place, ErrorDetails]


class Rounds:
    """What validation found in `data`."""

    def __init__(self, data: Any, missing: frozenset[Place]) -> None:
        """`missing`: places of variables that are not set, which have been told."""
        self.faults: list[Found] = []
        self.left_out: set[Place] = set()
        """What has a fault."""
        self.config: Config | None = None
        """Of the rest; None where that says too little."""
        self._around: set[Place] = set()
        """All places that have something in them that was left out."""
        self._shifts: dict[Place, list[int]] = {}
        """By the places of lists, for each entry that was left out, in order: its position in the rest."""
        self._data = data
        self._missing = missing
        whole = data if isinstance(data, Mapping) else {}
        named = {
            "upstreams": _names(whole.get("upstreams")),
            "models": _names(whole.get("models")),
            "lists_models": discovers(whole.get("upstreams")),
        }
        for number in range(_MOST_ROUNDS):
            rest = _without(data, self.left_out, ())
            try:
                self.config = Config.model_validate(rest, context={**named, "in_parts": number > 0})
                return
            except ValidationError as error:
                if not self._learn(error, rest):
                    return

    def _learn(self, error: ValidationError, rest: Any) -> bool:
        """Whether it has something to leave out that was there."""
        told = {(place, detail["msg"]) for place, detail in self.faults}
        leave: set[Place] = set()
        for detail in error.errors(include_url=False):
            place = self._original(_place(detail["loc"], rest))
            leave.add(self._to_leave_out(place))
            if place in self._missing or self._may_follow(place, detail) or (place, detail["msg"]) in told:
                continue
            told.add((place, detail["msg"]))
            self.faults.append((place, detail))
        more = leave - self.left_out - {()}
        self._leave_out(more)
        return bool(more)

    def _leave_out(self, places: set[Place]) -> None:
        self.left_out |= places
        self._around.update(place[:length] for place in places for length in range(len(place)))
        entries: dict[Place, list[int]] = {}
        for place in self.left_out:
            if isinstance(index := place[-1], int):
                entries.setdefault(place[:-1], []).append(index)
        self._shifts = {
            place: [index - before for before, index in enumerate(sorted(indexes))]
            for place, indexes in entries.items()
        }

    def _may_follow(self, place: Place, detail: ErrorDetails) -> bool:
        """Whether the fault may be there only because something was left out."""
        context = detail.get("ctx", {})
        section = place[: len(place) - len(context.get("at", ()))]
        if detail["type"] == "missing":
            # Of a section as it stands in the file, the first round has told this.
            wanted = [place[:-1]]
        elif (lacks := context.get("lacks")) is None:
            wanted = [place]
        else:
            wanted = [(*section, each) if isinstance(each, str) else each for each in lacks]
        return any(
            each in self._around or any(each[:length] in self.left_out for length in range(1, len(each) + 1))
            for each in wanted
        )

    def _original(self, place: Place) -> Place:
        """A place of the rest, as one of the file: entries of lists count from the first, left out or not."""
        found: Place = ()
        for step in place:
            if isinstance(step, int):
                step += bisect_right(self._shifts.get(found, ()), step)
            found = (*found, step)
        return found

    def _to_leave_out(self, place: Place) -> Place:
        """The innermost setting around `place`, or itself, without which the rest can be looked at."""
        value, known = self._data, 0
        for step in place:
            try:
                value = value[step]
            except (LookupError, TypeError):
                break
            known += 1
        # What is missing has nothing to leave out but what is around it.
        place = place[: max(known, 1)]
        while place:
            listed = isinstance(place[-1], int) and not (len(place) == 2 and place[0] in _LISTS)
            if not listed and place not in self.left_out:
                break
            place = place[:-1]
        return place


def _without(value: Any, left_out: set[Place], place: Place) -> Any:
    if not left_out:
        return value
    if isinstance(value, Mapping):
        return {
            name: _without(item, left_out, (*place, name))
            for name, item in value.items()
            if (*place, name) not in left_out
        }
    if isinstance(value, list):
        return [
            _without(item, left_out, (*place, index))
            for index, item in enumerate(value)
            if (*place, index) not in left_out
        ]
    return value


def _names(section: object) -> frozenset[str] | None:
    return frozenset(section) if isinstance(section, Mapping) and section else None


def _place(loc: tuple[str | int, ...], data: object) -> Place:
    """Where the fault is in the file: a short form has fewer steps than the model that it stands for."""
    return tuple(_steps(loc, data))


def _steps(loc: tuple[str | int, ...], data: object) -> Iterator[str | int]:
    for step in loc:
        if isinstance(data, Mapping) and isinstance(step, str):
            # `models: {tiny: {upstream: local}}` stands for a list of one route.
            if step == "routes" and "upstream" in data and step not in data:
                continue
            if step == "[key]":
                continue
            yield step
            data = data.get(step)
        elif isinstance(data, list | tuple) and isinstance(step, int):
            yield step
            data = data[step] if step < len(data) else None
        elif data is None:
            yield step
