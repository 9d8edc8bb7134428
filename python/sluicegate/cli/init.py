"""`init`: write a configuration to begin with."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from sluicegate.cli.places import local_servers
from sluicegate.cli.reports import load
from sluicegate.cli.upstreams import UpstreamCommand, given, name_for, place_of, upstream_options


@dataclass(frozen=True, slots=True)
class _Server:
    name: str
    place: Mapping[str, str]
    """Its profile, its URL, or both."""
    variable: str | None = None
    remark: str = ""


@click.command(cls=UpstreamCommand)
@upstream_options
@click.option("--detect", is_flag=True, help="Look for inference servers on this machine's usual ports.")
@click.option("--from-env", is_flag=True, help="Take the providers whose keys are set (OPENAI_API_KEY, …).")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default="sluicegate.yaml",
    show_default=True,
    help="Where to write it; `-` is standard output.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def init(
    upstreams: tuple[str, ...],
    key_envs: tuple[str, ...],
    detect: bool,
    from_env: bool,
    output: Path,
    force: bool,
) -> None:
    """Write a commented configuration, and check it.

    Keys are never written: the file names the variables that hold them.
    """
    servers = [_Server(one.name, place_of(one.url), one.variable) for one in given(upstreams, key_envs)]
    if detect:
        servers += _detected(servers)
    if from_env:
        servers += _from_environment(servers)
    if not servers and (detect or from_env):
        places = {"on the usual ports": detect, "in the environment": from_env}
        looked = " and ".join(place for place, asked in places.items() if asked)
        raise click.ClickException(f"found nothing {looked}: name a server with --upstream URL.")
    text = _text(servers or [_Server("local", {"profile": "ollama"}, remark="http://127.0.0.1:11434/v1")])
    if str(output) == "-":
        click.echo(text, nl=False)
        return
    try:
        # `x`: a file that is there is somebody's work.
        with output.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise click.ClickException(f"{output} is there already: --force replaces it.") from None
    except OSError as error:
        raise click.ClickException(f"cannot write {output}: {error.strerror or error}") from None
    config = load(output)
    click.echo(f"{output}: written and checked (upstreams: {', '.join(config.upstreams)})")
    where = "" if output == Path("sluicegate.yaml") else f" {output}"
    click.echo(f"Next: `sluicegate check --connect{where}`, then `sluicegate serve{where}`.")


def _detected(known: Iterable[_Server]) -> list[_Server]:
    from sluicegate import discovery
    from sluicegate.config import profile

    known = list(known)
    found: list[_Server] = []
    for port, listing in local_servers().items():
        if listing.base_url in {server.place.get("base_url") for server in known}:
            continue
        name = name_for(listing.base_url, [server.name for server in (*known, *found)])
        usual = ", ".join(profile(one).title for one in discovery.local_servers()[port])
        place = place_of(listing.base_url, listing.owner)
        found.append(_Server(name, place, remark=f"found on port {port} ({usual})"))
    return found


def _from_environment(known: Iterable[_Server]) -> list[_Server]:
    from sluicegate.config import profiles

    taken = {server.name for server in known}
    return [
        _Server(one.name, {"profile": one.name}, one.key_variable)
        for one in profiles()
        if one.is_hosted and os.environ.get(one.key_variable or "") and one.name not in taken
    ]


def _text(servers: Iterable[_Server]) -> str:
    return _HEAD + "\n".join(_upstream(server) for server in servers) + _TAIL


def _upstream(server: _Server) -> str:
    lines = [f"  {_quoted(server.name)}:"]
    if server.remark:
        lines.append(f"    # {server.remark}")
    lines += [f"    {name}: {_quoted(value)}" for name, value in server.place.items()]
    if server.variable is not None:
        lines.append(f"    api_key: ${{{server.variable}}}")
    lines.append("    discover: true    # ask it for its models, and serve them")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    import yaml

    # A scalar of a document of its own ends with `...`.
    written: str = yaml.safe_dump(text, width=10_000, allow_unicode=True)
    return written.removesuffix("...\n").strip()


_HEAD = """\
# sluicegate's configuration. `sluicegate check` looks at it, `sluicegate serve` serves it, and a gateway that
# runs follows it. `sluicegate schema` prints the JSON Schema with every setting.

server:
  host: 127.0.0.1    # 0.0.0.0 lets other machines in: set `keys` first
  port: 8080

# Who may call. Without keys anyone may who can connect.
# keys:
#   - name: me
#     key: ${MY_KEY}

# ${NAME} is taken from the environment: no secret need stand here. `sluicegate profiles` lists profiles.
upstreams:
"""

_TAIL = """
# Names of your own, with the upstreams that serve them, tried in order. They win over what is discovered.
# models:
#   small: UPSTREAM/MODEL
#   large: [UPSTREAM/MODEL, OTHER/MODEL]

# USD per million tokens, where the built-in list has no price or another one.
# prices:
#   small: {input: 0.5, cached_input: 0.1, output: 2}

# Prompts and replies of /v1/responses are kept, as OpenAI does, unless a request says `store: false`.
responses:
  store: true    # false: keep nothing; `background` and `previous_response_id` need it
  retention_seconds: 2592000    # 30 days
"""
