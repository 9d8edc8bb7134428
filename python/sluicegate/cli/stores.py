"""Work on a database of the configuration, whether a gateway runs or not."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from sluicegate.cli.places import configuration_paths, find_configuration
from sluicegate.cli.reports import load

if TYPE_CHECKING:
    from sluicegate.config import Config
    from sluicegate.storage import Database

CONFIG = click.option(
    "-c",
    "--config",
    "file",
    type=click.Path(path_type=Path),
    help="The configuration, which says where the database is; without it the one that `serve` would read.",
)

_T = TypeVar("_T")


def configuration(file: Path | None) -> "Config":
    """The configuration in `file`, or else in one of the usual places."""
    file = file or find_configuration()
    if file is None:
        places = ", ".join(str(path) for path in configuration_paths())
        raise click.UsageError(f"there is no configuration at {places}.")
    return load(file)


def on_database(
    open_it: "Callable[[], Database]", work: "Callable[[Database], Awaitable[_T]]", what: str
) -> _T:
    """The result of `work`. `what` it works on, where that cannot be read: `the ledger`."""
    from sluicegate.storage import StoreUnavailable

    async def run() -> _T:
        database = open_it()
        try:
            return await work(database)
        finally:
            await database.close()

    try:
        return asyncio.run(run())
    except StoreUnavailable as error:
        raise click.ClickException(f"{what} cannot be read: {error}") from None


def show_table(rows: list[list[str]], right: int | None = None) -> None:
    """Columns, of which those from `right` on are aligned at their ends. The first row is the head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if right is not None and place >= right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        click.echo("  ".join(cells).rstrip())
