"""Whoever sent a request, and what is allowed to them."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from sluicegate.config import LimitSet


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever sent a request, by the key that came with it."""

    name: str | None
    """For logs and metrics; None where no key is needed."""
    owner: str = ""
    """Whose responses it stores and reads, and by what its limits are kept: empty where no key is needed,
    otherwise `id:` and the caller's id, or `key:` and what is made of a key that is a caller by itself. Never
    a name: another caller may have that next year."""
    key_id: str = ""
    """Of the key, and no secret."""
    team: str | None = None
    models: tuple[tuple[str, ...], ...] = ()
    """Of the caller and of its key, each: one of these names, or starts of names (`llama-*`), must match."""
    endpoints: tuple[frozenset[str], ...] = ()
    expires: float | None = None
    """Seconds since 1970, UTC."""
    disabled: bool = False
    limits: tuple[tuple[str, str, LimitSet], ...] = field(default=(), compare=False)
    """The subject of each limit, who that is for people, and the limits."""

    def may_use(self, model: str) -> bool:
        """Whether a model is allowed to it."""
        return all(any(_matches(model, pattern) for pattern in patterns) for patterns in self.models)

    def may_call(self, endpoint: str) -> bool:
        """Whether an endpoint is allowed to it."""
        return all(endpoint in endpoints for endpoints in self.endpoints)


ANYONE = Caller(None)

Gone = Literal["missing_key", "unknown_key", "revoked_key", "removed_key"]
"""What has become of the key of what is done without a request. missing: there never was one, and one is
needed now; unknown: nobody can tell yet, since the database of keys has not been read; removed: it is not in
the configuration any more, or its caller is not."""


class Holder(NamedTuple):
    """Whose work it is that is done without a request of its own."""

    caller: Caller
    """As much of it as is known, for the record, where the key is `gone`."""
    gone: Gone | None = None


def _matches(model: str, pattern: str) -> bool:
    return model.startswith(pattern[:-1]) if pattern.endswith("*") else model == pattern
