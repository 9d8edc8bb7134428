"""All counters of one process, by what they count. For the thread that decides."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import tzinfo
from typing import Literal

from sluicegate.admission.limits import Demand, Excess, Lease, Limit, admit
from sluicegate.admission.windows import CounterKey, InProgress, Moment, Window, window_for

MOST_USERS = 100_000
"""Users whose counters are kept; those that have been idle longest go first."""

# Users with requests under way are passed over: this many at a time.
_LOOKED_AT = 8


Unavailable = Literal["unavailable"]
"""Nobody knows what is used, and then nothing is let in."""

Then = Callable[[Lease | Excess | Unavailable], None]


class Counters:
    """The windows of every subject that has a limit. They live as long as the process."""

    lost = False
    """Whether they are elsewhere, and not to be had. Any thread."""

    def __init__(self, zone: tzinfo) -> None:
        self.zone = zone
        self._windows: dict[CounterKey, Window] = {}
        self._users: OrderedDict[str, dict[CounterKey, Window]] = OrderedDict()

    def now(self) -> Moment:
        """The present, as the windows count it."""
        return Moment.now()

    def admit(self, limits: Sequence[Limit], demand: Demand, then: Then) -> None:
        """Hold `demand` against `limits`, all of them or none. `then` is called with the answer, now or
        later, by this thread.
        """
        clock = self.now()
        found = admit(limits, demand, clock)
        then(found if isinstance(found, Excess) else Lease(limits, found, clock, now=self.now))

    def window(self, key: CounterKey) -> Window:
        """The one window of `key`, made where there is none."""
        known = self._windows.get(key)
        if known is None:
            known = self._windows[key] = self._made(key)
        return known

    def user_window(self, user: str, key: CounterKey) -> Window:
        """As `window`, for one of many that a client may make up: the longest idle are forgotten."""
        windows = self._users.get(user)
        if windows is None:
            windows = self._users[user] = {}
            if len(self._users) > MOST_USERS:
                self._forget_one()
        else:
            self._users.move_to_end(user)
        known = windows.get(key)
        if known is None:
            known = windows[key] = self._made(key)
        return known

    def known(self, key: CounterKey) -> Window | None:
        """The window of `key`, where there is one."""
        return self._windows.get(key)

    def _forget_one(self) -> None:
        for _ in range(_LOOKED_AT):
            user, windows = next(iter(self._users.items()))
            # Whoever has a request under way would get room for it twice.
            if any(key.resource == "concurrent" and window.used for key, window in windows.items()):
                self._users.move_to_end(user)
            else:
                del self._users[user]
                return

    def _made(self, key: CounterKey) -> Window:
        return InProgress() if key.window == "" else window_for(key.window, self.zone)
