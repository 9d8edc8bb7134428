"""Which caller has which key."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import replace

from sluicegate.admission.caller import ANYONE, Caller
from sluicegate.config import CallerConfig, Config, KeyConfig


class Keyring:
    """The configured keys. Only their digests are kept, so no dump of the process's objects shows one."""

    def __init__(self, config: Config) -> None:
        # Each with the digest itself, since a dictionary's own comparison ends at the first difference.
        self._callers: dict[bytes, tuple[bytes, Caller]] = {}
        self._by_owner: dict[str, Caller] = {}
        self._by_key: dict[tuple[str, str], Caller] = {}
        by_name = {caller.name: caller for caller in config.callers}
        for key in config.keys:
            digest = _digest(key.key.get_secret_value().encode())
            caller = _caller(config, key, by_name.get(key.name), digest)
            self._callers[digest] = digest, caller
            self._by_owner.setdefault(caller.owner, caller)
            self._by_key[caller.owner, caller.key_id] = caller

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

    def owner(self, owner: str, key_id: str | None = None) -> Caller:
        """The caller who is this owner, for what is done without a request of its own, with the key that has
        this id; where that is gone with another one's limits, and without a name where no key is this owner's
        any more.
        """
        if key_id is None:
            return self._by_owner.get(owner) or Caller(None, owner)
        known = self._by_key.get((owner, key_id))
        return known or replace(self.owner(owner), key_id=key_id)

    @property
    def owners(self) -> dict[str, str]:
        """The owner that each key's name stands for now."""
        return {caller.name: caller.owner for _, caller in self._callers.values() if caller.name is not None}

    @property
    def callers(self) -> list[Caller]:
        """One for each key."""
        return [caller for _, caller in self._callers.values()]

    @property
    def digests(self) -> list[bytes] | None:
        """SHA-256 of all keys; None where none is needed."""
        return list(self._callers) or None


def _caller(config: Config, key: KeyConfig, caller: CallerConfig | None, digest: bytes) -> Caller:
    """The caller of one key, with all that holds for it."""
    # Not the digest itself: whoever reads the store could look for callers of other services by it.
    mark = hashlib.sha256(b"owner of responses" + digest).hexdigest()[:32]
    if caller is not None:
        owner = f"id:{caller.id or caller.name}"
    else:
        owner = f"key:{mark}" if key.id is None else f"id:{key.id}"
    of_caller = None if caller is None else caller.limits
    team = None if caller is None or caller.team is None else caller.team
    of_team = None if team is None else config.teams[team].limits
    named = (
        (f"caller:{owner}", f"the caller `{key.name}`", of_caller),
        # A key that is a caller by itself keeps what it used where it becomes one of several.
        (f"key:{mark}" if caller is not None else f"caller:{owner}", f"this key of `{key.name}`", key.limits),
        (f"team:{team}", f"the team `{team}`", of_team),
    )
    both = (key,) if caller is None else (caller, key)
    return Caller(
        key.name,
        owner,
        key_id=mark,
        team=team,
        models=tuple(each.models for each in both if each.models is not None),
        endpoints=tuple(frozenset(each.endpoints) for each in both if each.endpoints is not None),
        expires=None if key.expires is None else key.expires.timestamp(),
        disabled=caller is not None and caller.disabled,
        limits=tuple(
            (subject, who, config.limits[limits]) for subject, who, limits in named if limits is not None
        ),
    )


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
