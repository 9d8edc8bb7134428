"""`usage` and `ledger`: what was used, on the database itself, whether a gateway runs or not."""

import csv
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from sluicegate.cli.stores import CONFIG, configuration, on_database, show_table

if TYPE_CHECKING:
    from sluicegate.ledger import Line, Period
    from sluicegate.storage import Database

_DAY = click.DateTime(["%Y-%m-%d"])
_FROM = click.option("--from", "first", type=_DAY, help="The first day: 2026-11-01.")
_TO = click.option("--to", "last", type=_DAY, help="The last day, which is included.")

_T = TypeVar("_T")


@click.command()
@CONFIG
@click.option(
    "--by", default="caller,model", show_default=True, help="day, caller, key, team, user, model, upstream."
)
@_FROM
@_TO
@click.option("--caller", help="Of this caller alone, by its name or id.")
@click.option(
    "--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True
)
def usage(
    file: Path | None, by: str, first: datetime | None, last: datetime | None, caller: str | None, form: str
) -> None:
    """Show what was used and what it cost, of the ledger."""
    from sluicegate.ledger import GROUPS, report

    groups = [name.strip() for name in by.split(",")]
    unknown = [name for name in groups if name not in GROUPS]
    if unknown or len(set(groups)) != len(groups):
        wrong = f"{unknown[0]!r} is none" if unknown else "one is given twice"
        raise click.BadParameter(f"{wrong}; there are {', '.join(GROUPS)}", param_hint="--by")
    try:
        lines = _on_database(file, lambda database: report(database, groups, _period(first, last), caller))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--by") from None
    if form == "json":
        click.echo(json.dumps([line.as_data() for line in lines], indent=2, ensure_ascii=False))
    elif form == "csv":
        _show_csv(groups, lines)
    else:
        _show_table(groups, lines)


@click.group()
def ledger() -> None:
    """The ledger: every request, with its usage and its cost."""


@ledger.command()
@CONFIG
@_FROM
@_TO
@click.option("--format", "form", type=click.Choice(["csv", "parquet"]), default="csv", show_default=True)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The file; without it, standard output."
)
def export(
    file: Path | None, first: datetime | None, last: datetime | None, form: str, output: Path | None
) -> None:
    """Write the ledger's rows: times in microseconds, costs in 10**-12 USD."""
    from sluicegate.ledger.export import to_csv, to_parquet

    period = _period(first, last)
    if form == "parquet":
        if output is None:
            raise click.UsageError("Parquet needs a file: --output rows.parquet")
        try:
            count = _on_database(file, lambda database: to_parquet(database, period, output))
        except ImportError:
            raise click.ClickException("Parquet needs pyarrow: pip install 'sluicegate[export]'") from None
    elif output is None:
        count = _on_database(file, lambda database: to_csv(database, period, sys.stdout))
    else:
        with output.open("w", newline="") as target:
            count = _on_database(file, lambda database: to_csv(database, period, target))
    click.echo(f"{count} rows", err=True)


@ledger.command()
@CONFIG
def verify(file: Path | None) -> None:
    """Check that rows cost what their prices say, and that the sums by day are those of their rows.

    Exits with 1 where one is not.
    """
    from sluicegate.ledger.verify import verify as check
    from sluicegate.pricing import charged_by

    wrong = _on_database(file, lambda database: check(database, charged_by))
    for what in wrong:
        click.echo(what)
    if wrong:
        raise SystemExit(1)
    click.echo("all rows cost what their prices say, and all sums are those of their rows")


def _on_database(file: Path | None, work: "Callable[[Database], Awaitable[_T]]") -> _T:
    from sluicegate.ledger import open_database

    storage = configuration(file).storage

    async def on_what_is_there(database: "Database") -> _T:
        if not database.exists:
            raise click.ClickException(f"there is no ledger at {database.path}")
        return await work(database)

    return on_database(lambda: open_database(storage), on_what_is_there, "the ledger")


def _period(first: datetime | None, last: datetime | None) -> "Period":
    from sluicegate.ledger import Period

    def day(time: datetime | None) -> date | None:
        return None if time is None else time.date()

    return Period(day(first), day(last))


def _show_csv(groups: Sequence[str], lines: "Sequence[Line]") -> None:
    writer = csv.writer(sys.stdout)
    rows = [line.as_data() for line in lines]
    if rows:
        writer.writerow(rows[0])
        writer.writerows(row.values() for row in rows)
    else:
        writer.writerow(groups)


def _show_table(groups: Sequence[str], lines: "Sequence[Line]") -> None:
    """The columns of people are fewer: nobody keeps more of them."""
    head = [*groups, "requests", "failed", "input", "cached", "output", "cost", "estimated"]
    rows = [head, *([_cell(line, name) for name in head] for line in lines)]
    shown = [
        place for place, name in enumerate(head) if name in groups or any(row[place] for row in rows[1:])
    ]
    show_table([[row[place] for place in shown] for row in rows], right=len(groups))


def _cell(line: "Line", name: str) -> str:
    sums = line.sums
    if name in line.group:
        return line.group[name] or "-"
    if name == "cost":
        return f"${line.usd:,.4f}"
    if name == "cached":
        return _share(sums["cached_input"], sums["input"]) if "cached_input" in sums else ""
    if name in ("failed", "estimated"):
        return _share(sums[name], sums["requests"]) if name in sums else ""
    return f"{sums[name]:,}"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"
