"""`serve`: run the gateway, from a file or for the upstreams of the command line."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sluicegate.cli.places import configuration_paths, find_configuration, local_servers
from sluicegate.cli.reports import load
from sluicegate.cli.upstreams import UpstreamCommand, as_data, given, upstream_options

if TYPE_CHECKING:
    from sluicegate.config import Config
    from sluicegate.server.running import Ready

_FILE = click.Path(path_type=Path)

# Without a file and without a port, the first free one of these.
FREE_PORTS = range(8080, 8090)


@click.command(cls=UpstreamCommand)
@click.argument("file", type=_FILE, required=False)
@click.option("-c", "--config", "config_file", type=_FILE, help="The same as FILE.")
@upstream_options
@click.option(
    "--print-config",
    is_flag=True,
    help="Print the configuration that the --upstream options make, as YAML, and exit.",
)
@click.option("--host", help="The address to listen on; overrides server.host.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="The port to listen on; overrides server.port. With --upstream: the first free one from 8080 on.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 256),
    help="The number of engine threads, which move bytes; overrides server.threads.",
)
@click.option("--no-store", is_flag=True, help="Store no responses; the same as `responses: {store: false}`.")
def serve(
    file: Path | None,
    config_file: Path | None,
    upstreams: tuple[str, ...],
    key_envs: tuple[str, ...],
    print_config: bool,
    host: str | None,
    port: int | None,
    threads: int | None,
    no_store: bool,
) -> None:
    """Run the gateway until it is told to stop.

    FILE is the configuration, YAML or TOML. Without it, and without --upstream, the first of these is read:
    ./sluicegate.yaml, $XDG_CONFIG_HOME/sluicegate/config.yaml, /etc/sluicegate/config.yaml.
    """
    if file is not None and config_file is not None:
        raise click.UsageError("FILE is given twice: once by itself, and once with --config.")
    file = config_file if file is None else file
    servers = given(upstreams, key_envs)
    if servers and file is not None:
        raise click.UsageError("A file and --upstream exclude each other: put the upstream into the file.")
    if print_config and not servers:
        raise click.UsageError("--print-config shows what --upstream stands for.")
    options = {"host": host, "port": port, "threads": threads}
    chosen = {name: value for name, value in options.items() if value is not None}
    if servers:
        data: dict[str, Any] = {"server": chosen} if chosen else {}
        data["upstreams"] = as_data(servers)
        if no_store:
            data["responses"] = {"store": False}
        if print_config:
            click.echo(_yaml(data), nl=False)
            return
        config = _load(data)
    else:
        file = file or find_configuration()
        if file is None:
            raise _NothingToServe
        config = load(file)
        update: dict[str, Any] = {"server": config.server.model_copy(update=chosen)}
        if no_store:
            update["responses"] = config.responses.model_copy(update={"store": False})
        config = config.model_copy(update=update)
    _run(config, file, FREE_PORTS if servers and port is None else (), warn=host is not None or bool(servers))


def _run(config: "Config", file: Path | None, ports: range | tuple[()], *, warn: bool) -> None:
    from sluicegate.server import serve as run

    host = config.server.host
    if warn and config.is_open_unsaid:
        click.echo(f"warning: {host} is reachable from other machines, and there are no keys", err=True)
    # Who starts it with a file and without a terminal reads the log.
    told = file is None or sys.stderr.isatty()
    raise SystemExit(run(config, file, ports=ports, tell=_tell if told else None))


def _tell(ready: "Ready") -> None:
    from sluicegate.cli.banner import banner

    click.echo(banner(ready), err=True)


def _load(data: dict[str, Any]) -> "Config":
    from sluicegate.config import load_data
    from sluicegate.errors import ConfigurationError

    try:
        return load_data(data)
    except ConfigurationError as error:
        raise click.UsageError("\n".join(str(fault) for fault in error.faults)) from None


def _yaml(data: dict[str, Any]) -> str:
    import yaml

    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    return text


class _NothingToServe(click.ClickException):
    exit_code = 2

    def __init__(self) -> None:
        super().__init__("there is no configuration")

    def format_message(self) -> str:
        from sluicegate.discovery import local_servers as usual

        places = "\n".join(f"  {path}" for path in configuration_paths())
        lines = ["There is no configuration. These were looked for:", places, ""]
        found = local_servers()
        if found:
            lines.append("These inference servers answer on this machine:")
            for port, listing in found.items():
                names = ", ".join(listing.models[:3]) or "no models"
                more = f" and {len(listing.models) - 3} more" if len(listing.models) > 3 else ""
                lines.append(f"  sluicegate serve --upstream http://127.0.0.1:{port}    # {names}{more}")
        else:
            ports = ", ".join(map(str, usual()))
            lines += [
                f"No inference server answers on the usual ports of this machine: {ports}.",
                "Name one, or try the scripted upstream, which needs no model:",
                "  sluicegate serve --upstream http://HOST:PORT",
                "  sluicegate mock",
            ]
        lines += ["", "`sluicegate init` writes a configuration to begin with."]
        return "\n".join(lines)
