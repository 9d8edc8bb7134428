"""What the sections of a configuration say of each other."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

from pydantic_core import PydanticCustomError

from sluicegate.config.callers import caller_faults, key_faults
from sluicegate.config.models import star_faults, unknown_upstream
from sluicegate.config.names import alias_faults
from sluicegate.config.passthrough import passthrough_faults
from sluicegate.config.quantities import fault
from sluicegate.config.routing import MOST_HEADERS

if TYPE_CHECKING:
    from sluicegate.config.root import Config

Place = tuple[str | int, ...]


class Named(NamedTuple):
    """What the file has, with or without faults."""

    upstreams: Collection[str]
    models: Collection[str]
    may_be_found: bool
    """An upstream lists its models itself."""


def disagreements(config: "Config", named: Named) -> Iterator[PydanticCustomError]:
    """Each of them, at its place."""
    yield from star_faults(config.models)
    yield from _unknown_upstreams(config, named.upstreams)
    yield from _mixed_credentials(config)
    yield from caller_faults(config.callers, config.teams)
    yield from key_faults(config.keys, config.callers)
    yield from passthrough_faults(config.passthrough)
    yield from alias_faults(config.aliases, named.models, may_be_found=named.may_be_found)
    yield from _limits(config)
    if config.access == "open" and config.keys:
        message, hint = "says `open`, and there are keys", "take one of the two out"
        yield fault("access", message, hint, at=("access",), lacks=())
    if len(config.shown_headers) > MOST_HEADERS:
        yield fault(
            "header",
            f"names more than {MOST_HEADERS} headers, with those of policies",
            "each is looked for in every request",
            at=("routing", "headers"),
            lacks=(),
        )


def idle_limits(config: "Config") -> tuple[str, ...]:
    """The names of limits that nobody in the configuration has: callers of the database may have them."""
    return tuple(sorted(config.limits.keys() - {name for _, name in _limit_uses(config)}))


def _unknown_upstreams(config: "Config", upstreams: Collection[str]) -> Iterator[PydanticCustomError]:
    named: list[tuple[Place, str]] = [
        (("models", name, "routes", index, "upstream"), route.upstream)
        for name, model in config.models.items()
        for index, route in enumerate(model.routes)
    ]
    for index, path in enumerate(config.passthrough):
        if path.upstream is not None:
            named.append((("passthrough", index, "upstream"), path.upstream))
    for place, name in named:
        unknown = unknown_upstream(name, upstreams, place)
        if unknown is not None:
            yield unknown


def _mixed_credentials(config: "Config") -> Iterator[PydanticCustomError]:
    """Models of which a fallback would change whose credentials are used."""
    for name, model in config.models.items():
        upstreams = [config.upstreams.get(route.upstream) for route in model.routes]
        forwards = {upstream.forward_authorization for upstream in upstreams if upstream is not None}
        if len(forwards) > 1:
            yield fault(
                "credentials",
                "has routes that pass the client's credentials on and routes that do not: a fallback would "
                "change whose credentials are used",
                "give the upstreams with `forward_authorization` a model of their own",
                at=("models", name, "routes"),
                lacks=(),
            )


def _limits(config: "Config") -> Iterator[PydanticCustomError]:
    for place, name in _limit_uses(config):
        if name not in config.limits:
            message = f"names the limits `{name}`, which are not in `limits`"
            lacks = (("limits", name),)
            yield fault("limits", message, "add them, or name others", at=place, lacks=lacks)
    if not config.needs_keys:
        users = (("keys",), ("callers",), ("teams",), ("users",), ("access",))
        for name in idle_limits(config):
            hint = "give it to a key, a caller, a team or `users`"
            yield fault("limits", "is given to nobody", hint, at=("limits", name), lacks=users)


def _limit_uses(config: "Config") -> Iterator[tuple[Place, str]]:
    uses: list[tuple[Place, str | None]] = [
        (("callers", index, "limits"), caller.limits) for index, caller in enumerate(config.callers)
    ]
    uses += [(("keys", index, "limits"), key.limits) for index, key in enumerate(config.keys)]
    uses += [(("teams", name, "limits"), team.limits) for name, team in config.teams.items()]
    if config.users is not None:
        uses.append((("users", "limits"), config.users.limits))
    for place, name in uses:
        if name is not None:
            yield place, name
