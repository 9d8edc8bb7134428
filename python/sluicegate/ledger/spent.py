"""What was used lately, as limits count it: what a process that starts has to know of those before it."""

from collections.abc import Collection, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, Select, Table, and_, case, func, not_, or_, select, tuple_

from sluicegate.ledger.schema import first_id, ledger, usage_daily, usage_users
from sluicegate.storage import Database

Calendar = Literal["day", "week", "month"]

_HOUR = 3600
# Microseconds: a slice of the shortest window that slides.
_STEP = 5_000_000
# Of a month, and one more where the clocks of machines differ.
_MOST_DAYS = 32

_OF_CALLERS = ("caller_id", "key_id", "team", "model")
_OF_USERS = ("caller_id", "user_id")


class Spent(NamedTuple):
    """What was used by one caller with one key, or by one user of a caller. Cost is in 10**-12 USD."""

    window: Calendar | Literal["lately"]
    at: float
    """Of what was used `lately`: seconds since 1970, when it was admitted."""
    caller_id: str
    key_id: str
    """By which limits count it: of keys that go on for each other, that of the first."""
    team: str
    user_id: str
    model: str
    requests: int
    tokens: int
    cost: int


class Whose(NamedTuple):
    """Whose sums are asked for."""

    callers: Collection[str] = ()
    keys: Collection[str] = ()
    teams: Collection[str] = ()
    users: Collection[tuple[str, str]] = ()
    """A caller's id, and the user's."""


async def spent_by(
    database: Database, begins: Mapping[Calendar, date], whose: Whose, counted_as: Mapping[str, str]
) -> list[Spent]:
    """What these have used since these days began; all rows of each, and some of others. Raises
    `StoreUnavailable`. `counted_as`: by the id of a key, the one by which it is counted, where that is
    another.
    """
    columns = usage_daily.c
    keys = _with_later_keys(whose.keys, counted_as)
    theirs = or_(
        columns.caller_id.in_(whose.callers), columns.key_id.in_(keys), columns.team.in_(whose.teams)
    )
    users: dict[str, list[str]] = {}
    for caller, user in whose.users:
        users.setdefault(caller, []).append(user)
    found: list[Spent] = []
    async with database.read("limits") as connection:
        for window, begin in begins.items():
            if whose.callers or whose.keys or whose.teams:
                query = _since(usage_daily, _OF_CALLERS, begin).where(theirs)
                found += [_of_caller(window, row) for row in (await connection.execute(query)).all()]
            # By each day and name, since the index has the days first, and there may be very many users.
            days = [begin + timedelta(days) for days in range(_MOST_DAYS)]
            for caller, names in users.items():
                columns = usage_users.c
                query = _since(usage_users, _OF_USERS, begin).where(
                    columns.day.in_(days), columns.caller_id == caller, columns.user_id.in_(names)
                )
                found += [_of_user(window, row) for row in (await connection.execute(query)).all()]
    return [_counted(each, counted_as) for each in found]


async def spent_lately(
    database: Database, whose: Whose, now: float, counted_as: Mapping[str, str]
) -> list[Spent]:
    """What these have used in the hour before `now` (seconds since 1970), in steps of five seconds. Raises
    `StoreUnavailable`. `counted_as`: as in `spent_by`.
    """
    # Who has no key, or no team, is NULL in a row.
    caller, key, team, user = (
        func.coalesce(ledger.c[name], "") for name in ("caller_id", "key_id", "team", "user_id")
    )
    theirs = or_(
        caller.in_(whose.callers),
        key.in_(_with_later_keys(whose.keys, counted_as)),
        team.in_(whose.teams),
        tuple_(caller, user).in_(whose.users),
    )
    async with database.read("limits") as connection:
        rows = (await connection.execute(_of_last_hour(now).where(theirs))).all()
    return [_counted(_lately(row), counted_as) for row in rows]


def _with_later_keys(keys: Collection[str], counted_as: Mapping[str, str]) -> set[str]:
    """These, and those that went on for them."""
    return {*keys, *(id for id, first in counted_as.items() if first in keys)} if keys else set()


def _counted(spent: Spent, counted_as: Mapping[str, str]) -> Spent:
    first = counted_as.get(spent.key_id)
    return spent if first is None else spent._replace(key_id=first)


def _of_last_hour(now: float) -> Select[Any]:
    columns = ledger.c
    # What fails without any output counts as no request, unless its client did not want to wait any longer.
    patient = func.coalesce(columns.fault, "") != "client_timeout"
    failed = and_(columns.status >= 500, func.coalesce(columns.output, 0) == 0, patient)
    counts = and_(columns.run == 1, not_(func.coalesce(failed, False)))
    step = columns.started_at - columns.started_at % _STEP
    by = [columns[name] for name in ("caller_id", "key_id", "team", "user_id", "model")]
    return (
        select(
            step,
            *by,
            func.sum(case((counts, 1), else_=0)),
            func.sum(func.coalesce(columns.input, 0) + func.coalesce(columns.output, 0)),
            func.sum(func.coalesce(columns.cost, 0)),
        )
        .where(columns.id >= first_id(now - _HOUR))
        .group_by(step, *by)
    )


def _since(table: Table, by: Sequence[str], begin: date) -> Select[Any]:
    columns = table.c
    requests: ColumnElement[int] = columns.requests
    if "failed" in columns:
        # What fails counts as no request, as far as the sums tell: which of it had output they do not know.
        # Of a background response each run may fail, and one is counted.
        requests = case((requests > columns.failed, requests - columns.failed), else_=0)
    sums = (requests, columns.input + columns.output, columns.cost)
    keys = [columns[name] for name in by]
    return select(*keys, *(func.sum(each) for each in sums)).where(columns.day >= begin).group_by(*keys)


def _lately(row: Any) -> Spent:
    step, caller, key, team, user, model, *sums = row
    at = int(step) / 1e6
    return Spent(
        "lately", at, caller or "", key or "", team or "", user or "", model or "", *map(_number, sums)
    )


def _of_caller(window: Calendar, row: Any) -> Spent:
    caller, key, team, model, *sums = row
    return Spent(window, 0.0, caller, key, team, "", model, *map(_number, sums))


def _of_user(window: Calendar, row: Any) -> Spent:
    caller, user, *sums = row
    return Spent(window, 0.0, caller, "", "", user, "", *map(_number, sums))


def _number(value: Any) -> int:
    # PostgreSQL's sums are of a decimal type.
    return int(value or 0)
