"""All counters of one process, by what they count. For the thread that decides."""

from collections import OrderedDict
from collections.abc import Callable
from datetime import tzinfo
from functools import partial
from typing import Literal

from sluicegate._core import Clock, Demand, Excess, Lease, Limits, Window
from sluicegate.admission.windows import CounterKey, bounds

MOST_USERS = 100_000
"""Users whose counters are kept; those that have been idle longest go first."""

# Users with requests under way are passed over: this many at a time.
_LOOKED_AT = 8


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

    def answer(self, answer: Answer) -> None:
        """It is there."""
        self._answer = answer
        if self._tell is not None:
            self._tell(answer)


class User:
    """The windows of one of the people behind a caller, and the limits that are bound to them."""

    __slots__ = ("limits", "limits_of", "windows")

    def __init__(self) -> None:
        self.windows: dict[CounterKey, Window] = {}
        self.limits: dict[tuple[str, str], Limits] = {}
        """By the key and the model of requests."""
        self.limits_of = 0
        """The `Limiter` that they are of, by its number."""


class Counters:
    """The windows of every subject that has a limit. They live as long as the process."""

    lost = False
    """Whether they are elsewhere, and not to be had. Any thread."""

    def __init__(self, zone: tzinfo) -> None:
        self.zone = zone
        self.clock = Clock(partial(bounds, zone))
        """The present, as the windows count it."""
        self._windows: dict[CounterKey, Window] = {}
        self._users: OrderedDict[str, User] = OrderedDict()

    def admit(self, limits: Limits, demand: Demand) -> Answer | Later:
        """Hold `demand` against `limits`, all of them or none."""
        return limits.admit(demand)

    def window(self, key: CounterKey) -> Window:
        """The one window of `key`, made where there is none."""
        known = self._windows.get(key)
        if known is None:
            known = self._windows[key] = Window(self.clock, key.window)
        return known

    def user(self, subject: str) -> User:
        """One of many that a client may make up: the longest idle are forgotten."""
        user = self._users.get(subject)
        if user is None:
            user = self._users[subject] = User()
            if len(self._users) > MOST_USERS:
                self._forget_one()
        else:
            self._users.move_to_end(subject)
        return user

    def user_window(self, subject: str, key: CounterKey) -> Window:
        """As `window`, for one of these."""
        windows = self.user(subject).windows
        known = windows.get(key)
        if known is None:
            known = windows[key] = Window(self.clock, key.window)
        return known

    def windows_of(self, subject: str) -> dict[CounterKey, Window]:
        """Those of one of these, as they are now; nobody is remembered for being asked about."""
        user = self._users.get(subject)
        return {} if user is None else {**user.windows}

    def known(self, key: CounterKey) -> Window | None:
        """The window of `key`, where there is one."""
        return self._windows.get(key)

    def _forget_one(self) -> None:
        for _ in range(_LOOKED_AT):
            subject, user = next(iter(self._users.items()))
            # Whoever has a request under way would get room for it twice.
            if any(key.resource == "concurrent" and window.used for key, window in user.windows.items()):
                self._users.move_to_end(subject)
            else:
                del self._users[subject]
                return
