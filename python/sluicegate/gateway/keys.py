"""Which caller has which key."""

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sluicegate.config import KeyConfig


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever sent a request."""

    name: str | None
    """Of its key, for logs and metrics; None where none is needed."""
    owner: str = ""
    """Whose responses it stores and reads: empty where no key is needed, otherwise `id:` and the id that is
    configured for the key, or `key:` and what is made of the key. Never its name: another caller may have
    that next year."""


ANYONE = Caller(None)


class Keyring:
    """The configured keys. Only their digests are kept, so no dump of the process's objects shows one."""

    def __init__(self, keys: Iterable[KeyConfig]) -> None:
        # Each with the digest itself, since a dictionary's own comparison ends at the first difference.
        self._callers: dict[bytes, tuple[bytes, Caller]] = {}
        self._by_owner: dict[str, Caller] = {}
        for key in keys:
            digest = _digest(key.key.get_secret_value().encode())
            caller = Caller(key.name, _owner(key.id, digest))
            self._callers[digest] = digest, caller
            self._by_owner.setdefault(caller.owner, caller)

    def caller(self, digest: bytes | None) -> Caller | None:
        """The caller whose key has this SHA-256, or None; anyone, where there are no keys."""
        callers = self._callers
        if not callers:
            return ANYONE
        if digest is None:
            return None
        found = callers.get(digest)
        if found is None or not hmac.compare_digest(found[0], digest):
            return None
        return found[1]

    def owner(self, owner: str) -> Caller:
        """The caller who is this owner, for what is done without a request of its own; without a name where
        no key is this owner's any more."""
        return self._by_owner.get(owner) or Caller(None, owner)

    @property
    def owners(self) -> dict[str, str]:
        """The owner that each key's name stands for now."""
        return {caller.name: caller.owner for _, caller in self._callers.values() if caller.name is not None}

    @property
    def digests(self) -> list[bytes] | None:
        """SHA-256 of all keys; None where none is needed."""
        return list(self._callers) or None


def key_digest(headers: Mapping[bytes, bytes]) -> tuple[bytes | None, bool]:
    """SHA-256 of the key that these headers present, and whether they present anything at all.

    It is the bearer token in `authorization`, or else what `x-api-key` holds, in which clients of Anthropic's
    API send theirs.
    """
    authorization, key = headers.get(b"authorization"), headers.get(b"x-api-key")
    presented = authorization is not None or key is not None
    if authorization is not None:
        scheme, space, token = authorization.partition(b" ")
        if space and scheme.lower() == b"bearer":
            return _digest(token.strip()), presented
    return (None if key is None else _digest(key.strip())), presented


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _owner(id: str | None, digest: bytes) -> str:
    if id is not None:
        return f"id:{id}"
    # Not the digest itself: whoever reads the store could look for callers of other services by it.
    return f"key:{hashlib.sha256(b'owner of responses' + digest).hexdigest()[:32]}"
