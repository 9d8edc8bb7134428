"""All counters of one process, by what they count. For the thread that decides."""

from collections.abc import Callable, Iterable
from datetime import tzinfo
from functools import partial
from typing import Literal
from weakref import WeakValueDictionary

from sluicegate._core import Clock, Demand, Excess, Lease, Limit, Limits, Window
from sluicegate.admission.seeding import Seeding
from sluicegate.admission.users import User, Users
from sluicegate.admission.windows import CounterKey, bounds

Unavailable = Literal["unavailable"]
"""Nobody knows what is used, and then nothing is let in."""

Answer = Lease | Excess | Unavailable


class Later:
    """An answer that others have to be asked for. For the thread that decides."""

    __slots__ = ("_answer", "_tell")

    def __init__(self) -> None:
        self._answer: Answer | None = None
        self._tell: Callable[[Answer], None] | None = None

    def then(self, tell: Callable[[Answer], None]) -> None:
        """Have `tell` called with the answer, by this thread, when it is there."""
        self._tell = tell
        if self._answer is not None:
            tell(self._answer)

    def looked_at(self, look: Callable[[Answer], object]) -> "Later":
        """The same answer, which `look` is given first."""
        later = Later()

        def tell(answer: Answer) -> None:
            look(answer)
            later.answer(answer)

        self.then(tell)
        return later

    def answer(self, answer: Answer) -> None:
        """It is there."""
        self._answer = answer
        if self._tell is not None:
            self._tell(answer)


class Counters:
    """The windows of every subject that has a limit. They live as long as the process."""

    lost = False
    """Whether they are elsewhere, and not to be had. Any thread."""

    def __init__(self, zone: tzinfo) -> None:
        self.zone = zone
        self.clock = Clock(partial(bounds, zone))
        """The present, as the windows count it."""
        self._windows: dict[CounterKey, Window] = {}
        self.seeding = Seeding()
        self._users = Users(self._forget)
        self._left: WeakValueDictionary[CounterKey, Window] = WeakValueDictionary()
        """Windows of users that are forgotten, and still have requests under way."""

    def admit(self, limits: Limits, demand: Demand) -> Answer | Later:
        """Hold `demand` against `limits`, all of them or none."""
        return self._when_known(limits, demand, partial(limits.admit, demand))

    def _when_known(
        self, limits: Limits, demand: Demand, hold: Callable[[], Answer], times: int = 1
    ) -> Answer | Later:
        """What `hold` answers, once all windows have what was used before they were made. What a window does
        not have yet can only add to it: whoever is refused without that need not wait, and asks the ledger
        nothing.
        """
        if not self.seeding.lacks(limits):
            return hold()
        excess = limits.excess(demand, times)
        if excess is not None:
            return excess
        later = Later()
        if self.seeding.delays(limits, lambda: later.answer(hold())):
            return later
        return hold()

    def when_seeded(self, limits: Iterable[Limit], then: Callable[[], None]) -> None:
        """Call `then` when the windows of `limits` have what was used before they were made: now or later."""
        if not self.seeding.delays(limits, then):
            then()

    def window(self, key: CounterKey) -> Window:
        """The one window of `key`, made where there is none."""
        known = self._windows.get(key)
        if known is None:
            known = self._windows[key] = Window(self.clock, key.window)
            self.seeding.made(key, known)
        return known

    def user(self, owner: str, subject: str) -> User:
        """One of the people behind `owner`, of whom a client may make up any number: where there are too many
        the longest idle are forgotten, and what they have used is in the ledger.
        """
        return self._users.user(owner, subject)

    def keep(self, owner: str, subject: str) -> None:
        """A request of this user was let in: from now on it has a place."""
        self._users.keep(owner, subject)

    def user_window(self, owner: str, subject: str, key: CounterKey) -> Window:
        """As `window`, for one of these."""
        windows = self.user(owner, subject).windows
        known = windows.get(key)
        if known is None:
            known = self._left.pop(key, None)
            if known is None:
                known = Window(self.clock, key.window)
                self.seeding.made(key, known)
            windows[key] = known
        return known

    def _forget(self, user: User) -> None:
        # A request under way holds its windows: whoever comes back goes on with them.
        self._left.update(user.windows)
        for key in user.windows:
            self.seeding.left(key)
