"""What is known of callers and keys: what people say of them, and what is kept."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from sluicegate.config import TIME, CallerConfig, Config, Expiry, LimitSet, ModelPattern, Name, Section
from sluicegate.identity.errors import InvalidFields

MICRO = 10**6

ShortName = Annotated[Name, Field(max_length=128)]
_Patterns = Annotated[tuple[Annotated[ModelPattern, Field(max_length=256)], ...], Field(max_length=256)]
_Endpoints = Annotated[tuple[ShortName, ...], Field(max_length=64)]

Limits = ShortName | LimitSet
"""The name of one of the configuration's `limits`, or limits of its own."""

Source = Literal["database", "configuration"]
KeyState = Literal["active", "expired", "revoked"]


class _Allowed(Section):
    limits: Limits | None = None
    models: _Patterns | None = None
    """Names, or starts of names (`llama-*`); None: all."""
    endpoints: _Endpoints | None = None
    """`chat_completions`, `responses`, …; None: all."""


class CallerFields(_Allowed):
    """What people say of a caller."""

    name: ShortName
    team: ShortName | None = None
    disabled: bool = False


class KeyFields(_Allowed):
    """What people say of a key; what it says of models and endpoints narrows what its caller may."""

    name: ShortName = ""
    expires: Expiry | None = None


class RotationFields(Section):
    """What people say of a key that takes another one's place."""

    overlap: Annotated[float, Field(ge=0, le=366 * 24 * 3600, allow_inf_nan=False), TIME] = 24 * 3600.0
    """For how many seconds the old key works on."""
    expires: Expiry | None = None
    """None: it lasts as long as the old one was made for."""


@dataclass(frozen=True, slots=True)
class StoredCaller:
    """A caller, of the database or of the configuration."""

    id: str
    fields: CallerFields
    source: Source = "database"
    created: int | None = None
    """Microseconds since 1970; None for one of the configuration."""

    @property
    def name(self) -> str:
        return self.fields.name

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "id": self.id,
            **plain(self.fields),
            "source": self.source,
            "created": iso(self.created),
        }


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key of the database, without its secret. Times are microseconds since 1970."""

    id: str
    """Public: it stands in the key."""
    caller_id: str
    fields: KeyFields
    last_four: str
    created: int
    expires: int | None
    revoked: int | None
    replaces: str | None
    """The key in whose place it was made."""
    counted_as: str
    """The id by which what it uses is counted: its own, or that of the first key that it goes on for."""
    digest: bytes = field(repr=False)
    """SHA-256 of the whole key."""

    def state(self, now: float) -> KeyState:
        """At `now`, in seconds since 1970."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= now * MICRO else "active"

    def as_data(self, now: float) -> dict[str, Any]:
        """For JSON."""
        return {
            "id": self.id,
            "caller": self.caller_id,
            "source": "database",
            "state": self.state(now),
            "last_four": self.last_four,
            **plain(self.fields),
            "created": iso(self.created),
            "expires": iso(self.expires),
            "revoked": iso(self.revoked),
            "replaces": self.replaces,
        }


@dataclass(frozen=True, slots=True)
class ConfiguredKey:
    """A key of the configuration, without its secret."""

    id: str
    """As the ledger has it."""
    caller_id: str
    """Of the configuration's caller; or the name of one that is this key alone, unless it has an id."""
    caller: str
    """Its name."""
    fields: KeyFields

    def as_data(self, now: float) -> dict[str, Any]:
        """For JSON, with the members of `StoredKey`. At `now`, in seconds since 1970."""
        expires = self.fields.expires
        # People write these keys: four characters may be much of one.
        return {
            "id": self.id,
            "caller": self.caller_id,
            "source": "configuration",
            "state": "expired" if expires is not None and expires.timestamp() <= now else "active",
            "last_four": None,
            **plain(self.fields),
            "created": None,
            "expires": None if expires is None else iso(int(expires.timestamp() * MICRO)),
            "revoked": None,
            "replaces": None,
        }


