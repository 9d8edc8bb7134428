"""`callers` and `audit`: who may call, in the database, whether a gateway runs or not."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sluicegate.cli.stores import CONFIG, configuration, on_database, show_table

if TYPE_CHECKING:
    from sluicegate.config import Config
    from sluicegate.identity import StoredCaller
    from sluicegate.storage import Database

Command = TypeVar("Command", bound=Callable[..., Any])
_T = TypeVar("_T")

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")

_LIMITS = "The name of limits in the configuration, or limits of its own: '{requests: 600/minute}'."


def allowed_options(command: Command) -> Command:
    """What a caller or a key may."""
    for option in (
        click.option("--endpoint", "endpoints", multiple=True, help="What it may call, any number of times."),
        click.option(
            "--model",
            "models",
            multiple=True,
            help="What it may use, any number of times: a name, or the start of one (llama-*).",
        ),
        click.option("--limits", help=_LIMITS),
    ):
        command = option(command)
    return command


def allowed(limits: str | None, models: tuple[str, ...], endpoints: tuple[str, ...]) -> dict[str, Any]:
    """As `CallerFields` and `KeyFields` take them: what was not given is left out."""
    found: dict[str, Any] = {}
    if limits is not None:
        found["limits"] = _limits(limits)
    if models:
        found["models"] = list(models)
    if endpoints:
        found["endpoints"] = list(endpoints)
    return found


def warn_of_unserved(models: Iterable[str], config: "Config") -> None:
    """A model may be configured after whoever may use it, so a name that nobody serves is no fault."""
    from sluicegate.config import unserved_models

    for _, message, hint in unserved_models(models, config):
        click.echo(f"warning: --model {message} ({hint})", err=True)


@click.group()
def callers() -> None:
    """Who may call: listing, making and changing callers of the database."""


@callers.command("list")
@CONFIG
@JSON
def list_(file: Path | None, as_json: bool) -> None:
    """List the callers, those of the configuration among them."""
    from sluicegate.identity import list_callers

    found = on_callers(file, list_callers)
    if as_json:
        _print([caller.as_data() for caller in found])
        return
    rows = [["name", "id", "source", "team", "limits", "models", "endpoints", ""]]
    show_table(rows + [_row(caller) for caller in found])


@callers.command()
@click.argument("name")
@CONFIG
@click.option("--team", help="A team of the configuration, whose limits hold for it, too.")
@allowed_options
@JSON
def create(
    name: str,
    file: Path | None,
    team: str | None,
    limits: str | None,
    models: tuple[str, ...],
    endpoints: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make a caller with this name. `keys create` makes its keys."""
    from sluicegate.identity import create_caller

    data = {"name": name, "team": team, **allowed(limits, models, endpoints)}

    async def make(database: "Database", config: "Config") -> "StoredCaller":
        made = await create_caller(database, config, data, operator())
        warn_of_unserved(models, config)
        return made

    caller = on_callers(file, make)
    _show(caller, as_json, "made")


@callers.command("set")
@click.argument("caller")
@CONFIG
@click.option("--name", help="Another name. Its id, and so what it has used and stored, stays.")
@click.option("--team", help="A team of the configuration, whose limits hold for it, too.")
@allowed_options
@click.option("--no-team", is_flag=True, help="It is in no team.")
@click.option("--no-limits", is_flag=True, help="It has no limits.")
@click.option("--all-models", is_flag=True, help="It may use all models.")
@click.option("--all-endpoints", is_flag=True, help="It may call all endpoints.")
@JSON
def set_(
    caller: str,
    file: Path | None,
    name: str | None,
    team: str | None,
    limits: str | None,
    models: tuple[str, ...],
    endpoints: tuple[str, ...],
    no_team: bool,
    no_limits: bool,
    all_models: bool,
    all_endpoints: bool,
    as_json: bool,
) -> None:
    """Change a caller of the database, by its name or id. What is not named stays."""
    changes = allowed(limits, models, endpoints)
    changes |= {key: value for key, value in (("name", name), ("team", team)) if value is not None}
    for cleared, key in (
        (no_team, "team"),
        (no_limits, "limits"),
        (all_models, "models"),
        (all_endpoints, "endpoints"),
    ):
        if cleared and key in changes:
            raise click.UsageError(f"{key} are given, and taken away.")
        if cleared:
            changes[key] = None
    if not changes:
        raise click.UsageError("there is nothing to change.")
    _change(caller, file, changes, as_json)


