"""`/usage`, `/requests` and `/live`: what was used, by whom, and what is under way."""

from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, Field
from starlette.requests import Request
from starlette.responses import Response

from sluicegate.admin.answers import Answered, answer, not_found, page
from sluicegate.admin.asking import Asked, Paged, PageSize, Text, parameters
from sluicegate.admin.watched import Watched
from sluicegate.ledger import GROUPS, Ledger, Period, TooManyLines, newest, report, row_with

MOST_GROUPS = 10_000

_MICRO = 10**6


def _groups(value: str) -> str:
    names = value.split(",")
    unknown = [name for name in names if name not in GROUPS]
    if unknown or len(set(names)) != len(names):
        raise ValueError(f"takes some of {', '.join(GROUPS)}, each once")
    return value


def _id(value: str) -> str:
    return str(UUID(value))


Id = Annotated[str, Field(min_length=36, max_length=36), AfterValidator(_id)]


class _Usage(Asked):
    by: Annotated[Text, AfterValidator(_groups)] = "caller,model"
    first: date | None = Field(default=None, alias="from")
    last: date | None = Field(default=None, alias="to")
    caller: Text | None = None
    limit: PageSize = 100
    after: int = Field(default=0, ge=0, le=MOST_GROUPS)
    """How many lines the pages before had."""


class _Requests(Paged):
    caller: Text | None = None
    result: Literal["ok", "failed", "refused", "client_left", "cancelled", "interrupted"] | None = None
    before: Id | None = None


class _Live(Paged):
    after: Id | None = None


class Reports:
    def __init__(self, gateway: Watched) -> None:
        self._gateway = gateway

    async def usage(self, request: Request) -> Response:
        asked = parameters(request, _Usage)
        database = self._ledger().database
        wanted = report(
            database, asked.by.split(","), Period(asked.first, asked.last), asked.caller, most=MOST_GROUPS
        )
        try:
            lines = await database.undisturbed(wanted)
        except TooManyLines as error:
            message = f"`by`: {error}: ask for a shorter time, or for one caller."
            raise Answered(400, "too_many_groups", message, param="by") from None
        except ValueError as error:
            raise Answered(400, "invalid_parameter", f"`by`: {error}.", param="by") from None
        end = asked.after + asked.limit
        shown = [line.as_data() for line in lines[asked.after : end]]
        return page(shown, str(end) if end < len(lines) else None)

    async def requests(self, request: Request) -> Response:
        asked = parameters(request, _Requests)
        database = self._ledger().database
        wanted = newest(database, asked.limit, caller=asked.caller, result=asked.result, before=asked.before)
        rows, before = await database.undisturbed(wanted)
        return page(rows, before)

    async def request(self, request: Request) -> Response:
        database = self._ledger().database
        given: str = request.path_params["id"]
        try:
            row = await database.undisturbed(row_with(database, _id(given)))
        except ValueError:
            row = None
        if row is None:
            raise not_found("request", given)
        return answer(row)

    async def live(self, request: Request) -> Response:
        asked = parameters(request, _Live)
        journal = self._ledger().journal
        rows = [] if journal is None else journal.live(asked.after, asked.limit + 1)
        shown = rows[: asked.limit]
        now = datetime.now(UTC).timestamp() * _MICRO
        return page([_live(row, now) for row in shown], shown[-1]["id"] if len(rows) > len(shown) else None)

    def _ledger(self) -> Ledger:
        ledger = self._gateway.ledger
        if ledger is None:
            raise Answered(404, "no_ledger", "This gateway keeps no ledger: `ledger: {}` lets it keep one.")
        return ledger


_SHOWN = (
    "id", "request_id", "response_id", "run", "background", "endpoint", "caller_id", "caller", "key_id",
    "team", "user_id", "model", "requested_model", "upstream", "upstream_model", "attempts", "started_at",
)  # fmt: skip


def _live(row: dict[str, Any], now: float) -> dict[str, Any]:
    started = row["started_at"]
    first_token = row["first_token"]
    return {
        **{name: row[name] for name in _SHOWN},
        "deployment": f"{row['upstream']}/{row['upstream_model']}",
        "seconds": None if started is None else round(max(0.0, now - started) / _MICRO, 3),
        "first_token_seconds": None if first_token is None else first_token / _MICRO,
        "input": row["input"] or row["estimated_input"],
        "output_events": row["token_events"],
        "bytes_in": row["bytes_in"],
    }
