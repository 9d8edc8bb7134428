"""The command line. What a command needs is imported when it runs: `--help` is quick."""

import click

from sluicegate.cli.callers import audit, callers
from sluicegate.cli.check import check, schema
from sluicegate.cli.explain import explain
from sluicegate.cli.importing import import_
from sluicegate.cli.init import init
from sluicegate.cli.keys import keys
from sluicegate.cli.ledger import ledger, usage
from sluicegate.cli.profiles import profiles
from sluicegate.cli.route import route
from sluicegate.cli.scripted import demo, mock
from sluicegate.cli.serve import serve


def _version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from sluicegate import __version__

        click.echo(f"sluicegate {__version__}")
        context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the version.",
)
def main() -> None:
    """A streaming gateway for LLM traffic."""


for _command in (
    serve,
    init,
    check,
    route,
    explain,
    profiles,
    import_,
    schema,
    callers,
    keys,
    audit,
    usage,
    ledger,
    mock,
    demo,
):
    main.add_command(_command)

__all__ = ["main"]
