"""`route`: where a request would go, and why; nothing is sent."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sluicegate.cli.places import find_configuration
from sluicegate.cli.reports import load

if TYPE_CHECKING:
    from sluicegate.config import Config
    from sluicegate.routing.explaining import GivenFacts

_FRESH = "Nothing was sent. Loads, times and health are those of a gateway that has just started."


@click.command()
@click.argument("model")
@click.option("-c", "--config", "file", type=click.Path(path_type=Path), help="Default: what `serve` reads.")
@click.option("--prompt", default="", help="The user's first message.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME:VALUE", help="One of the client's; repeatable."
)
@click.option("--facts", help="All facts as one JSON object (size, affinity, headers, …), in place of these.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def route(
    model: str, file: Path | None, prompt: str, headers: tuple[str, ...], facts: str | None, as_json: bool
) -> None:
    """Say which deployments a request for MODEL would go to, in which order, and why."""
    from sluicegate.errors import ConfigurationError
    from sluicegate.routing import ModelTable
    from sluicegate.routing.explaining import describe, facts_of_prompt

    file = file or find_configuration()
    if file is None:
        raise click.UsageError("there is no configuration: name one with --config.")
    if facts is not None and (prompt or headers):
        raise click.UsageError("--facts are all the facts: leave --prompt and --header out.")
    config = load(file)
    given = (
        facts_of_prompt(config, model, prompt, dict(map(_header, headers)))
        if facts is None
        else _stated(facts)
    )
    try:
        found = ModelTable(config).find(model)
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from None
    if found is None:
        raise click.ClickException(_unknown(model, config))
    said = describe(found, given, config.models[found.group.name].policy.name)
    click.echo(json.dumps(said, indent=2, ensure_ascii=False) if as_json else _text(said))


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise click.UsageError(f"--header {text!r} is not NAME:VALUE.")
    return name.strip(), value.strip()


def _stated(text: str) -> "GivenFacts":
    from sluicegate.routing.explaining import GivenFacts

    try:
        return GivenFacts(**json.loads(text))
    except (ValueError, TypeError) as error:
        known = ", ".join(GivenFacts.__slots__)
        raise click.UsageError(f"--facts: {error}. Known facts: {known}.") from None


def _unknown(model: str, config: "Config") -> str:
    from difflib import get_close_matches

    names = [*config.models, *config.aliases]
    close = get_close_matches(model, names, n=1)
    hint = f"did you mean `{close[0]}`?" if close else f"there are: {', '.join(names)}"
    return f"no model, alias or wildcard is `{model}`; {hint}"


def _text(said: dict[str, Any]) -> str:
    facts = said["facts"]
    conversation = facts["affinity"] or "none"
    headers = "".join(f", {name}: {value}" for name, value in facts["headers"].items())
    stands = "" if said["asked"] == said["model"] else f" (asked for as {said['asked']})"
    head = ("", "deployment", "tier", "weight", "max_streams", "state", "first", "why")
    rows = [head, *map(_row, said["candidates"])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [
        f"model    {said['model']}{stands}",
        f"policy   {said['policy']}",
        f"request  {facts['endpoint']}, about {facts['tokens']} tokens, conversation {conversation}{headers}",
        "",
        *(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ),
        "",
        _FRESH,
    ]
    return "\n".join(lines)


def _row(candidate: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(candidate["rank"] or "-"),
        candidate["deployment"],
        str(candidate["tier"]),
        f"{candidate['weight']:g}",
        str(candidate["max_streams"] or "-"),
        candidate["state"],
        f"{100 * candidate['first']:.0f} %",
        candidate["why"],
    )
