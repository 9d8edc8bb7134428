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

    What has no counterpart, or one that differs, is listed on standard error, by line. Exits with 1 where
    FILE cannot be read, or has no model that can be served.
    """
    import yaml

    from sluicegate.cli.litellm import translate
    from sluicegate.cli.reports import show
    from sluicegate.config.source import read, spell

    source = read(file)
    if source.data is None or source.faults:
        show(file, source.faults, "error")
        raise SystemExit(1)
    result = translate(source.data)
    # A place that is not in the file is told where what it would stand in begins.
    told = [(source.line(place) or 1, place, message) for place, message in result.remarks]
    for line, place, message in sorted(told, key=lambda each: each[0]):
        click.echo(f"{file}:{line}: {spell(place) or 'the file'}: {message}", err=True)
    upstreams = result.data["upstreams"].values()
    if not result.data.get("models") and not any("discover" in upstream for upstream in upstreams):
        click.echo(f"{file}: there is no model that can be served", err=True)
        raise SystemExit(1)
    click.echo(yaml.safe_dump(result.data, sort_keys=False, allow_unicode=True, width=110), nl=False)
