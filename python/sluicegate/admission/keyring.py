"""Which caller has which key."""

import hashlib
import hmac
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import nsmallest
from itertools import chain, islice
from operator import attrgetter, itemgetter
from typing import TypeVar

from sluicegate.admission.caller import ANYONE, Caller, Gone, Holder
from sluicegate.config import CallerConfig, Config, KeyConfig, LimitSet
from sluicegate.identity import NOTHING, KnownCaller, KnownKey, Snapshot, Terms, configured_key_id, public_id

_JOINED_AT_ONCE = 4096
_LOOKED_AT_ONCE = 1000

_T = TypeVar("_T")

Steps = Generator[None, None, _T]
"""Work in short steps, so that others have their turn in between; what it returns is its result."""

_Limits = tuple[tuple[str, str, LimitSet], ...]
"""As `Caller.limits`."""
_Keys = dict[bytes, tuple[bytes, Caller]]
"""By digest, each with the digest itself: a dictionary's own comparison ends at the first difference."""


class Keyring:
    """The keys of a configuration, and those of the database where the configuration wants keys at all.

    Only digests are kept, so no dump of the process's objects shows a key. What a key of the database may is
    worked out when it is first asked for: there may be very many, and they change one at a time. Any thread.
    """

    def __init__(self, config: "Config | _Configured", stored: Snapshot | None = NOTHING) -> None:
        """`stored`: None where the database could not be read so far."""
        self._configured = configured = config if isinstance(config, _Configured) else _Configured(config)
        self.is_open = configured.is_open
        """No key is needed."""
        self.is_whole = stored is not None
        """False: keys may be good that are not known."""
        self._stored = NOTHING if stored is None or self.is_open else stored
        self._callers = configured.keys
        self._asked_for: _Keys = {}
        """Those of the database that were."""
        self._rotated: dict[str, list[str]] | None = None
        """By the id that they are counted by, the keys that go on for others; once it was asked for."""
        self._without_key: dict[str, Caller] = {}
        """Callers of the database that were asked for, by id."""
        self.missing = set(configured.missing(self._stored))
        """Limits and teams that the database names and the configuration does not have. Whoever has one of
        them may not call: without it there would be no limit."""

    def beside(self, stored: Snapshot) -> "Keyring":
        """The keys of the same configuration, beside those that the database has now."""
        return Keyring(self._configured, stored)

    def caller(self, digest: bytes | None) -> Caller | None:
        """The caller whose key has this SHA-256, or None; anyone, where no key is needed."""
        if self.is_open:
            return ANYONE
        if digest is None:
            return None
        found = self._callers.get(digest) or self._asked_for.get(digest) or self._find(digest)
        if found is None or not hmac.compare_digest(found[0], digest):
            return None
        return found[1]

    def holder(self, owner: str, key_id: str | None, now: float) -> Holder:
        """Who is this owner, for what is done without a request of its own, with the key that has this id: as
        it is at `now`, in seconds since 1970.

        A key of the database whose time is over, and that another one has replaced, is that one. Without an
        id (of what was asked for before ids were kept) it is the caller without any key.
        """
        if self.is_open:
            # Limits of people count for anyone together.
            return Holder(Caller(None, owner, key_id=key_id or "") if _has_key(owner) else ANYONE)
        known = None if key_id is None else self._with_id(owner, key_id, now)
        if known is not None:
            return Holder(known)
        caller = self._owning(owner)
        if key_id is None and caller is not None:
            return Holder(caller)
        return Holder(
            replace(caller or Caller(None, owner), key_id=key_id or ""), self._what_became(owner, key_id)
        )

    def of_caller(self, name: str, first: str = "", most: int = 2**31) -> Steps[list[tuple[str, Caller]]]:
        """Whoever has this id, or else this name: once for all keys without limits of their own, and with
        each key that has some. Each by its place in the order of all of them; at most `most` from `first` on.
        """
        owners = {owner for owner in (name, f"id:{name}") if self._owning(owner) is not None}
        if not owners:
            owners = yield from self._named(name)
        found = [(f" {owner}", caller) for owner in owners if (caller := self._owning(owner))]
        found = [(place, caller) for place, caller in found if place >= first]
        yield from self._add_keys(found, owners, first, most)
        return nsmallest(most, found, key=itemgetter(0))

    @property
    def callers(self) -> Iterator[Caller]:
        """All who may call, once for all keys that have no limits of their own."""
        configured = self._configured
        for _, caller in self._callers.values():
            yield caller
        if not self.is_open:
            yield from (each for each in configured.callers.values() if each.owner not in configured.by_owner)
        for known in self._stored.callers.values():
            yield configured.caller(known)
        for key in self._stored.keys.values():
            with_key = None if key.terms.limits is None else self._with_key(key)
            if with_key is not None:
                yield with_key

    @property
    def owners(self) -> Mapping[str, str]:
        """The owner that the name of each key of the configuration stands for now."""
        return self._configured.owners

    @property
    def counted_as(self) -> Mapping[str, str]:
        """By the id of a key that goes on for another, the id by which its limits are counted."""
        return self._stored.counted_as

    @property
    def own_limits(self) -> list[LimitSet]:
        """Limits that are not among the configuration's."""
        return [terms.limits for terms in self._stored.terms if isinstance(terms.limits, LimitSet)]

    @property
    def digests(self) -> bytes | None:
        """SHA-256 of all keys, one after the other; None where none is needed."""
        if self.is_open:
            return None
        # In parts: another thread may have the interpreter between two of them.
        each = chain(self._callers, self._stored.digests)
        return b"".join(iter(lambda: b"".join(islice(each, _JOINED_AT_ONCE)), b""))

    def _find(self, digest: bytes) -> tuple[bytes, Caller] | None:
        """Of the database."""
        key = self._stored.digests.get(digest)
        caller = None if key is None else self._with_key(key)
        if key is None or caller is None:
            return None
        found = self._asked_for[key.digest] = (key.digest, caller)
        return found

    def _with_id(self, owner: str, key_id: str, now: float) -> Caller | None:
        known = self._configured.by_key.get((owner, key_id))
        key = self._stored.keys.get(key_id)
        if known is None and key is not None:
            if key.expires is not None and now >= key.expires:
                key = self._replacing(key, now)
            known = self._with_key(key)
        return None if known is None or known.owner != owner else known

    def _replacing(self, key: KnownKey, now: float) -> KnownKey:
        """The key of the database that goes on for `key`; `key` itself where there is none that works."""
        if self._rotated is None:
            self._rotated = {}
            for id, counted_as in self.counted_as.items():
                self._rotated.setdefault(counted_as, []).append(id)
        for id in self._rotated.get(key.counted_as, ()):
            other = self._stored.keys.get(id)
            works = other is not None and (other.expires is None or now < other.expires)
            if works and other is not None and other.caller_id == key.caller_id:
                return other
        return key

    def _owning(self, owner: str) -> Caller | None:
        """The caller who is this owner, without any key where it may have several."""
        known = self._caller(owner[3:]) if owner.startswith("id:") else None
        return known or self._configured.by_owner.get(owner)

    def _what_became(self, owner: str, key_id: str | None) -> Gone:
        """Why nobody is this owner with this key."""
        if not _has_key(owner):
            return "missing_key"
        if not self.is_whole:
            return "unknown_key"
        # Keys of the database are never deleted: one that is not there is revoked.
        revoked = key_id is not None and public_id(key_id) and key_id not in self._stored.keys
        return "revoked_key" if revoked else "removed_key"

    def _with_key(self, key: KnownKey) -> Caller | None:
        """None: a caller of the configuration may be gone from it."""
        caller = self._caller(key.caller_id)
        if caller is None:
            return None
        subject = f"key:{key.counted_as}"
        return self._configured.with_key(caller, key.id, key.terms, key.expires, subject)

    def _caller(self, id: str) -> Caller | None:
        """The caller with this id, without any key."""
        found = self._without_key.get(id)
        if found is None:
            known = self._stored.callers.get(id)
            if known is None:
                return self._configured.callers.get(id)
            found = self._without_key[id] = self._configured.caller(known)
        return found

    def _named(self, name: str) -> Steps[set[str]]:
        """The owners that have this name."""
        owners: set[str] = set()
        for keys in _some_of(self._callers.values()):
            owners.update(caller.owner for _, caller in keys if caller.name == name)
            yield
        for callers in _some_of(self._configured.callers.values()):
            owners.update(caller.owner for caller in callers if caller.name == name)
            yield
        for stored in _some_of(self._stored.callers.values()):
            owners.update(f"id:{known.id}" for known in stored if known.name == name)
            yield
        return owners

    def _add_keys(
        self, found: list[tuple[str, Caller]], owners: set[str], first: str, most: int
    ) -> Steps[None]:
        """Add the keys of these owners that have limits of their own."""
        shared = {id(caller.limits) for owner in owners if (caller := self._owning(owner))}
        for configured in _some_of(self._callers.values()):
            for _, caller in configured:
                if caller.owner in owners and caller.key_id >= first and id(caller.limits) not in shared:
                    found.append((caller.key_id, caller))
            yield
        ids = {owner[3:] for owner in owners if owner.startswith("id:")}
        keys: list[KnownKey] = []
        for stored in _some_of(self._stored.keys.values()):
            keys += [
                key
                for key in stored
                if key.caller_id in ids and key.terms.limits is not None and key.id >= first
            ]
            keys = nsmallest(most, keys, key=attrgetter("id"))
            yield
        # Only now: making what a key may takes longer than looking at it.
        for page in _some_of(keys):
            found += [(key.id, caller) for key in page if (caller := self._with_key(key))]
            yield


