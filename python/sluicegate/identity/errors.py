"""Why a change of callers or keys is refused. The messages are for people, and hold no secret."""


class IdentityError(Exception):
    """Base of these."""


class NoSuchCaller(IdentityError):
    """Neither an id nor a name of a caller."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no caller `{name}`")


class NoSuchKey(IdentityError):
    """Neither a public id of a key nor a key itself."""

    def __init__(self, id: str = "") -> None:
        """`id`: only what can be no secret."""
        super().__init__(f"there is no key `{id}`" if id else "there is no such key here")


class Conflict(IdentityError):
    """What is there does not let this be done: a name that is taken, a key that has ended."""


class InvalidFields(IdentityError):
    """What was asked for is not valid; `faults`: one text for each reason."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("; ".join(faults))
