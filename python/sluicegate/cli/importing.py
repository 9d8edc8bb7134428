"""`import`: make a configuration of another gateway's."""

from pathlib import Path

import click


@click.group("import")
def import_() -> None:
    """Make a configuration of another gateway's."""


@import_.command()
@click.argument("file", type=click.Path(path_type=Path))
def litellm(file: Path) -> None:
    """Print what LiteLLM's proxy configuration FILE says as a configuration of sluicegate's.

    What has no counterpart is listed on standard error, by line. Exits with 1 where FILE cannot be read, or
    has no model that can be served.
    """
    import yaml

    from sluicegate.cli.litellm import translate
    from sluicegate.cli.reports import show
    from sluicegate.config.source import read

    source = read(file)
    if source.data is None or source.faults:
        show(file, source.faults, "error")
        raise SystemExit(1)
    result = translate(source.data)
    for place, message in result.remarks:
        # A place that is not in the file is told where what it would stand in begins.
        known = (place[:length] for length in range(len(place), -1, -1))
        line = next((source.lines[part] for part in known if part in source.lines), 1)
        click.echo(f"{file}:{line}: {_path(place)}: {message}", err=True)
    upstreams = result.data["upstreams"].values()
    if not result.data.get("models") and not any("discover" in upstream for upstream in upstreams):
        click.echo(f"{file}: there is no model that can be served", err=True)
        raise SystemExit(1)
    click.echo(yaml.safe_dump(result.data, sort_keys=False, allow_unicode=True, width=110), nl=False)


def _path(place: tuple[str | int, ...]) -> str:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return path.removeprefix(".") or "the file"
