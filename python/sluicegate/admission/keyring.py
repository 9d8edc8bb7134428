"""Which caller has which key."""

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import replace

from sluicegate.admission.caller import ANYONE, Caller
from sluicegate.config import CallerConfig, Config, KeyConfig, LimitSet
from sluicegate.identity import NOTHING, CallerFields, KeyFields, Snapshot, StoredCaller, StoredKey

Limits = str | LimitSet | None


class Keyring:
    """The keys of a configuration, and those of the database where the configuration wants keys at all.

    Only digests are kept, so no dump of the process's objects shows a key.
    """

    def __init__(self, config: Config, stored: Snapshot | None = NOTHING) -> None:
        """`stored`: None where the database could not be read so far."""
        self._open = not config.needs_keys
        self.is_whole = stored is not None
        """False: keys may be good that are not known."""
        # Each with the digest itself, since a dictionary's own comparison ends at the first difference.
        self._callers: dict[bytes, tuple[bytes, Caller]] = {}
        self._by_owner: dict[str, Caller] = {}
        self._by_key: dict[tuple[str, str], Caller] = {}
        self.owners: dict[str, str] = {}
        """The owner that the name of each key of the configuration stands for now."""
        self.missing: set[str] = set()
        """Limits and teams that the database names and the configuration does not have. Whoever has one of
        them may not call: without it there would be no limit."""
        self.own_limits: list[LimitSet] = []
        """Limits that are not among the configuration's."""
        self._add_configured(config)
        if stored is not None and not self._open:
            self._add_stored(config, stored)

    def caller(self, digest: bytes | None) -> Caller | None:
        """The caller whose key has this SHA-256, or None; anyone, where no key is needed."""
        if self._open:
            return ANYONE
        if digest is None:
            return None
        found = self._callers.get(digest)
        if found is None or not hmac.compare_digest(found[0], digest):
            return None
        return found[1]

    def owner(self, owner: str, key_id: str | None = None) -> Caller:
        """The caller who is this owner, for what is done without a request of its own, with the key that has
        this id; where that is gone with another one's limits, and without a name where nobody is this owner
        any more.
        """
        if key_id is None:
            return self._by_owner.get(owner) or Caller(None, owner)
        known = self._by_key.get((owner, key_id))
        return known or replace(self.owner(owner), key_id=key_id)

    @property
    def callers(self) -> list[Caller]:
        """One for each key."""
        return [caller for _, caller in self._callers.values()]

    @property
    def digests(self) -> list[bytes] | None:
        """SHA-256 of all keys; None where none is needed."""
        return None if self._open else list(self._callers)

    def _add_configured(self, config: Config) -> None:
        by_name = {caller.name: caller for caller in config.callers}
        for key in config.keys:
            digest = _digest(key.key.get_secret_value().encode())
            # Not the digest itself: whoever reads the store could look for callers of other services by it.
            mark = hashlib.sha256(b"owner of responses" + digest).hexdigest()[:32]
            of = by_name.get(key.name)
            if of is not None:
                caller = self._with_key(self._of_caller(config, of), config, mark, key)
            else:
                # A key that is a caller by itself keeps what it used where it becomes one of several.
                owner = f"key:{mark}" if key.id is None else f"id:{key.id}"
                alone = Caller(key.name, owner, key_id=mark)
                caller = self._with_key(alone, config, mark, key, subject=f"caller:{owner}")
            self._add(digest, caller)
            self._by_owner.setdefault(caller.owner, caller)
            self.owners[key.name] = caller.owner

    def _add_stored(self, config: Config, stored: Snapshot) -> None:
        callers = {caller.id or caller.name: self._of_caller(config, caller) for caller in config.callers}
        callers |= {id: self._of_caller(config, caller) for id, caller in stored.callers.items()}
        for key in stored.keys.values():
            of = callers.get(key.caller_id)
            # A caller of the configuration may be gone from it.
            if of is not None:
                caller = self._with_key(of, config, key.id, key)
                self._add(key.digest, caller)
        for caller in callers.values():
            self._by_owner.setdefault(caller.owner, caller)

    def _add(self, digest: bytes, caller: Caller) -> None:
        self._callers.setdefault(digest, (digest, caller))
        self._by_key.setdefault((caller.owner, caller.key_id), caller)

    def _of_caller(self, config: Config, caller: CallerConfig | StoredCaller) -> Caller:
        """A caller without any key."""
        said: CallerConfig | CallerFields = caller if isinstance(caller, CallerConfig) else caller.fields
        id = caller.id or said.name
        owner, team = f"id:{id}", said.team
        limits = [(f"caller:{owner}", f"the caller `{said.name}`", said.limits)]
        disabled = said.disabled
        if team is not None and team not in config.teams:
            self.missing.add(f"team {team}")
            disabled = True
        elif team is not None:
            limits.append((f"team:{team}", f"the team `{team}`", config.teams[team].limits))
        bound, complete = self._bound(config, limits)
        return Caller(
            said.name,
            owner,
            team=team,
            models=() if said.models is None else (said.models,),
            endpoints=() if said.endpoints is None else (frozenset(said.endpoints),),
            disabled=disabled or not complete,
            limits=bound,
        )

    def _with_key(
        self, caller: Caller, config: Config, id: str, key: KeyConfig | StoredKey, subject: str = ""
    ) -> Caller:
        """The caller of one key, with all that holds for it. `subject`: of the key's limits."""
        if isinstance(key, KeyConfig):
            said: KeyConfig | KeyFields = key
            expires = None if key.expires is None else key.expires.timestamp()
        else:
            said = key.fields
            expires = None if key.expires is None else key.expires / 1e6
        who = f"this key of `{caller.name}`"
        bound, complete = self._bound(config, [(subject or f"key:{id}", who, said.limits)])
        return Caller(
            caller.name,
            caller.owner,
            key_id=id,
            team=caller.team,
            models=caller.models if said.models is None else (*caller.models, said.models),
            endpoints=caller.endpoints
            if said.endpoints is None
            else (*caller.endpoints, frozenset(said.endpoints)),
            expires=expires,
            disabled=caller.disabled or not complete,
            limits=(*caller.limits, *bound),
        )

    def _bound(
        self, config: Config, named: Iterable[tuple[str, str, Limits]]
    ) -> tuple[tuple[tuple[str, str, LimitSet], ...], bool]:
        """The limits that there are, and whether these are all."""
        found, complete = [], True
        for subject, who, limits in named:
            if isinstance(limits, str):
                name, limits = limits, config.limits.get(limits)
                if limits is None:
                    self.missing.add(f"limits {name}")
                    complete = False
            elif limits is not None:
                self.own_limits.append(limits)
            if limits is not None:
                found.append((subject, who, limits))
        return tuple(found), complete


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
