"""`profiles`: what is known of kinds of servers."""

import textwrap
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sluicegate.config import Profile

_WIDTH = 96


@click.command()
@click.argument("name", required=False)
def profiles(name: str | None) -> None:
    """Show what an upstream's `profile: NAME` stands for, and what such a server does otherwise.

    Without NAME all profiles are listed: their APIs, the variable that usually holds the key, the URL.
    """
    from sluicegate import config
    from sluicegate.config.nearest import close_to

    if name is None:
        rows = [_row(one) for one in config.profiles()]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        for row in rows:
            click.echo(
                "  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3]])
            )
        return
    known = {one.name: one for one in config.profiles()}
    if name not in known:
        hint = close_to(name, list(known)) or "`sluicegate profiles` lists them all."
        raise click.UsageError(f"{name!r} is no profile. {hint[:1].upper()}{hint[1:]}")
    _show(known[name])


def _row(one: "Profile") -> tuple[str, str, str, str]:
    return one.name, one.apis, one.key_variable or "-", one.base_url or one.address or "-"


def _show(one: "Profile") -> None:
    import yaml

    click.echo(f"{one.name} ({one.title})")
    click.echo(_filled(one.about, ""))
    click.echo("\nWhat is left to say:")
    click.echo(textwrap.indent(one.example, "  "))
    if one.settings:
        click.echo("\nWhat it stands for:")
        settings = yaml.safe_dump(one.settings, sort_keys=False, width=_WIDTH, default_flow_style=None)
        click.echo(textwrap.indent(settings, "  ").rstrip())
    if one.deviations:
        click.echo("\nTo know:")
    for sentence in one.deviations:
        click.echo(_filled(sentence, "- "))


def _filled(text: str, mark: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent=f"  {mark}", subsequent_indent="  " + " " * len(mark))
