"""`explain`: what an error code means, and what to do about it."""

import textwrap
from difflib import get_close_matches

import click

_WIDTH = 96


@click.command()
@click.argument("code", required=False)
def explain(code: str | None) -> None:
    """Say what an error CODE means, what usually causes it, and what to do.

    CODE is the `code` of an error reply, its header `x-sluicegate-error`, or the `fault` of a log line.
    Without CODE all codes are listed.
    """
    from sluicegate.catalogue import CATALOGUE

    if code is None:
        width = max(map(len, CATALOGUE))
        for name, known in sorted(CATALOGUE.items()):
            click.echo(f"{name:{width}}  {known.meaning}")
        return
    if code not in CATALOGUE:
        close = get_close_matches(code, CATALOGUE, n=1)
        hint = f" Did you mean `{close[0]}`?" if close else " `sluicegate explain` lists them all."
        raise click.UsageError(f"{code!r} is no code of this gateway's.{hint}")
    entry = CATALOGUE[code]
    click.echo(f"{code}{f' ({entry.statuses})' if entry.statuses else ''}")
    click.echo(_filled(entry.meaning, ""))
    for title, items in (("Likely causes", entry.causes), ("What to do", entry.remedies)):
        click.echo(f"\n{title}:")
        for item in items:
            click.echo(_filled(item, "- "))


def _filled(text: str, mark: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent=f"  {mark}", subsequent_indent="  " + " " * len(mark))
