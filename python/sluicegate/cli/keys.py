"""`keys`: keys of callers, whether a gateway runs or not; those of the configuration are only listed."""

import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sluicegate.cli.callers import (
    JSON,
    allowed,
    allowed_options,
    on_callers,
    operator,
    shown,
    shown_limits,
    warn_of_unserved,
)
from sluicegate.cli.stores import CONFIG, show_table

if TYPE_CHECKING:
    from sluicegate.config import Config
    from sluicegate.identity import ConfiguredKey, MadeKey, StoredCaller, StoredKey
    from sluicegate.storage import Database

# Far more than a header can carry.
_LONGEST = 65_536

_KEY = click.argument("text", metavar="KEY")
_EXPIRES = click.option("--expires", help="When it stops working: 2027-01-31, or 2027-01-31T12:00Z.")


@click.group()
def keys() -> None:
    """Keys of callers: making, listing, replacing and ending them."""


@keys.command()
@click.argument("caller")
@CONFIG
@click.option("--name", help="What it is for.")
@_EXPIRES
@allowed_options
@JSON
def create(
    caller: str,
    file: Path | None,
    name: str | None,
    expires: str | None,
    limits: str | None,
    models: tuple[str, ...],
    endpoints: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make a key of a caller, by its name or id, and print it: it is nowhere else.

    What it may narrows what its caller may.
    """
    from sluicegate.identity import create_key

    data = {"expires": expires, **allowed(limits, models, endpoints)}
    if name is not None:
        data["name"] = name

    async def make(database: "Database", config: "Config") -> "MadeKey":
        if not config.needs_keys:
            click.echo("warning: this configuration asks nobody for a key; say `access: keys`", err=True)
        made = await create_key(database, config, caller, data, operator())
        warn_of_unserved(models, config)
        return made

    made = on_callers(file, make)
    _show_made(made, as_json, f"key {made.key.id}: this is shown once")


@keys.command("list")
@CONFIG
@click.option("--caller", help="Of this caller alone, by its name or id.")
@click.option("--all", "ended", is_flag=True, help="Those that are revoked, too.")
@JSON
def list_(file: Path | None, caller: str | None, ended: bool, as_json: bool) -> None:
    """List keys: those of the configuration, and then those of the database."""
    from sluicegate.identity import NoSuchCaller, configured_keys, list_callers, list_keys

    async def all_of_them(
        database: "Database", config: "Config"
    ) -> "tuple[list[ConfiguredKey], list[StoredKey], list[StoredCaller]]":
        configured = configured_keys(config, caller)
        try:
            stored = await list_keys(database, config, caller)
        except NoSuchCaller:
            # It may be one that is a key of the configuration alone.
            if not configured:
                raise
            stored = []
        return configured, stored, await list_callers(database, config)

    configured, stored, known = on_callers(file, all_of_them)
    names = {each.id: each.name for each in known}
    names |= {key.caller_id: key.caller for key in configured}
    now = time.time()
    lines = [key.as_data(now) for key in configured]
    lines += [key.as_data(now) for key in stored if ended or key.revoked is None]
    if as_json:
        _print(lines)
        return
    rows = [["id", "caller", "name", "source", "state", "expires", "ends in"]]
    for line in lines:
        said = [line["id"], names.get(line["caller"], line["caller"]), line["name"] or "-", line["source"]]
        ends = "-" if line["last_four"] is None else f"…{line['last_four']}"
        rows.append([*said, line["state"], line["expires"] or "never", ends])
    show_table(rows)


@keys.command()
@_KEY
@CONFIG
@JSON
def show(text: str, file: Path | None, as_json: bool) -> None:
    """Show what is known of a KEY: its public id, or the key itself, as it was found somewhere.

    `-` reads it from standard input, so that it stands in no history of the shell.
    """
    key = on_callers(file, _meant(text))
    data = key.as_data(time.time())
    if as_json:
        _print(data)
        return
    data |= {"limits": shown_limits(key.fields.limits), "models": shown(key.fields.models)}
    data |= {"endpoints": shown(key.fields.endpoints)}
    show_table([[name, str(value or "-")] for name, value in data.items()])


@keys.command()
@_KEY
@CONFIG
@click.option(
    "--overlap", default="24h", show_default=True, help="How long the old key works on: 30m, 24h, 7d, 0."
)
@_EXPIRES
@JSON
def rotate(text: str, file: Path | None, overlap: str, expires: str | None, as_json: bool) -> None:
    """Make a key in the place of another KEY, and print it: it is nowhere else.

    KEY is the old one's public id, or the old one itself; `-` reads it from standard input. The new key may
    what the old one may, and lasts as long as that one was made for.
    """
    from sluicegate.identity import rotate_key

    meant = _meant(text)

    async def rotated(database: "Database", config: "Config") -> "tuple[MadeKey, StoredKey]":
        id = _of_database(await meant(database, config)).id
        return await rotate_key(database, id, operator(), overlap=overlap, expires=expires)

    made, old = on_callers(file, rotated)
    ends = old.as_data(time.time())["expires"]
    note = f"key {made.key.id}: this is shown once; the old key {old.id} works until {ends}"
    _show_made(made, as_json, note)


@keys.command()
@_KEY
@CONFIG
@JSON
def revoke(text: str, file: Path | None, as_json: bool) -> None:
    """End a KEY at once and for good. Running gateways know within two seconds.

    KEY is its public id, or the key itself, as it was found somewhere; `-` reads it from standard input, so
    that it stands in no history of the shell.
    """
    from sluicegate.identity import revoke_key

    meant = _meant(text)

    async def revoked(database: "Database", config: "Config") -> "StoredKey":
        return await revoke_key(database, _of_database(await meant(database, config)).id, operator())

    key = on_callers(file, revoked)
    if as_json:
        _print(key.as_data(time.time()))
    else:
        click.echo(f"{key.id}: revoked")


def _meant(text: str) -> "Callable[[Database, Config], Awaitable[StoredKey | ConfiguredKey]]":
    """Finds the key that the argument KEY means; `-` is read now."""
    if text == "-":
        if sys.stdin.isatty():
            text = click.prompt("key", hide_input=True, err=True)
        else:
            text = sys.stdin.readline(_LONGEST)
    text = text.strip().removeprefix("Bearer ")

    async def find(database: "Database", config: "Config") -> "StoredKey | ConfiguredKey":
        from sluicegate.identity import key_meant

        return await key_meant(database, config, text)

    return find


def _of_database(key: "StoredKey | ConfiguredKey") -> "StoredKey":
    from sluicegate.identity import ConfiguredKey, Conflict

    if isinstance(key, ConfiguredKey):
        raise Conflict(
            f"the key of `{key.caller}` is the configuration's, in `keys`: take it out there, "
            "which a running gateway sees"
        )
    return key


def _show_made(made: "MadeKey", as_json: bool, note: str) -> None:
    if as_json:
        _print({**made.key.as_data(time.time()), "key": made.text})
    else:
        # The key alone is on standard output: KEY=$(sluicegate keys create lab).
        click.echo(note, err=True)
        click.echo(made.text)


def _print(data: Any) -> None:
    click.echo(json.dumps(data, indent=2, ensure_ascii=False))
