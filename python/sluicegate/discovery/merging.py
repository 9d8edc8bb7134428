"""Merging a configuration with the models that its upstreams list."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from sluicegate.config import (
    Config,
    DiscoverConfig,
    ModelConfig,
    RouteConfig,
    UpstreamConfig,
    profile_of_owner,
    wildcard_matches,
)
from sluicegate.discovery.asking import Listing


@dataclass(frozen=True, slots=True)
class Found:
    """What is served: the configuration with the models that were found, and who has not listed any yet."""

    config: Config
    unlisted: tuple[str, ...]
    """Upstreams without a list so far: a model that nobody else serves is forwarded to them."""
    matched: tuple[str, ...] = ()
    """Names that a wildcard matches, of models that an upstream of it lists."""


def merge(config: Config, listings: Mapping[str, Listing | None]) -> Found:
    """`config` with the models in `listings`, which are by upstream; None: it had a list, and that is stale.

    A configured model wins over one that was found, and so does a setting. The second upstream with a model
    serves it as `upstream/model`, in the order of the configuration, whoever answered first.
    """
    upstreams = dict(config.upstreams)
    models = dict(config.models)
    unlisted = []
    for name, upstream in config.upstreams.items():
        if upstream.discover is None:
            continue
        if name not in listings:
            unlisted.append(name)
            continue
        listing = listings[name]
        if listing is None:
            continue
        upstreams[name] = fitted(upstream, listing)
        for model in listing.models:
            public = _public_name(model, upstream.discover)
            # A star in it would make it a wildcard.
            if public is None or "*" in public or public in config.models or public in config.aliases:
                continue
            if public in models:
                public = f"{name}/{public}"
            route = RouteConfig.model_construct(upstream=name, model=model)
            models.setdefault(public, ModelConfig.model_construct(routes=(route,)))
    merged = config.model_copy(update={"upstreams": upstreams, "models": models})
    return Found(merged, tuple(unlisted), tuple(_matched(config, listings)))


def _matched(config: Config, listings: Mapping[str, Listing | None]) -> Iterator[str]:
    for name, model in config.models.items():
        for route in model.routes if "*" in name else ():
            listing = listings.get(route.upstream)
            before, _, after = route.model.partition("*")
            for listed in () if listing is None else listing.models:
                if wildcard_matches(route.model, listed):
                    yield name.replace("*", listed[len(before) : len(listed) - len(after)])


def fitted(upstream: UpstreamConfig, listing: Listing) -> UpstreamConfig:
    """`upstream` as its list shows it: where its endpoints were found, and with the profile of the server
    that the list names, unless the configuration names one. Its own settings go before the profile's.
    """
    found = None if "profile" in upstream.model_fields_set else profile_of_owner(listing.owner)
    if found is not None:
        own = upstream.model_dump(exclude_unset=True)
        return UpstreamConfig.model_validate({**own, "profile": found.name, "base_url": listing.base_url})
    if listing.base_url != upstream.base_url:
        return upstream.model_copy(update={"base_url": listing.base_url})
    return upstream


def _public_name(model: str, discover: DiscoverConfig) -> str | None:
    if discover.include and not _matches(model, discover.include):
        return None
    if _matches(model, discover.exclude):
        return None
    return f"{discover.prefix}{model}"


def _matches(model: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(model, pattern) for pattern in patterns)