class _Configured:
    """What a configuration says of keys. It has no key itself."""

    def __init__(self, config: Config) -> None:
        self.is_open = not config.needs_keys
        self._limits = config.limits
        self._teams = config.teams
        self.callers: dict[str, Caller] = {}
        """By id, without any key."""
        self.keys: _Keys = {}
        self.by_owner: dict[str, Caller] = {}
        self.by_key: dict[tuple[str, str], Caller] = {}
        self.owners: dict[str, str] = {}
        by_name: dict[str, Caller] = {}
        for each in config.callers:
            id = each.id or each.name
            known = KnownCaller(id, each.name, each.disabled, _terms(each, each.team))
            by_name[each.name] = self.callers[id] = self.caller(known)
        for key in config.keys:
            self._add(key, by_name.get(key.name))

    def caller(self, known: KnownCaller) -> Caller:
        """A caller without any key, also of the database."""
        terms = known.terms
        owner = f"id:{known.id}"
        own = self._bound(f"caller:{owner}", f"the caller `{known.name}`", terms.limits)
        shared: _Limits | None = ()
        if terms.team is not None:
            team = self._teams.get(terms.team)
            who = f"the team `{terms.team}`"
            shared = None if team is None else self._bound(f"team:{terms.team}", who, team.limits)
        return Caller(
            known.name,
            owner,
            team=terms.team,
            models=() if terms.models is None else (terms.models,),
            endpoints=() if terms.endpoints is None else (terms.endpoints,),
            disabled=known.disabled or own is None or shared is None,
            limits=(*(own or ()), *(shared or ())),
        )

    def with_key(self, caller: Caller, id: str, terms: Terms, expires: float | None, subject: str) -> Caller:
        """A caller with one key, and all that holds for it. `subject`: of the key's limits."""
        own = self._bound(subject, f"this key of `{caller.name}`", terms.limits)
        return Caller(
            caller.name,
            caller.owner,
            key_id=id,
            team=caller.team,
            models=caller.models if terms.models is None else (*caller.models, terms.models),
            endpoints=caller.endpoints if terms.endpoints is None else (*caller.endpoints, terms.endpoints),
            expires=expires,
            disabled=caller.disabled or own is None,
            limits=(*caller.limits, *own) if own else caller.limits,
        )

    def missing(self, stored: Snapshot) -> Iterator[str]:
        for terms in stored.terms:
            if isinstance(terms.limits, str) and terms.limits not in self._limits:
                yield f"limits {terms.limits}"
            if terms.team is not None and terms.team not in self._teams:
                yield f"team {terms.team}"

    def _add(self, key: KeyConfig, caller: Caller | None) -> None:
        digest = _digest(key.key.get_secret_value().encode())
        mark = configured_key_id(digest)
        subject = f"key:{mark}"
        if caller is None:
            owner = subject if key.id is None else f"id:{key.id}"
            caller = Caller(key.name, owner)
            # A key that is a caller by itself keeps what it used where it becomes one of several.
            subject = f"caller:{owner}"
        expires = None if key.expires is None else key.expires.timestamp()
        found = self.with_key(caller, mark, _terms(key), expires, subject)
        self.keys.setdefault(digest, (digest, found))
        self.by_key.setdefault((found.owner, mark), found)
        self.by_owner.setdefault(found.owner, found)
        self.owners[key.name] = found.owner

    def _bound(self, subject: str, who: str, limits: str | LimitSet | None) -> _Limits | None:
        """None: the configuration does not have them."""
        if isinstance(limits, str):
            limits = self._limits.get(limits)
            if limits is None:
                return None
        return () if limits is None else ((subject, who, limits),)


def _has_key(owner: str) -> bool:
    """Whether what belongs to this owner was asked for with a key."""
    return owner.startswith(("id:", "key:"))


def _some_of(many: Iterable[_T]) -> Iterator[list[_T]]:
    """Some at a time."""
    rest = iter(many)
    while some := list(islice(rest, _LOOKED_AT_ONCE)):
        yield some


def _terms(said: CallerConfig | KeyConfig, team: str | None = None) -> Terms:
    endpoints = None if said.endpoints is None else frozenset(said.endpoints)
    return Terms(said.limits, said.models, endpoints, team)


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
