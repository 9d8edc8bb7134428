"""`check` and `schema`: what a configuration says, without serving it."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import click

from sluicegate.cli.places import ask_all, configuration_paths, find_configuration
from sluicegate.cli.reports import Form, show, show_as_json, show_for_github

if TYPE_CHECKING:
    from sluicegate.config import Config, Report
    from sluicegate.discovery import Listing, NoListing
    from sluicegate.errors import ConfigurationFault


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(get_args(Form)),
    default="text",
    show_default=True,
    help="github: workflow commands, which show at their lines.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings, too.")
@click.option(
    "--connect",
    is_flag=True,
    help="Ask each upstream for its models, and Redis and PostgreSQL to be let in. It bills nothing, and "
    "writes nothing.",
)
def check(file: Path | None, form: Literal["text", "json", "github"], strict: bool, connect: bool) -> None:
    """Check a configuration FILE and show everything that is wrong with it.

    Without FILE the one is checked that `serve` would read. Exits with 0 if it is good, 1 if not, and 2 where
    the command itself is wrong.
    """
    from sluicegate.config import check_file

    file = file or find_configuration()
    if file is None:
        places = ", ".join(str(path) for path in configuration_paths())
        raise click.UsageError(f"there is no configuration at {places}.")
    report = check_file(file)
    asked = None
    # Where something has a fault, the rest is looked at all the same.
    if report.rest is not None:
        report = report.with_more(_faults_of_machine(report, report.rest))
    if connect and report.rest is not None:
        asked = _ask(report, report.rest)
        report = _with_answers(report, report.rest, asked)
    if report.config is not None:
        from sluicegate.cli.budgets import blind_budgets

        report = report.with_more((), blind_budgets(report.config))
    ok = not report.faults and not (strict and report.warnings)
    if form == "json":
        show_as_json(file, report, ok, None if asked is None else _as_data(asked))
    elif form == "github":
        show_for_github(file, report)
    else:
        _show_text(file, report, ok, asked)
    raise SystemExit(0 if ok else 1)


@click.command()
def schema() -> None:
    """Print the JSON Schema of the configuration, for editors."""
    from sluicegate.config import json_schema

    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))


class _Asked(NamedTuple):
    """What was answered."""

    upstreams: "dict[str, Listing | NoListing]"
    stores: dict[str, str | None]
    """By the path of the setting: why there is no way in; None: there is one."""


def _faults_of_machine(report: "Report", config: "Config") -> "Iterator[ConfigurationFault]":
    """What this machine lacks: files, rights, libraries. Of settings without faults only."""
    from sluicegate.errors import ConfigurationError
    from sluicegate.ledger import ledger_faults
    from sluicegate.responses import store_faults
    from sluicegate.routing.upstreams import make_upstream
    from sluicegate.server.certificate import check_certificate
    from sluicegate.storage import postgresql_faults, redis_faults

    for name, upstream in config.upstreams.items():
        if report.whole("upstreams", name):
            try:
                make_upstream(name, upstream)
            except ConfigurationError as error:
                yield from (replace(fault, path=f"upstreams.{name}") for fault in error.faults)
    for path, section in (("server", config.server), ("admin", config.admin)):
        if section is not None and section.tls is not None and report.whole(path, "tls"):
            try:
                check_certificate(section.tls, f"{path}.tls")
            except ConfigurationError as error:
                yield from error.faults
    if report.whole("responses"):
        yield from store_faults(config.responses)
        yield from postgresql_faults(config.responses.url, "responses.url")
    if not report.whole("storage"):
        return
    if config.ledger is not None:
        yield from ledger_faults(config.storage)
    yield from postgresql_faults(config.storage.database, "storage.database")
    yield from redis_faults(config.storage.counters, config.storage.counters_ca_file)


def _ask(report: "Report", config: "Config") -> _Asked:
    """What upstreams and stores answer whose settings have no faults."""
    from sluicegate.admission import SESSIONS
    from sluicegate.storage import why_no_postgresql, why_no_redis

    stores: dict[str, str | None] = {}
    told = {fault.path for fault in report.faults}
    for path, url in (("storage.database", config.storage.database), ("responses.url", config.responses.url)):
        if url is not None and path not in told and report.whole(*path.split(".")):
            stores[path] = asyncio.run(why_no_postgresql(url))
    storage, path = config.storage, "storage.counters"
    if storage.counters is not None and report.whole("storage") and not told & {path, f"{path}_ca_file"}:
        stores[path] = why_no_redis(storage.counters, storage.counters_ca_file, SESSIONS)
    upstreams = {
        name: upstream
        for name, upstream in config.upstreams.items()
        if report.whole("upstreams", name) and f"upstreams.{name}" not in told
    }
    return _Asked(ask_all(upstreams), stores)


def _with_answers(report: "Report", config: "Config", asked: _Asked) -> "Report":
    """With a fault for each server that does not answer, and a warning for each model that one lacks."""
    from sluicegate.config.source import spell
    from sluicegate.discovery import NoListing, key_variable
    from sluicegate.errors import ConfigurationFault

    faults, warnings = [], []
    for name, answer in asked.upstreams.items():
        path = f"upstreams.{name}"
        if not isinstance(answer, NoListing):
            continue
        if answer.kind == "no_list":
            # Some servers have no list, and serve all the same.
            warnings.append(ConfigurationFault(path, answer.reason, "its models cannot be checked"))
            continue
        hint = None
        if answer.kind == "unauthorized":
            variable = key_variable(config.upstreams[name]) or "VARIABLE"
            hint = f"`api_key: ${{{variable}}}`"
        faults.append(ConfigurationFault(path, answer.reason, hint))
    for path, reason in asked.stores.items():
        if reason is not None:
            faults.append(ConfigurationFault(path, f"does not let the gateway in: {reason}", None))
    for name, model in config.models.items():
        for route in model.routes:
            listing = asked.upstreams.get(route.upstream)
            if listing is None or isinstance(listing, NoListing) or "*" in route.model:
                continue
            if route.model not in listing.models:
                message = f"is not listed by {route.upstream}: {route.model}"
                warnings.append(ConfigurationFault(spell(("models", name)), message, _names(listing)))
    return report.with_more(faults, warnings)


def _names(answer: "Listing") -> str:
    if not answer.models:
        return "it lists none"
    more = ", …" if len(answer.models) > 5 else ""
    return f"it lists {', '.join(answer.models[:5])}{more}"


def _as_data(asked: _Asked) -> dict[str, object]:
    from sluicegate.discovery import NoListing

    upstreams = {
        name: {"ok": False, "reason": answer.reason}
        if isinstance(answer, NoListing)
        else {"ok": True, "base_url": answer.base_url, "models": list(answer.models)}
        for name, answer in asked.upstreams.items()
    }
    stores = {
        path: {"ok": True} if reason is None else {"ok": False, "reason": reason}
        for path, reason in asked.stores.items()
    }
    return {"upstreams": upstreams, "stores": stores}


def _show_text(file: Path, report: "Report", ok: bool, asked: _Asked | None) -> None:
    from sluicegate.discovery import NoListing

    show(file, report.faults, "error")
    show(file, report.warnings, "warning")
    config = report.config
    for name, answer in ({} if asked is None else asked.upstreams).items():
        if not isinstance(answer, NoListing):
            count = len(answer.models)
            click.echo(f"{name}: answers at {answer.base_url}, {count} model{'' if count == 1 else 's'}")
    for path, reason in ({} if asked is None else asked.stores).items():
        if reason is None:
            click.echo(f"{path}: lets the gateway in")
    if ok and config is not None:
        discover = any(upstream.discover is not None for upstream in config.upstreams.values())
        models = [*config.models, *(["those that are discovered"] if discover else [])]
        click.echo(f"{file}: ok (upstreams: {', '.join(config.upstreams)}; models: {', '.join(models)})")
