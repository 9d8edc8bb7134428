"""Who may call."""

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass

from sluicegate.config import KeyConfig


@dataclass(frozen=True, slots=True)
class Client:
    """Whoever sent a request: the name of its key, or None where none is needed."""

    name: str | None


class Keyring:
    """The configured keys. Only their digests are kept, so no dump of the process's objects shows one."""

    def __init__(self, keys: Iterable[KeyConfig]) -> None:
        self._clients = [(_digest(key.key.get_secret_value().encode()), Client(key.name)) for key in keys]
        self._anyone = None if self._clients else Client(None)

    def client(self, authorization: bytes | None) -> Client | None:
        """The client with this `Authorization` header; None where it may not call.

        Takes equally long for every key, known or not: digests are of one length, and all are compared.
        """
        if self._anyone is not None:
            return self._anyone
        scheme, _, token = (authorization or b"").partition(b" ")
        presented = _digest(token.strip())
        found: Client | None = None
        for digest, client in self._clients:
            if hmac.compare_digest(digest, presented):
                found = client
        return found if scheme.lower() == b"bearer" else None


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
