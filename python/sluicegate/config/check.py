"""Checking a configuration: every fault at once, and what is legal but unlikely to be meant."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic_core import ErrorDetails

from sluicegate.config.environment import expand
from sluicegate.config.names import matches
from sluicegate.config.nearest import close_to, nearest, shape
from sluicegate.config.profiles import profile
from sluicegate.config.rights import unserved_models
from sluicegate.config.root import Config
from sluicegate.config.rounds import Rounds
from sluicegate.config.section import Section
from sluicegate.config.source import Place, Source, read, spell
from sluicegate.config.upstream import UpstreamConfig
from sluicegate.errors import ConfigurationError, ConfigurationFault

# Pydantic's words for these are about Python; the reader wrote YAML or TOML.
_MESSAGES = {
    "missing": "is missing",
    "model_type": "should be a mapping",
    "dict_type": "should be a mapping",
    "mapping_type": "should be a mapping",
    "tuple_type": "should be a list",
    "string_type": "should be text",
    "bool_parsing": "should be true or false",
    "bool_type": "should be true or false",
    "int_parsing": "should be a whole number",
    "int_type": "should be a whole number",
    "int_from_float": "should be a whole number",
    "float_parsing": "should be a number",
    "float_type": "should be a number",
    "decimal_parsing": "should be a number",
    "decimal_type": "should be a number",
    "finite_number": "should be a finite number",
    "string_too_short": "is empty",
}

# What these are missing is said by what the place may hold.
_SHAPES = {"model_type", "dict_type", "mapping_type", "tuple_type", "missing"}

# Settings whose place something else has taken: nearest names would mislead.
_GONE = {
    ("server", "workers"): (
        "is not a setting any more: the gateway is one process",
        "`server.threads` is the number of its threads; leave it out for one fewer than there are cores",
    )
}


@dataclass(frozen=True)
class Report:
    """What a check found. `config` is there when there are no faults; warnings never stop anything."""

    config: Config | None
    faults: tuple[ConfigurationFault, ...]
    warnings: tuple[ConfigurationFault, ...]
    rest: Config | None = field(default=None, repr=False)
    """What is left where all that has a fault is left out; None where that says too little."""
    left_out: frozenset[Place] = frozenset()
    """What has a fault, or names a variable that is not set."""
    source: Source = field(default_factory=Source, repr=False)

    def whole(self, *place: str | int) -> bool:
        """Whether what is at `place` is in `rest` as the file has it."""
        return not any(place[: len(gone)] == gone[: len(place)] for gone in self.left_out)

    def with_more(
        self, faults: Iterable[ConfigurationFault], warnings: Iterable[ConfigurationFault] = ()
    ) -> "Report":
        """With these as well, each with its line; the configuration is gone where there are faults."""
        lines = {spell(place): line for place, line in self.source.lines.items()}
        new = tuple(_with_line(fault, lines) for fault in faults)
        return replace(
            self,
            config=None if new else self.config,
            faults=tuple(sorted((*self.faults, *new), key=_line)),
            warnings=(*self.warnings, *(_with_line(warning, lines) for warning in warnings)),
        )


def _line(fault: ConfigurationFault) -> int:
    return fault.line or 0


def _with_line(fault: ConfigurationFault, lines: Mapping[str, int]) -> ConfigurationFault:
    """With the line of its place, or of what is around that."""
    path = fault.path
    while fault.line is None and path:
        if path in lines:
            return replace(fault, line=lines[path])
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return fault


def check_file(path: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> Report:
    """Check the file at `path`; variables are taken from `environ` (default: the process's)."""
    return check_source(read(Path(path)), environ)


def load_file(path: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> Config:
    """The configuration in the file at `path`. Raises `ConfigurationError` with every fault in it."""
    return _config(check_file(path, environ))


def load_data(data: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Config:
    """The configuration in `data`, shaped as in a file. Raises `ConfigurationError` with every fault."""
    return _config(check_source(Source(data=data), environ))


def _config(report: Report) -> Config:
    if report.config is None:
        raise ConfigurationError(report.faults)
    return report.config


def check_source(source: Source, environ: Mapping[str, str] | None = None) -> Report:
    """Check what was read."""
    if source.data is None:
        return Report(None, tuple(sorted(source.faults, key=_line)), (), source=source)
    missing = expand(source, os.environ if environ is None else environ)
    found = Rounds(source.data, missing)
    for place, detail in found.faults:
        source.add(place, *_said(detail))
    config = None if source.faults else found.config
    return Report(
        config,
        tuple(sorted(source.faults, key=_line)),
        () if config is None else tuple(_warnings(config, source)),
        found.config,
        frozenset(found.left_out) | missing,
        source,
    )


def _is_priced(name: str, config: Config) -> bool:
    """Whether a price under `name` is one of some request's: both may be wildcards."""
    known = {*config.models}
    for model in config.models.values():
        for route in model.routes:
            known |= {route.model, f"{route.upstream}/{route.model}"}
    return name in known or any(
        ("*" in one and matches(one, name)) or ("*" in name and matches(name, one)) for one in known
    )


def _said(detail: ErrorDetails) -> tuple[str, str | None]:
    kind, loc = detail["type"], detail["loc"]
    context = detail.get("ctx", {})
    if kind == "extra_forbidden" and loc in _GONE:
        return _GONE[loc]
    if kind == "extra_forbidden":
        return "is not known here", nearest(loc)
    if kind == "literal_error":
        choices = [choice.strip("'") for choice in str(context["expected"]).replace(" or ", ", ").split(", ")]
        return f"should be {context['expected']}", close_to(str(detail["input"]), choices)
    if kind == "string_type" and isinstance(detail["input"], int | float):
        return _MESSAGES[kind], "put it into quotes"
    if kind in _MESSAGES:
        return _MESSAGES[kind], shape(loc) if kind in _SHAPES else None
    if "hint" in context:
        return detail["msg"], context["hint"]
    message = detail["msg"].removeprefix("Input ")
    return message[:1].lower() + message[1:], None


def _warnings(config: Config, source: Source) -> Iterator[ConfigurationFault]:
    routes = [route for model in config.models.values() for route in model.routes]
    if config.is_open_unsaid:
        yield source.fault(
            ("server", "host"),
            "is reachable from other machines, and there are no keys",
            "add `keys`, or say `access: open`",
        )
    if config.access is None:
        for name in config.idle_limits:
            yield source.fault(
                ("limits", name),
                "is given to nobody here",
                "give it to somebody, or say `access: keys` where callers are made by commands",
            )
    for section, users in (("callers", config.callers), ("keys", config.keys)):
        for index, user in enumerate(users):
            for number, message, hint in unserved_models(user.models or (), config):
                yield source.fault((section, index, "models", number), message, hint)
    for section, limits in config.limits.items():
        # An alias stands for its model there.
        names = [model for model in limits.models if model not in config.aliases]
        for number, message, hint in unserved_models(names, config):
            yield source.fault(("limits", section, "models", names[number]), message, hint)
    if config.users is not None and config.ledger is not None and config.storage.counters is None:
        section = config.users.limits
        for name, amounts in config.limits[section].models.items():
            rates = (*amounts.requests, *amounts.tokens, *amounts.cost)
            if any(rate.window in ("day", "week", "month") for rate in rates):
                yield source.fault(
                    ("limits", section, "models", name),
                    "begins anew with each start: what a user had of one model is not in the ledger's sums",
                    "limit a user's day, week or month for all models together, or keep `storage.counters`",
                )
    if not source.ends_whole:
        yield source.fault(
            (), "ends in the middle of a line: a running gateway will not take it", "end its last line"
        )
    for name, upstream in config.upstreams.items():
        # One that is asked for its models is also asked below /v1.
        known = profile(upstream.profile)
        if not (
            upstream.discover or upstream.paths or known.base_url == upstream.base_url or _path(upstream)
        ):
            yield source.fault(
                ("upstreams", name, "base_url"),
                "has no path: most servers answer below /v1 only",
                f"write {upstream.base_url}/v1, unless the server has its endpoints at the root",
            )
        if upstream.forward_authorization and config.needs_keys:
            yield source.fault(
                ("upstreams", name, "forward_authorization"),
                "passes the clients' keys for this gateway on",
                "give the upstream an `api_key`, or leave `keys` out",
            )
        if known.is_hosted and not _has_key(upstream):
            yield source.fault(
                ("upstreams", name),
                f"has no key, and {known.title} wants one",
                f"`api_key: ${{{known.key_variable}}}`",
            )
        alone = UpstreamConfig.model_validate({"base_url": upstream.base_url, **known.settings})
        for place in _said_already(source.data["upstreams"][name], known.settings, upstream, alone):
            yield source.fault(
                ("upstreams", name, *place), f"says what the profile {known.name} says already", "take it out"
            )
        for setting in upstream.without_effect:
            yield source.fault(
                ("upstreams", name, setting),
                f"changes nothing where `api` is `{upstream.apis}`",
                "take it out, or change `api`",
            )
    discover = {name for name, upstream in config.upstreams.items() if upstream.discover is not None}
    used = {route.upstream for route in routes} | {*config.passed_upstreams}
    for name in config.upstreams.keys() - used - discover:
        yield source.fault(("upstreams", name), "serves no model", "name it in `models`, or take it out")
    for name, price in config.prices.items():
        if not discover and not _is_priced(name, config):
            yield source.fault(
                ("prices", name),
                "prices a model that is not configured",
                close_to(name, list(config.models)) or "take it out",
            )
        if price.cached_input is None and price.output is not None:
            yield source.fault(
                ("prices", name),
                "has no price for cached input: a reply that used the cache has no cost",
                "add `cached_input`",
            )


def _path(upstream: UpstreamConfig) -> str:
    return urlsplit(upstream.base_url).path


def _has_key(upstream: UpstreamConfig) -> bool:
    return upstream.api_key is not None or upstream.forward_authorization or bool(upstream.headers)


def _said_already(
    own: Mapping[str, Any], known: Mapping[str, Any], now: object, alone: object
) -> Iterator[Place]:
    """Where `own` settings have the value that they would have by the profile's (`known`) alone."""

    def of(settings: object, name: str) -> object:
        return settings[name] if isinstance(settings, Mapping) else getattr(settings, name)

    for name in own.keys() & known.keys():
        ours, theirs = of(now, name), of(alone, name)
        if isinstance(ours, Section | Mapping) and isinstance(own[name], Mapping):
            for place in _said_already(own[name], known[name], ours, theirs):
                yield (name, *place)
        elif ours == theirs:
            yield (name,)
