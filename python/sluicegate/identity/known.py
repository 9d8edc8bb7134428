"""What a gateway keeps of each caller and each key, of which there may be very many: what deciding takes."""

import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from sluicegate.identity.model import MICRO, Limits, limits_of

# Texts of the database. What is said of most callers and keys is said of many.
_TERMS_REMEMBERED = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """What a caller or a key may. Those of which the same is said share one, so it is known by itself."""

    limits: Limits | None = None
    models: tuple[str, ...] | None = None
    """Names, or starts of names (`llama-*`); None: all."""
    endpoints: frozenset[str] | None = None
    """None: all."""
    team: str | None = None


NO_TERMS = Terms()


class KnownCaller(NamedTuple):
    """A caller, of the database or of the configuration."""

    id: str
    name: str
    disabled: bool
    terms: Terms


class KnownKey(NamedTuple):
    """A key that is not revoked."""

    id: str
    """Public: it stands in the key."""
    caller_id: str
    digest: bytes
    """SHA-256 of the whole key."""
    expires: float | None
    """Seconds since 1970."""
    counted_as: str
    """The id by which what it uses is counted: its own, or that of the first key that it goes on for."""
    terms: Terms


def caller_known(row: Any) -> KnownCaller:
    """Of a row of the table. Raises for one that is not as this program writes it."""
    terms = _terms(row.limits, row.models, row.endpoints, row.team)
    return KnownCaller(row.id, row.name, row.disabled, terms)


def key_known(row: Any) -> KnownKey:
    """As `caller_known`."""
    return KnownKey(
        id=row.id,
        # Many keys have one caller.
        caller_id=sys.intern(row.caller_id),
        digest=bytes(row.digest),
        expires=None if row.expires is None else datetime.fromtimestamp(row.expires / MICRO, UTC).timestamp(),
        counted_as=row.counted_as or row.id,
        terms=_terms(row.limits, row.models, row.endpoints, None),
    )


@lru_cache(_TERMS_REMEMBERED)
def _terms(limits: str | None, models: str | None, endpoints: str | None, team: str | None) -> Terms:
    if limits is models is endpoints is team is None:
        return NO_TERMS
    return Terms(
        None if limits is None else limits_of(limits),
        None if models is None else tuple(json.loads(models)),
        None if endpoints is None else frozenset(json.loads(endpoints)),
        team,
    )