@callers.command()
@click.argument("caller")
@CONFIG
@JSON
def disable(caller: str, file: Path | None, as_json: bool) -> None:
    """Let a caller make no requests, with any of its keys, until it is enabled."""
    _change(caller, file, {"disabled": True}, as_json)


@callers.command()
@click.argument("caller")
@CONFIG
@JSON
def enable(caller: str, file: Path | None, as_json: bool) -> None:
    """Let a caller that was disabled make requests again."""
    _change(caller, file, {"disabled": False}, as_json)


@click.command()
@CONFIG
@click.option("--subject", help="Of this caller or key alone, by its id.")
@click.option("-n", "--number", type=click.IntRange(1, 10_000), default=50, show_default=True)
@JSON
def audit(file: Path | None, subject: str | None, number: int, as_json: bool) -> None:
    """Show who changed which caller or key, newest first."""
    from sluicegate.identity import audited

    async def entries(database: "Database", config: "Config") -> list[dict[str, Any]]:
        if not database.exists:
            return []
        return [entry.as_data() for entry in await audited(database, subject=subject, limit=number)]

    found = on_callers(file, entries)
    if as_json:
        _print(found)
        return
    rows = [["at", "who", "what", "subject", "change"]]
    for entry in found:
        change = json.dumps(entry["change"], ensure_ascii=False)
        rows.append([entry["at"], entry["actor"], entry["action"], entry["subject"], change])
    show_table(rows)


def on_callers(file: Path | None, work: "Callable[[Database, Config], Awaitable[_T]]") -> _T:
    """The result of `work` on the database of callers and keys, and the configuration."""
    from sluicegate.identity import IdentityError, open_callers

    config = configuration(file)
    what = "the database of callers and keys"
    try:
        return on_database(
            lambda: open_callers(config.storage), lambda database: work(database, config), what
        )
    except IdentityError as error:
        raise click.ClickException(str(error)) from None


def operator() -> str:
    """Who runs this, for the audit."""
    import os
    import pwd

    try:
        return f"os:{pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:
        return f"os:{os.getuid()}"


def _limits(text: str) -> Any:
    import yaml

    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        raise click.BadParameter("is neither a name nor limits", param_hint="--limits") from None
    return found if isinstance(found, dict) else text


def _change(caller: str, file: Path | None, changes: Mapping[str, Any], as_json: bool) -> None:
    from sluicegate.identity import change_caller

    async def change(database: "Database", config: "Config") -> "StoredCaller":
        changed = await change_caller(database, config, caller, changes, operator())
        warn_of_unserved(changes.get("models") or (), config)
        return changed

    changed = on_callers(file, change)
    _show(changed, as_json, "changed")


def _show(caller: "StoredCaller", as_json: bool, what: str) -> None:
    if as_json:
        _print(caller.as_data())
    else:
        click.echo(f"{caller.id}  {caller.name}: {what}")


def _row(caller: "StoredCaller") -> list[str]:
    fields = caller.fields
    said = [fields.team or "-", shown_limits(fields.limits), shown(fields.models), shown(fields.endpoints)]
    return [caller.name, caller.id, caller.source, *said, "disabled" if fields.disabled else ""]


def shown(names: tuple[str, ...] | None) -> str:
    return "all" if names is None else ", ".join(names) or "none"


def shown_limits(limits: Any) -> str:
    if limits is None or isinstance(limits, str):
        return limits or "-"
    return json.dumps(limits.model_dump(mode="json", exclude_defaults=True), ensure_ascii=False)


def _print(data: object) -> None:
    click.echo(json.dumps(data, indent=2, ensure_ascii=False))
