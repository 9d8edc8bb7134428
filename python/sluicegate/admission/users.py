"""The people behind callers whose windows are in memory."""

from collections import OrderedDict
from collections.abc import Callable

from sluicegate._core import Limits, Window
from sluicegate.admission.windows import CounterKey

MOST_USERS = 100_000
"""Users that have been let in, of all callers together. Past it the caller with the most loses its longest
idle one, so that each has room for its share, whatever the others do."""

MOST_TRIED = 1_000
"""Users of one caller that have been let in by nothing so far: no other user makes room for them."""


class User:
    """The windows of one of the people behind a caller, and the limits that are bound to them."""

    __slots__ = ("limits", "limits_of", "windows")

    def __init__(self) -> None:
        self.windows: dict[CounterKey, Window] = {}
        self.limits: dict[tuple[str, str, tuple[str, ...]], Limits] = {}
        """By the key, the model of requests, and the names of models whose limits hold."""
        self.limits_of = 0
        """The `Limiter` that they are of, by its number."""


class _Room:
    """What one caller has of it."""

    __slots__ = ("kept", "tried")

    def __init__(self) -> None:
        self.kept: OrderedDict[str, User] = OrderedDict()
        """Those that were let in, the longest idle first."""
        self.tried: OrderedDict[str, User] = OrderedDict()


class Users:
    """For the thread that decides."""

    def __init__(self, forgotten: Callable[[User], None]) -> None:
        """`forgotten` is given each user that has to go."""
        self._forgotten = forgotten
        self._rooms: dict[str, _Room] = {}
        self._by_size: dict[int, dict[str, None]] = {}
        """The owners of rooms, by how many users those keep."""
        self._most = 0
        """The largest of these sizes, or more."""
        self._kept = 0

    def user(self, owner: str, subject: str) -> User:
        """The one of the people behind `owner` that is called so: remembered only as one who tries, until
        `keep` says that a request of it was let in.
        """
        room = self._rooms.get(owner)
        if room is None:
            room = self._rooms[owner] = _Room()
        for known in (room.kept, room.tried):
            user = known.get(subject)
            if user is not None:
                known.move_to_end(subject)
                return user
        user = room.tried[subject] = User()
        if len(room.tried) > MOST_TRIED:
            self._forgotten(room.tried.popitem(last=False)[1])
        return user

    def keep(self, owner: str, subject: str) -> None:
        """A request of this user was let in."""
        room = self._rooms.get(owner)
        user = None if room is None else room.tried.pop(subject, None)
        if room is None or user is None:
            return
        room.kept[subject] = user
        self._resized(owner, len(room.kept) - 1, len(room.kept))
        self._kept += 1
        if self._kept > MOST_USERS:
            self._forget_one()

    def _forget_one(self) -> None:
        while not self._by_size.get(self._most):
            self._most -= 1
        owner = next(iter(self._by_size[self._most]))
        kept = self._rooms[owner].kept
        _, user = kept.popitem(last=False)
        self._resized(owner, len(kept) + 1, len(kept))
        self._kept -= 1
        self._forgotten(user)

    def _resized(self, owner: str, before: int, size: int) -> None:
        if before:
            owners = self._by_size[before]
            del owners[owner]
            if not owners:
                del self._by_size[before]
        if size:
            self._by_size.setdefault(size, {})[owner] = None
        self._most = max(self._most, size)
