"""`mock` and `demo`: the scripted upstream."""

import json
from pathlib import Path

import click


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=18101,
    show_default=True,
    help="The port; 0 is a free one.",
)
@click.option("--model", "models", multiple=True, help="A model that it lists. The option may be repeated.")
@click.option("--idle-seconds", type=float, help="How long an idle connection is kept.")
@click.option("--script", default="{}", help="""What it replies: '{"tokens": 50, "pace": 0.02}'""")
@click.option(
    "--book",
    type=click.Path(path_type=Path),
    help="A file that gets a line for each request.",
)
def mock(
    host: str,
    port: int,
    models: tuple[str, ...],
    idle_seconds: float | None,
    script: str,
    book: Path | None,
) -> None:
    """Run the scripted upstream: a server that replies as it is told, without a model."""
    from sluicegate.testing import ScriptError, run_mock, script_from_json
    from sluicegate.testing.server import DEFAULT_MODEL

    try:
        script_from_json(script)
    except ScriptError as error:
        raise click.BadParameter(str(error), param_hint="--script") from error
    served = models or (DEFAULT_MODEL,)
    try:
        status = run_mock(
            host, port, models=served, idle_seconds=idle_seconds, book=book, **json.loads(script)
        )
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    raise SystemExit(status)


@click.command()
def demo() -> None:
    """Show one streamed reply, with usage and cost, through a gateway in front of the scripted upstream."""
    from sluicegate.testing.demo import run_demo

    raise SystemExit(run_demo())