def of_configuration(caller: CallerConfig) -> StoredCaller:
    said = {name: getattr(caller, name) for name in CallerFields.model_fields}
    return StoredCaller(caller.id or caller.name, CallerFields.model_construct(**said), "configuration")


def plain(fields: CallerFields | KeyFields) -> dict[str, Any]:
    """All of it, for JSON; of limits what is said of them."""
    said = fields.model_dump(mode="json", exclude_defaults=True)
    return {name: said.get(name, field.default) for name, field in type(fields).model_fields.items()}


def iso(micro: int | None) -> str | None:
    """A time as RFC 3339 has it, in UTC."""
    if micro is None:
        return None
    return datetime.fromtimestamp(micro / MICRO, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


# === what people say ===

_Section = TypeVar("_Section", bound=Section)
_Fields = TypeVar("_Fields", CallerFields, KeyFields)


def read(kind: type[_Section], data: Mapping[str, Any]) -> _Section:
    """Raises `InvalidFields`."""
    try:
        return kind.model_validate(dict(data))
    except ValidationError as error:
        raise InvalidFields([_said(detail) for detail in error.errors(include_url=False)]) from None


def validated(kind: type[_Fields], data: Mapping[str, Any], config: Config) -> _Fields:
    """Raises `InvalidFields`, also for limits and teams that the configuration does not have."""
    fields = read(kind, data)
    faults = []
    if isinstance(fields.limits, str) and fields.limits not in config.limits:
        faults.append(f"limits: the configuration has no `{fields.limits}` in `limits`")
    if isinstance(fields, CallerFields) and fields.team is not None and fields.team not in config.teams:
        faults.append(f"team: the configuration has no `{fields.team}` in `teams`")
    if faults:
        raise InvalidFields(faults)
    return fields


def _said(detail: Any) -> str:
    place = ".".join(str(step) for step in detail["loc"])
    hint = detail.get("ctx", {}).get("hint")
    return f"{place}: {detail['msg']}" + (f" ({hint})" if hint else "")


# === how it is kept ===

_LIMITS: TypeAdapter[Limits] = TypeAdapter(Limits)


def allowed_columns(fields: CallerFields | KeyFields) -> dict[str, str | None]:
    """The columns `limits`, `models` and `endpoints`."""
    said = fields.model_dump(mode="json", include={"limits", "models", "endpoints"}, exclude_defaults=True)
    return {name: as_json(said[name]) if name in said else None for name in ("limits", "models", "endpoints")}


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def caller_of(row: Any) -> StoredCaller:
    """Of a row of the table."""
    fields = CallerFields.model_construct(
        name=row.name, team=row.team, disabled=row.disabled, **_allowed_of(row)
    )
    return StoredCaller(row.id, fields, created=row.created)


def key_of(row: Any) -> StoredKey:
    """Of a row of the table."""
    expires = None if row.expires is None else datetime.fromtimestamp(row.expires / MICRO, UTC)
    return StoredKey(
        id=row.id,
        caller_id=row.caller_id,
        fields=KeyFields.model_construct(name=row.name, expires=expires, **_allowed_of(row)),
        last_four=row.last_four,
        created=row.created,
        expires=row.expires,
        revoked=row.revoked,
        replaces=row.replaces,
        counted_as=row.counted_as or row.id,
        digest=bytes(row.digest),
    )


def limits_of(text: str) -> Limits:
    """Of what the column `limits` has. Raises pydantic's `ValidationError`."""
    return _LIMITS.validate_json(text)


def _allowed_of(row: Any) -> dict[str, Any]:
    return {
        "limits": None if row.limits is None else limits_of(row.limits),
        "models": None if row.models is None else tuple(json.loads(row.models)),
        "endpoints": None if row.endpoints is None else tuple(json.loads(row.endpoints)),
    }
