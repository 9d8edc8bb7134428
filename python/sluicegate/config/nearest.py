"""What may have been meant: the nearest setting to a name that is not known, and what a place may hold."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, get_args, get_origin

from sluicegate.config.messages import MessagesConfig
from sluicegate.config.models import ModelConfig, RouteConfig
from sluicegate.config.root import Config
from sluicegate.config.section import Section
from sluicegate.config.server import ServerConfig
from sluicegate.config.settings import settings
from sluicegate.config.upstream import UpstreamConfig

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
        "logging": "server.log",
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
    # A setting of this very name that is one of a member's, or stands in another section.
    below = [one.path for one in settings(section) if "." in one.path and one.path.rpartition(".")[2] == name]
    beside = [one.path for one in settings() if one.path.rpartition(".")[2] == name]
    close = close_to(name, known)
    if close is None and (below or beside):
        return f"did you mean `{(below or beside)[0]}`?"
    return close or f"known: {', '.join(sorted(known))}"


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


def close_to(name: str, known: list[str]) -> str | None:
    """A hint with the one of `known` that is most like `name`; None where none is."""
    close = get_close_matches(name.lower(), known, n=1, cutoff=0.7)
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
