"""How limits stand, for people: worked out in short steps, so that no request waits for it."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from sluicegate._core import Limit
from sluicegate.admission import Caller, Standing, Steps, add_reserved, standing
from sluicegate.gateway.decisions import Decider
from sluicegate.gateway.state import State

_CALLERS_AT_ONCE = 10
_LEASES_AT_ONCE = 500

_PATIENCE_SECONDS = 6.0
"""With a ledger that says nothing in that time, what is known without it is shown."""

_ALL_KEYS = " "
"""With this begin the places of what holds for all keys."""

_T = TypeVar("_T")


async def standings(
    state: State, decider: Decider, name: str, user: str | None, first: str, most: int
) -> list[tuple[str, list[Standing]]]:
    """Of whoever has this id, or else this name: the limits that hold for all keys, and those that hold for
    one, by their place in the order of all of them; at most `most` from `first` on. Those of `user`, where
    one is named, in place of all others. On the event loop.
    """
    admission = state.serving.admission
    found = await _in_turns(admission.keys.of_caller(name, first, most))
    if user is not None:
        # They hold whatever the key.
        found = [each for each in found if each[0].startswith(_ALL_KEYS)]
    # Windows are one where several callers have them: a key is shown what is its own.
    shared: set[int] = set()
    limits: list[tuple[str, list[Limit]]] = []

    def look(callers: Sequence[tuple[str, Caller]]) -> None:
        for place, caller in callers:
            own = [each for each in admission.limits([caller], user) if id(each.window) not in shared]
            limits.append((place, own))
            shared.update(id(each.window) for each in own)

    if found and not found[0][0].startswith(_ALL_KEYS):
        # What holds for all keys was on a page before.
        await decider.ask(partial(look, await _in_turns(admission.keys.of_caller(name, "", 1))))
        limits.clear()
    for start in range(0, len(found), _CALLERS_AT_ONCE):
        await decider.ask(partial(look, found[start : start + _CALLERS_AT_ONCE]))
    # Nobody may have asked for anything since the start: what was used before is in the ledger.
    every = [each for _, several in limits for each in several]

    def seed(tell: Callable[[None], None]) -> None:
        admission.when_seeded(every, lambda: tell(None))

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await decider.hear(seed)
    reserved = {id(each.window): 0 for _, several in limits for each in several}
    under_way = iter(await decider.ask(lambda: decider.under_way))
    while leases := list(islice(under_way, _LEASES_AT_ONCE)):
        await decider.ask(partial(add_reserved, reserved, leases))
    stand: list[tuple[str, list[Standing]]] = []
    for start in range(0, len(limits), _CALLERS_AT_ONCE):
        stand += await decider.ask(partial(_stand, limits[start : start + _CALLERS_AT_ONCE], reserved))
    return stand


def _stand(
    limits: Sequence[tuple[str, list[Limit]]], reserved: Mapping[int, int]
) -> list[tuple[str, list[Standing]]]:
    return [(place, standing(several, reserved)) for place, several in limits]


async def _in_turns(steps: Steps[_T]) -> _T:
    """What `steps` come to; whoever else has something to do on the event loop does it in between."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: _T = ended.value
            return result
        await asyncio.sleep(0)
