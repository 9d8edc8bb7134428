"""What can go wrong with stored responses. None of these leaves the gateway: each becomes a reply."""


class StoreError(Exception):
    """Base of what is raised here."""


class StoreUnavailable(StoreError):
    """The store cannot be read or written: a full disk, a read-only file, a database that is down."""


class StoreBusy(StoreUnavailable):
    """The bound of bytes that may wait to be written is reached."""

    def __init__(self) -> None:
        super().__init__("as much waits to be written as may wait")


class Unstorable(StoreUnavailable):
    """What was to be written is at fault and not the store: it is refused as often as it is tried."""


class Contended(StoreUnavailable):
    """The database gave this transaction up for the sake of others: tried again, it may go through."""


class StoreTooNew(StoreUnavailable):
    """The store was written by a later version of sluicegate, whose tables this one does not know."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(f"the store has version {found}, this program knows {known}")


class Fenced(StoreError):
    """Another process has taken the response over, or it was ended or deleted."""


class NotFound(StoreError):
    """There is no such response, or it belongs to another caller. `id` is what was looked for.

    `known`: there is, or was, one; this caller must not be told so, nor must anybody else be asked for it.
    """

    def __init__(self, id: str, *, known: bool = False) -> None:
        super().__init__(id)
        self.id = id
        self.known = known


class NotFinished(StoreError):
    """The response is still queued or in progress."""

    def __init__(self, id: str, status: str) -> None:
        super().__init__(id, status)
        self.id = id
        self.status = status


class QueueFull(StoreError):
    """Too much background work waits."""


class TooLong(StoreError):
    """A conversation is larger than what is put before a request."""
