"""What was used of a window before it was made, as the ledger has it."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain, islice, zip_longest
from typing import Protocol

from sluicegate._core import Limit, Window
from sluicegate.admission.windows import CounterKey, owner_of

MOST_AT_ONCE = 1000
"""Windows that the ledger is asked about together."""

RETRY_SECONDS = 5.0
"""After which a ledger that did not answer is asked again."""

Recalled = Mapping[tuple[CounterKey, float], int]
"""How much was used, by what counts it and when that was: seconds since 1970; 0 in windows of a calendar."""


class AskLedger(Protocol):
    """Asks what was used of these windows, `after` so many seconds, and has `then` called later, by the
    thread that decides; None: the ledger cannot be read.
    """

    def __call__(
        self, keys: Collection[CounterKey], after: float, then: Callable[[Recalled | None], None]
    ) -> object: ...


class Seeding:
    """The windows that do not have yet what was used before they were made. For the thread that decides.

    A request that is to be held against such a window waits until the ledger has said what that is. Where the
    ledger cannot be read, requests are held against what this process has counted, and none waits, until it
    can be: it is asked again and again.
    """

    def __init__(self) -> None:
        self.ask: AskLedger | None = None
        """None: nothing was used before."""
        self._new: dict[CounterKey, Window] = {}
        self._asking = False
        self._lost = False
        self._waiting: list[tuple[list[CounterKey], Callable[[], None]]] = []
        self._awaited: Counter[CounterKey] = Counter()
        """How many of these wait for a window."""

    def made(self, key: CounterKey, window: Window) -> None:
        """This window was made just now."""
        if self.ask is not None and key.window:
            self._new[key] = window

    def known(self, key: CounterKey) -> None:
        """The window of `key` has what was used from elsewhere."""
        self._new.pop(key, None)

    def left(self, key: CounterKey) -> None:
        """Its user is forgotten: nobody needs to know it, but those who wait for it."""
        if not self._awaited[key]:
            self._new.pop(key, None)

    def delays(self, limits: Iterable[Limit], then: Callable[[], None]) -> bool:
        """Whether a window of `limits` has to be waited for; then `then` is called later."""
        keys = self._unknown(limits)
        if not keys:
            return False
        if self._lost:
            self._begin()
            return False
        self._waiting.append((keys, then))
        self._awaited.update(keys)
        self._begin()
        return True

    def lacks(self, limits: Iterable[Limit]) -> bool:
        """Whether it is not known yet what was used of a window of `limits`."""
        return bool(self._unknown(limits))

    def _unknown(self, limits: Iterable[Limit]) -> list[CounterKey]:
        return [limit.key for limit in limits if limit.key in self._new] if self._new else []

    def _begin(self, after: float = 0.0) -> None:
        if self.ask is None or self._asking:
            return
        asked = {key: self._new[key] for key in islice(self._next(), MOST_AT_ONCE)}
        if not asked:
            return
        self._asking = True

        def told(found: Recalled | None) -> None:
            self._asking = False
            self._lost = found is None
            if found is not None:
                self._raise(asked, found)
            self._go_on()
            self._begin(RETRY_SECONDS if self._lost else 0.0)

        self.ask(asked.keys(), after, told)

    def _next(self) -> Iterable[CounterKey]:
        """What the ledger is asked about: windows that somebody waits for, those of each owner in turn, since
        one may have made up any number of users. All of them where nobody waits, since it cannot be read.
        """
        if self._lost:
            return [*self._new]
        by_owner: dict[str, list[CounterKey]] = {}
        for key in self._awaited:
            if key in self._new:
                by_owner.setdefault(owner_of(key.subject), []).append(key)
        return filter(None, chain.from_iterable(zip_longest(*by_owner.values())))

    def _raise(self, asked: Mapping[CounterKey, Window], found: Recalled) -> None:
        sums: dict[tuple[CounterKey, int], int] = {}
        for (key, at), amount in found.items():
            place = asked[key].recall(at)
            if place is not None:
                sums[key, place] = amount + sums.get((key, place), 0)
        for (key, place), amount in sums.items():
            asked[key].raise_to(place, amount)
        for key, window in asked.items():
            # It may have been forgotten meanwhile, and made again.
            if self._new.get(key) is window:
                del self._new[key]

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for keys, then in waiting:
            if self._lost or not any(key in self._new for key in keys):
                self._awaited -= Counter(keys)
                then()
            else:
                self._waiting.append((keys, then))
