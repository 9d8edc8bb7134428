"""What can go wrong with a database. None of these leaves the gateway."""


class StoreError(Exception):
    """Base of what is raised by whatever keeps something."""


class StoreUnavailable(StoreError):
    """The database cannot be read or written: a full disk, a read-only file, a server that is down."""


class Unstorable(StoreUnavailable):
    """What was to be written is at fault and not the database: it is refused as often as it is tried."""


class Contended(StoreUnavailable):
    """The database gave this transaction up for the sake of others: tried again, it may go through."""


class StoreTooNew(StoreUnavailable):
    """The tables were written by a later version of sluicegate, whose form this one does not know."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(f"the store has version {found}, this program knows {known}")
