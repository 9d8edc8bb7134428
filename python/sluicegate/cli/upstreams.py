"""`--upstream [NAME=]URL` and the `--key-env VARIABLE` that belongs to the one before it."""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)=(.+)", re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ORDER = "sluicegate.cli.upstreams"
_OPTIONS = ("--upstream", "--key-env")

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Given:
    """One upstream of the command line. `name` is empty where none was given."""

    name: str
    url: str
    variable: str | None = None
    """The environment variable that holds its key."""


class UpstreamCommand(click.Command):
    """A command that knows in which order its options were given, which click itself does not tell."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        ctx.meta[_ORDER] = [
            name for arg in args[:end] for name in _OPTIONS if arg == name or arg.startswith(f"{name}=")
        ]
        return super().parse_args(ctx, args)


def upstream_options(command: _F) -> _F:
    """The two options; a command takes them as `upstreams` and `key_envs`, for `given`."""
    key = click.option(
        "--key-env",
        "key_envs",
        metavar="VARIABLE",
        multiple=True,
        help="The environment variable that holds the key for the --upstream before it.",
    )
    url = click.option(
        "--upstream",
        "upstreams",
        metavar="[NAME=]URL",
        multiple=True,
        help="An inference server (http://127.0.0.1:11434). It is asked for its models. May be repeated.",
    )
    return url(key(command))


def given(upstreams: Sequence[str], key_envs: Sequence[str]) -> list[Given]:
    """What the command line says, in its order, each with a name of its own. Raises `click.UsageError`."""
    order = click.get_current_context().meta.get(_ORDER, [])
    if (order.count("--upstream"), order.count("--key-env")) != (len(upstreams), len(key_envs)):
        raise click.UsageError("--upstream and --key-env cannot be values of other options.")
    found: list[Given] = []
    urls, variables = iter(upstreams), iter(key_envs)
    for option in order:
        if option == "--upstream":
            found.append(_read(next(urls)))
            continue
        variable = next(variables)
        if not found or found[-1].variable is not None:
            raise click.UsageError(f"--key-env {variable} must follow the --upstream that it belongs to.")
        if _VARIABLE.fullmatch(variable) is None:
            # It may be the key itself.
            raise click.UsageError("--key-env takes the name of an environment variable, not a key.")
        if not os.environ.get(variable):
            raise click.UsageError(f"the environment variable {variable} is not set.")
        found[-1] = replace(found[-1], variable=variable)
    return _named(found)


def _read(text: str) -> Given:
    named = _NAMED.fullmatch(text)
    # A URL's own `=` comes after its colon or slash, which no name has.
    name, url = (named[1], named[2]) if named is not None else ("", text)
    if "://" not in url:
        url = f"http://{url}"
    return Given(name, url.rstrip("/"))


def _named(found: Iterable[Given]) -> list[Given]:
    taken: set[str] = set()
    named: list[Given] = []
    for one in found:
        if one.name in taken:
            raise click.UsageError(f"two upstreams are called {one.name}.")
        name = one.name or name_for(one.url, taken)
        taken.add(name)
        named.append(replace(one, name=name))
    return named


def name_for(url: str, taken: Iterable[str] = ()) -> str:
    """A name for the server at `url` that is none of `taken`."""
    from sluicegate.config import profile_at

    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "upstream", parts.port
    except ValueError:
        host, port = "upstream", None
    known = profile_at(url)
    base = known.name if known is not None else "ollama" if port == 11434 else ""
    if not base:
        base = "local" if _is_address(host) or host == "localhost" else host.split(".")[-2:][0]
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    return name


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def place_of(url: str, owner: str = "") -> dict[str, str]:
    """The settings that say where a server is, and what it is, as its URL or its models' `owner` tell."""
    from sluicegate.config import profile_at, profile_of_owner

    known = profile_of_owner(owner) or profile_at(url)
    if known is None:
        return {"base_url": url}
    return {"profile": known.name} if url == known.base_url else {"profile": known.name, "base_url": url}


def as_data(upstreams: Iterable[Given]) -> dict[str, dict[str, Any]]:
    """The `upstreams` of a configuration, as in a file: a key is the variable that holds it."""
    data: dict[str, dict[str, Any]] = {}
    for one in upstreams:
        data[one.name] = {**place_of(one.url), "discover": True}
        if one.variable is not None:
            data[one.name]["api_key"] = f"${{{one.variable}}}"
    return data
