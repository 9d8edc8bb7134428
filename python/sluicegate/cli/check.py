"""`check` and `schema`: what a configuration says, without serving it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import click

from sluicegate.cli.places import ask_all, configuration_paths, find_configuration
from sluicegate.cli.reports import Form, show, show_as_json, show_for_github

if TYPE_CHECKING:
    from sluicegate.config import Config, Report
    from sluicegate.discovery import Listing, NoListing


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
@click.option("--connect", is_flag=True, help="Ask each upstream for its models. It bills nothing.")
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
    if report.config is not None:
        config = report.config
        report = _with_budgets(_with_store(report, config), config)
    answers = None
    if connect and report.config is not None:
        answers = ask_all(report.config.upstreams)
        report = _with_answers(report, report.config, answers)
    ok = not report.faults and not (strict and report.warnings)
    if form == "json":
        show_as_json(file, report, ok, None if answers is None else _as_data(answers))
    elif form == "github":
        show_for_github(file, report)
    else:
        _show_text(file, report, ok, answers)
    raise SystemExit(0 if ok else 1)


@click.command()
def schema() -> None:
    """Print the JSON Schema of the configuration, for editors."""
    from sluicegate.config import json_schema

    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))


def _with_store(report: "Report", config: "Config") -> "Report":
    from sluicegate.ledger import ledger_faults
    from sluicegate.responses import store_faults
    from sluicegate.storage import redis_faults

    faults = store_faults(config.responses)
    if config.ledger is not None:
        faults += ledger_faults(config.storage)
    faults += redis_faults(config.storage.counters, config.storage.counters_ca_file)
    return replace(report, faults=(*report.faults, *faults))


def _with_budgets(report: "Report", config: "Config") -> "Report":
    """With a warning for each limit of cost that cannot see what requests cost."""
    from sluicegate.cli.budgets import blind_budgets

    return replace(report, warnings=(*report.warnings, *blind_budgets(config)))


def _with_answers(report: "Report", config: "Config", answers: "dict[str, Listing | NoListing]") -> "Report":
    """With a fault for each upstream that does not answer, and a warning for each model that it lacks."""
    from sluicegate.discovery import NoListing, key_variable
    from sluicegate.errors import ConfigurationFault

    faults, warnings = list(report.faults), list(report.warnings)
    for name, answer in answers.items():
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
    for name, model in config.models.items():
        for route in model.routes:
            answer = answers[route.upstream]
            if isinstance(answer, NoListing) or "*" in route.model:
                continue
            if route.model not in answer.models:
                message = f"is not listed by {route.upstream}: {route.model}"
                warnings.append(ConfigurationFault(f"models.{name}", message, _names(answer)))
    return replace(report, faults=tuple(faults), warnings=tuple(warnings))


def _names(answer: "Listing") -> str:
    if not answer.models:
        return "it lists none"
    more = ", …" if len(answer.models) > 5 else ""
    return f"it lists {', '.join(answer.models[:5])}{more}"


def _as_data(answers: "dict[str, Listing | NoListing]") -> dict[str, object]:
    from sluicegate.discovery import NoListing

    return {
        name: {"ok": False, "reason": answer.reason}
        if isinstance(answer, NoListing)
        else {"ok": True, "base_url": answer.base_url, "models": list(answer.models)}
        for name, answer in answers.items()
    }


def _show_text(
    file: Path, report: "Report", ok: bool, answers: "dict[str, Listing | NoListing] | None"
) -> None:
    from sluicegate.discovery import NoListing

    show(file, report.faults, "error")
    show(file, report.warnings, "warning")
    config = report.config
    for name, answer in (answers or {}).items():
        if not isinstance(answer, NoListing):
            count = len(answer.models)
            click.echo(f"{name}: answers at {answer.base_url}, {count} model{'' if count == 1 else 's'}")
    if ok and config is not None:
        discover = any(upstream.discover is not None for upstream in config.upstreams.values())
        models = [*config.models, *(["those that are discovered"] if discover else [])]
        click.echo(f"{file}: ok (upstreams: {', '.join(config.upstreams)}; models: {', '.join(models)})")
