"""Making keys: `sg-`, a public id, `-`, a secret, and a checksum by which scanners for leaked keys know one.

The checksum is CRC-32 of all that stands before it, written in the same 62 digits as the rest, as in GitHub's
tokens (github.blog, "Behind GitHub's new authentication token formats").
"""

import hashlib
import re
import secrets
import zlib
from typing import NamedTuple

PREFIX = "sg-"

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID = 12
# 62 ** 43 is more than 2 ** 256.
_SECRET = 43
_CHECKSUM = 6
_FORM = re.compile(rf"{PREFIX}[0-9A-Za-z]{{{_ID}}}-[0-9A-Za-z]{{{_SECRET + _CHECKSUM}}}")

_PUBLIC = re.compile(rf"[0-9A-Za-z]{{{_ID}}}")


class NewKey(NamedTuple):
    """A key, which is shown once, and what is kept of it."""

    text: str
    id: str
    """The part that is no secret."""
    digest: bytes
    """SHA-256 of it all. A slow hash is for what people make up: nobody guesses 256 random bits."""
    last_four: str


def new_key() -> NewKey:
    id = random_text(_ID)
    text = f"{PREFIX}{id}-{random_text(_SECRET)}"
    text += _checksum(text)
    return NewKey(text, id, hashlib.sha256(text.encode()).digest(), text[-4:])


def configured_key_id(digest: bytes) -> str:
    """What stands for a key of the configuration in the ledger and the store of responses, by its SHA-256."""
    # Not the digest itself: whoever reads the store could look for callers of other services by it.
    return hashlib.sha256(b"owner of responses" + digest).hexdigest()[:32]


def is_key(text: str) -> bool:
    """Whether `text` has the form of such a key, with the right checksum."""
    return _FORM.fullmatch(text) is not None and text[-_CHECKSUM:] == _checksum(text[:-_CHECKSUM])


def public_id(text: str) -> str:
    """The id in a key, or the id that `text` is itself; empty: it is neither."""
    if is_key(text):
        return text[len(PREFIX) :][:_ID]
    return text if _PUBLIC.fullmatch(text) else ""


def random_text(length: int) -> str:
    """Letters and digits, each one of 62."""
    return "".join(secrets.choice(_DIGITS) for _ in range(length))


def _checksum(text: str) -> str:
    left, digits = zlib.crc32(text.encode()), ""
    for _ in range(_CHECKSUM):
        left, digit = divmod(left, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits
