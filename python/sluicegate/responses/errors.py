"""What can go wrong with stored responses. None of these leaves the gateway: each becomes a reply."""

from sluicegate.storage import StoreError, StoreUnavailable


class StoreBusy(StoreUnavailable):
    """The bound of bytes that may wait to be written is reached."""

    def __init__(self) -> None:
        super().__init__("as much waits to be written as may wait")


class LoadingBusy(StoreUnavailable):
    """As much is loaded as may be, by this caller or by all."""

    def __init__(self) -> None:
        super().__init__("as much is loaded as may be")


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
    """Too much background work waits, or too much of this caller's."""


class TooLong(StoreError):
    """A conversation is larger than what is put before a request."""
