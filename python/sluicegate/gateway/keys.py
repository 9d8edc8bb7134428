"""Which caller has which key."""

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass

from sluicegate.config import KeyConfig


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever sent a request: the name of its key, or None where none is needed."""

    name: str | None


ANYONE = Caller(None)


class Keyring:
    """The configured keys. Only their digests are kept, so no dump of the process's objects shows one."""

    def __init__(self, keys: Iterable[KeyConfig]) -> None:
        # Each with the digest itself, since a dictionary's own comparison ends at the first difference.
        self._callers: dict[bytes, tuple[bytes, Caller]] = {}
        for key in keys:
            digest = _digest(key.key.get_secret_value().encode())
            self._callers[digest] = digest, Caller(key.name)

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

    @property
    def digests(self) -> list[bytes] | None:
        """SHA-256 of all keys; None where none is needed."""
        return list(self._callers) or None


def key_digest(authorization: bytes | None) -> bytes | None:
    """SHA-256 of the bearer token in an `Authorization` header; None where it is none."""
    if authorization is None:
        return None
    scheme, _, token = authorization.partition(b" ")
    return _digest(token.strip()) if scheme.lower() == b"bearer" else None


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
