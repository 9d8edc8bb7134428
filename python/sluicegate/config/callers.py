"""Who calls: keys, the callers that they belong to, their teams, and the people behind a caller."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from sluicegate.config.quantities import Words, fault
from sluicegate.config.section import Section
from sluicegate.config.values import CallerId, Name, Secret, header_name

CALLER_PREFIX = "cal_"
"""What ids begin with that the gateway makes."""


def _moment(value: object) -> object:
    """A day begins at midnight, and a time without a zone is UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            hint = "such as 2027-01-31, or 2027-01-31T12:00Z"
            raise fault("moment", "is not a day or a time", hint) from None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if isinstance(value, datetime) and value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return value


def _pattern(value: str) -> str:
    if "*" in value[:-1]:
        raise fault("pattern", "has a `*` that is not its end", "a name, or the start of one: llama-*")
    return value


Moment = Annotated[datetime, BeforeValidator(_moment), Words("day or time", datetime.isoformat)]
ModelPattern = Annotated[Name, AfterValidator(_pattern)]
UserHeader = Annotated[str, AfterValidator(header_name)]


class _Allowed(Section):
    limits: Name | None = Field(default=None, description="The name of its limits.")
    models: tuple[ModelPattern, ...] | None = Field(
        default=None, description="What it may use: names, or starts of names (`llama-*`); null: all."
    )
    endpoints: tuple[Name, ...] | None = Field(
        default=None, description="What it may call: `chat_completions`, `responses`, …; null: all."
    )


class KeyConfig(_Allowed):
    """One client key. What is said of `models` and `endpoints` narrows what its caller may."""

    name: Name = Field(
        description="What logs and metrics show: one of `callers`, or else a caller that is this key alone."
    )
    key: Secret = Field(
        description="What the client sends as `Authorization: Bearer …`, or in the header `x-api-key`."
    )
    id: CallerId | None = Field(
        default=None,
        description="Whose stored responses it reads: keys with one id share them, so a new key with the id "
        "of an old one goes on with what is there. Left out, they belong to the key itself: another key has "
        "none of them, whatever its name, and a key that gains an id later begins anew. A key of one of "
        "`callers` has that one's.",
    )
    expires: Moment | None = Field(default=None, description="When it stops working: 2027-01-31.")


class TeamConfig(Section):
    """Several callers who share limits."""

    limits: Name | None = Field(default=None, description="The name of its limits.")


class CallerConfig(_Allowed):
    """Whoever calls, with any number of `keys`."""

    name: Name = Field(description="What logs and metrics show, and what its keys have for a name.")
    id: CallerId | None = Field(
        default=None,
        description="What its limits and stored responses are kept by, for good; null: its name.",
    )
    team: Name | None = Field(default=None, description="The team whose limits hold for it, too.")
    disabled: bool = Field(default=False, description="It may not call for now.")


class UsersConfig(Section):
    """The people behind a caller, told apart by a header that the caller sets."""

    header: UserHeader = Field(description="The header that names the user: x-user-id. It is not passed on.")
    limits: Name = Field(description="The name of the limits of each user.")


def caller_faults(
    callers: tuple[CallerConfig, ...], teams: Mapping[str, TeamConfig]
) -> Iterator[PydanticCustomError]:
    """Where two callers cannot be told apart, or a team is not there."""
    names: set[str] = set()
    ids: set[str] = set()
    for index, caller in enumerate(callers):
        place = ("callers", index)
        id = caller.id or caller.name
        if caller.name in names or id in ids:
            hint = "give each a name and an id of its own"
            yield fault("callers", f"is another caller `{caller.name}`", hint, at=(*place, "name"), lacks=())
        names.add(caller.name)
        ids.add(id)
        yield from _id_faults(id, place, "name" if caller.id is None else "id")
        if caller.team is not None and caller.team not in teams:
            message = f"names the team `{caller.team}`, which is not in `teams`"
            lacks = (("teams", caller.team),)
            yield fault("callers", message, "add it", at=(*place, "team"), lacks=lacks)


def _id_faults(id: str, place: tuple[str | int, ...], member: str) -> Iterator[PydanticCustomError]:
    if id.startswith(CALLER_PREFIX):
        hint = f"ids that begin with {CALLER_PREFIX} are made by the gateway"
        yield fault("callers", f"is the id `{id}`", hint, at=(*place, member), lacks=())


def key_faults(keys: tuple[KeyConfig, ...], callers: Iterable[CallerConfig]) -> Iterator[PydanticCustomError]:
    """Where two keys cannot be told apart."""
    named = {caller.name for caller in callers}
    by_name: dict[str, int] = {}
    by_secret: dict[str, KeyConfig] = {}
    for index, key in enumerate(keys):
        place = ("keys", index)
        if key.name in named:
            if key.id is not None:
                message = f"gives a key of the caller `{key.name}` an id"
                yield fault("keys", message, "the caller has one: take it out", at=(*place, "id"), lacks=())
        else:
            yield from _id_faults(key.id or "", place, "id")
            if key.name in by_name:
                yield fault(
                    "keys",
                    f"is `{key.name}`, as the name of keys[{by_name[key.name]}] is",
                    "each client needs a name of its own; one with several keys is one of `callers`",
                    at=(*place, "name"),
                    lacks=(("callers",),),
                )
            by_name.setdefault(key.name, index)
        other = by_secret.setdefault(key.key.get_secret_value(), key)
        if other is not key:
            yield fault(
                "keys",
                f"is the same key under two names: `{other.name}` and `{key.name}`"
                if other.name != key.name
                else f"is the same key of `{key.name}` twice",
                "each client needs a key of its own",
                at=(*place, "key"),
                lacks=(),
            )
