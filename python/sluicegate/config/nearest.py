"""What may have been meant: the nearest setting to a name that is not known, and what a place may hold."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any, get_args, get_origin

from sluicegate.config.callers import CallerConfig, KeyConfig, TeamConfig, UsersConfig
from sluicegate.config.ledger import StorageConfig
from sluicegate.config.limits import LimitSet
from sluicegate.config.messages import MessagesConfig
from sluicegate.config.models import ModelConfig, RouteConfig
from sluicegate.config.root import Config, StoreConfig
from sluicegate.config.section import Section
from sluicegate.config.server import ServerConfig, TlsConfig
from sluicegate.config.settings import Setting, settings
from sluicegate.config.source import spell
from sluicegate.config.upstream import UpstreamConfig

# How much somebody may use is said once, in `limits`, and named where it is to hold.
_OF_LIMITS = dict.fromkeys(
    ("budget", "max_budget", "limit", "rate_limit", "cost", "requests", "tokens", "concurrent", "rpm", "tpm"),
    "limits",
)

# The names that other gateways and clients have for settings, and that look like none of ours.
_ELSEWHERE: Mapping[type[Section], Mapping[str, str]] = {
    Config: {
        "model_list": "models",
        "routes": "models",
        "providers": "upstreams",
        "backends": "upstreams",
        "endpoints": "upstreams",
        "auth": "keys",
        "tokens": "keys",
        "pricing": "prices",
        "costs": "prices",
        "listen": "server.host",
        "bind": "server.host",
        "host": "server.host",
        "port": "server.port",
        "tls": "server.tls",
        "url": "upstreams.NAME.base_url",
        "logging": "server.log",
        "budget": "limits",
        "budgets": "limits",
        "rate_limits": "limits",
        "fallbacks": "models",
        "redis": "storage.counters",
        "database_url": "storage.database",
    },
    TeamConfig: _OF_LIMITS,
    CallerConfig: {**_OF_LIMITS, "enabled": "disabled", "allowed_models": "models"},
    KeyConfig: {**_OF_LIMITS, "token": "key", "secret": "key", "value": "key", "caller": "name"},
    UsersConfig: _OF_LIMITS,
    LimitSet: {
        "budget": "cost",
        "max_budget": "cost",
        "usd": "cost",
        "rpm": "requests",
        "tpm": "tokens",
        "concurrency": "concurrent",
        "max_parallel_requests": "concurrent",
    },
    TlsConfig: {"certificate": "cert_file", "private_key": "key_file", "ca_file": "client_ca_file"},
    StorageConfig: {"url": "database", "path": "directory", "redis": "counters", "redis_url": "counters"},
    StoreConfig: {"database": "url", "enabled": "store"},
    ModelConfig: {
        "fallback": "routes",
        "fallbacks": "routes",
        "strategy": "policy",
        "routing_strategy": "policy",
        "retries": "retry",
        "num_retries": "retry",
    },
    ServerConfig: {
        "listen": "host",
        "bind": "host",
        "address": "host",
        "workers": "threads",
        "keepalive": "keepalive_seconds",
        "graceful_timeout": "drain_seconds",
        "shutdown_timeout": "drain_seconds",
        "body_limit": "max_body_bytes",
        "ssl": "tls",
    },
    MessagesConfig: {"auth": "key_header"},
    UpstreamConfig: {
        "timeout": "deadlines",
        "timeouts": "deadlines",
        "request_timeout": "deadlines",
        "timeout_seconds": "deadlines",
        "url": "base_url",
        "api_base": "base_url",
        "address": "base_url",
        "endpoint": "base_url",
        "host": "base_url",
        "key": "api_key",
        "token": "api_key",
        "verify": "ca_file",
        "extra_headers": "headers",
        "provider": "profile",
        "type": "profile",
        "api_version": "query",
        "auth_header": "key_header",
    },
}

_SHORT_FORMS: Mapping[type[Section], str] = {
    ModelConfig: "my-upstream",
    RouteConfig: "my-upstream/their-model",
}


@cache
def _settings(section: type[Section]) -> tuple[Setting, ...]:
    return tuple(settings(section))


def nearest(loc: tuple[str | int, ...]) -> str | None:
    """A hint for the setting at `loc`, which is not known: what may be meant, or what is known."""
    section = _section(loc[:-1])
    if section is None:
        return None
    name = str(loc[-1]).lower()
    elsewhere = _ELSEWHERE.get(section, {})
    if name.replace("-", "_") in elsewhere:
        return f"did you mean `{elsewhere[name.replace('-', '_')]}`?"
    known = list(section.model_fields)
    everywhere = [one.path for one in _settings(Config) if one.path.rpartition(".")[2] == name]
    # What is a setting's name somewhere is no slip of the keyboard: `cost` does not mean `host`.
    close = close_to(name, known, 0.85 if everywhere else 0.7)
    if close is not None:
        return close
    longer = [one for one in known if name in one.split("_")]
    if 0 < len(longer) <= 2:
        return f"did you mean {' or '.join(f'`{one}`' for one in longer)}?"
    moved = _moved(loc, section, name, everywhere)
    if moved:
        return f"did you mean `{moved}`?"
    return f"known: {', '.join(sorted(known))}" if known else "it has no settings"


def _moved(
    loc: tuple[str | int, ...], section: type[Section], name: str, everywhere: Sequence[str]
) -> str | None:
    """Where a setting of this very name is, and only one that is likely to be meant. A word such as `budget`
    means something else in each section that has it.
    """
    below = [
        one.path
        for one in _settings(section)
        if one.path.count(".") == 1 + one.path.count(".NAME") and one.path.endswith(f".{name}")
    ]
    if len(below) == 1:
        return below[0]
    # What stands one level too deep. The whole file is around `server`, but hardly meant within `teams.blue`.
    for length in range(len(loc) - 2, 0 if len(loc) > 2 else -1, -1):
        around = _section(loc[:length])
        if around is not None and name in around.model_fields:
            return spell((*loc[:length], name))
    near = [path for path in everywhere if _is_near(path, str(loc[0]), name)]
    return near[0] if len(near) == 1 else None


def _is_near(path: str, place: str, name: str) -> bool:
    """Whether the setting at `path` may be looked for in the top-level section `place`: what concerns models
    is often said of upstreams, and the other way round, and a name of several words means one thing.
    """
    top = path.partition(".")[0]
    if path.count(".") != 1 + path.count(".NAME"):
        return "_" in name and top == place
    return "_" in name or {top, place} == {"models", "upstreams"}


def shape(loc: tuple[str | int, ...]) -> str | None:
    """A hint for the value at `loc`, which has another shape than it should have, or is missing."""
    annotation = _annotation(loc)
    section = _section_of(annotation)
    if section is not None:
        form = _form(section)
        return f"such as {form}" if form else f"its members: {', '.join(section.model_fields)}"
    inner = _section_of(_inner(annotation))
    if inner is None:
        return None
    return (
        f"such as [{_form(inner)}]"
        if get_origin(annotation) is tuple
        else f"such as {{name: {_form(inner)}}}"
    )


def _form(section: type[Section]) -> str:
    """How the least of such a section is written; empty where nothing is required."""
    if section in _SHORT_FORMS:
        return _SHORT_FORMS[section]
    required = [name for name, info in section.model_fields.items() if info.is_required()]
    return "{" + ", ".join(f"{name}: …" for name in required) + "}" if required else ""


def close_to(name: str, known: list[str], cutoff: float = 0.7) -> str | None:
    """A hint with the one of `known` that is most like `name`; None where none is."""
    close = get_close_matches(name.lower(), known, n=1, cutoff=cutoff)
    return f"did you mean `{close[0]}`?" if close else None


def _annotation(loc: tuple[str | int, ...]) -> Any:
    """The type of what is at `loc`; None where there is nothing."""
    annotation: Any = Config
    for step in loc:
        section = _section_of(annotation)
        if section is not None and isinstance(step, str) and step in section.model_fields:
            annotation = section.model_fields[step].annotation
        else:
            annotation = _inner(annotation)
    return annotation


def _inner(annotation: Any) -> Any:
    """The type of a list's item or of a mapping's value: the one that stands last, or before an ellipsis."""
    inner = [arg for arg in get_args(annotation) if arg not in (Ellipsis, type(None))]
    return inner[-1] if inner else None


def _section(loc: tuple[str | int, ...]) -> type[Section] | None:
    return _section_of(_annotation(loc))


def _section_of(annotation: Any) -> type[Section] | None:
    """The section that this type is, or may be (`TlsConfig | None`)."""
    for kind in (annotation, *(() if get_origin(annotation) in (tuple, Mapping) else get_args(annotation))):
        if get_origin(kind) is None and isinstance(kind, type) and issubclass(kind, Section):
            return kind
    return None
