"""The command line."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sluicegate.errors import ConfigurationFault

if TYPE_CHECKING:
    from sluicegate.config import Config

_PORT = click.IntRange(0, 65535)
_FILE = click.Path(path_type=Path)


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


@main.command()
@click.option(
    "--config",
    "file",
    type=_FILE,
    help="The configuration, a YAML or TOML file. Without it the gateway serves the scripted upstream.",
)
@click.option("--host", help="The address to listen on, in place of server.host.")
@click.option("--port", type=_PORT, help="The port to listen on, in place of server.port.")
@click.option(
    "--threads",
    type=click.IntRange(1, 256),
    help="How many threads move bytes, in place of server.threads.",
)
def serve(file: Path | None, host: str | None, port: int | None, threads: int | None) -> None:
    """Run the gateway until it is told to stop."""
    from sluicegate.server import serve as run

    config = _default() if file is None else _load(file)
    options = {"host": host, "port": port, "threads": threads}
    given = {name: value for name, value in options.items() if value is not None}
    config = config.model_copy(update={"server": config.server.model_copy(update=given)})
    if host is not None and config.is_open_unsaid:
        click.echo(f"warning: {host} is reachable from other machines, and there are no keys", err=True)
    raise SystemExit(run(config, file))


@main.command()
@click.argument("file", type=_FILE)
def check(file: Path) -> None:
    """Check a configuration FILE and show everything that is wrong with it."""
    config = _load(file)
    click.echo(f"{file}: ok (upstreams: {', '.join(config.upstreams)}; models: {', '.join(config.models)})")


@main.command()
def schema() -> None:
    """Print the JSON Schema of the configuration, for editors."""
    from sluicegate.config import json_schema

    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=_PORT, default=18101, show_default=True, help="The port; 0 is a free one.")
@click.option("--model", "models", multiple=True, help="A model that it lists. The option may be repeated.")
@click.option("--idle-seconds", type=float, help="How long an idle connection is kept.")
@click.option("--script", default="{}", help="""What it replies: '{"tokens": 50, "pace": 0.02}'""")
def mock(host: str, port: int, models: tuple[str, ...], idle_seconds: float | None, script: str) -> None:
    """Run the scripted upstream: a server that replies as it is told, without a model."""
    from sluicegate.testing import ScriptError, run_mock, script_from_json
    from sluicegate.testing.server import DEFAULT_MODEL

    try:
        script_from_json(script)
    except ScriptError as error:
        raise click.BadParameter(str(error), param_hint="--script") from error
    served = models or (DEFAULT_MODEL,)
    try:
        status = run_mock(host, port, models=served, idle_seconds=idle_seconds, **json.loads(script))
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    raise SystemExit(status)


@main.command()
def demo() -> None:
    """Show one streamed reply, with usage and cost, through a gateway in front of the scripted upstream."""
    from sluicegate.testing.demo import run_demo

    raise SystemExit(run_demo())


def _default() -> "Config":
    from sluicegate.config import Config

    config = Config.default()
    models = ", ".join(config.models)
    upstreams = ", ".join(upstream.base_url for upstream in config.upstreams.values())
    click.echo(f"No --config: serving {models} from {upstreams} (start it with `sluicegate mock`).", err=True)
    return config


def _load(file: Path) -> "Config":
    """The configuration in `file`; its faults and warnings are shown, and faults end the command."""
    from sluicegate.config import check_file

    report = check_file(file)
    _show(file, report.faults, click.style("error", fg="red"))
    _show(file, report.warnings, click.style("warning", fg="yellow"))
    if report.config is None:
        raise SystemExit(1)
    return report.config


def _show(file: Path, faults: Iterable[ConfigurationFault], label: str) -> None:
    # As compilers show them: editors and terminals know how to follow `file:line`.
    for fault in faults:
        place = str(file) if fault.line is None else f"{file}:{fault.line}"
        path = f"{fault.path}: " if fault.path else ""
        hint = f" ({fault.hint})" if fault.hint else ""
        click.echo(f"{place}: {label}: {path}{fault.message}{hint}", err=True)
