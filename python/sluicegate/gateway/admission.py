"""Who may have what: the caller of a request, and the model that it asks for. Refusals are data."""

from dataclasses import dataclass
from typing import Literal

from sluicegate.gateway.keys import Caller, Keyring
from sluicegate.routing import Model, ModelTable


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why not. `gateway.errors.refused` words it."""

    reason: Literal["missing_key", "unknown_key", "missing_model", "unknown_model"]
    model: str = ""
    """What was asked for, where that is the reason."""


MISSING_KEY = Refusal("missing_key")
UNKNOWN_KEY = Refusal("unknown_key")
MISSING_MODEL = Refusal("missing_model")


class Admission:
    """What one configuration says of who may call. Any thread."""

    __slots__ = ("_keys", "_models")

    def __init__(self, keys: Keyring, models: ModelTable) -> None:
        self._keys = keys
        self._models = models

    def identify(self, key_digest: bytes | None, presented: bool) -> Caller | Refusal:
        """The caller whose key has the SHA-256 `key_digest`. `presented`: there was one, of whatever form."""
        caller = self._keys.caller(key_digest)
        if caller is None:
            return UNKNOWN_KEY if presented else MISSING_KEY
        return caller

    def model(self, caller: Caller, name: str | None) -> Model | Refusal:
        """The model that `caller` asks for by `name`."""
        if not name:
            return MISSING_MODEL
        return self._models.find(name) or Refusal("unknown_model", name)

    def owner(self, owner: str) -> Caller:
        """The caller whose stored responses are `owner`'s; without a name where no key is that any more."""
        return self._keys.owner(owner)

    @property
    def owners(self) -> dict[str, str]:
        """The owner of stored responses that each key's name stands for now."""
        return self._keys.owners

    @property
    def digests(self) -> list[bytes] | None:
        """SHA-256 of the keys that may call, for the front to refuse others by; None: anyone may."""
        return self._keys.digests
