"""From the configuration of LiteLLM's proxy to ours: its models, and what serves them.

What its other sections say is in `litellm_settings.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import Any

from sluicegate.cli.litellm_settings import (
    LONGEST_SECONDS,
    MOST_ATTEMPTS,
    NO_COUNTERPART,
    Place,
    Settings,
    Translated,
    as_mapping,
    whole_number,
    written,
)
from sluicegate.cli.upstreams import name_for
from sluicegate.config import (
    DECIMALS_PER_MILLION,
    GENERIC,
    Profile,
    alias_target,
    profile,
    profiles,
    wildcard_matches,
)

_PER_MILLION = Decimal(1_000_000)
# What a price of ours may have before its point and behind it.
_MOST_PRICE = Decimal(10) ** 18
_MOST_TIERS = 100
_MOST_WEIGHT = 1_000_000

# Servers of OpenAI's API that have no address of their own, and no profile.
_ELSEWHERE = frozenset({"llamafile", "litellm_proxy", "custom_openai"})

_PRICES = {
    "input_cost_per_token": "input",
    "output_cost_per_token": "output",
    "cache_read_input_token_cost": "cached_input",
    "cache_creation_input_token_cost": "cache_write",
    "cache_creation_input_token_cost_above_1hr": "cache_write_1h",
    "output_cost_per_reasoning_token": "reasoning",
}
_DEADLINES = {"timeout": "total", "stream_timeout": "first_token"}
_SHARES = ("weight", "rpm", "tpm")
_USED = {
    "model", "api_base", "api_key", "api_version", "extra_headers", "organization", "order",
    "max_parallel_requests", "num_retries", *_DEADLINES, *_PRICES, *_SHARES,
}  # fmt: skip
# What describes a model, and changes nothing of how it is served.
_DESCRIPTIONS = ("id", "mode", "base_model", "description", "supports_", "max_")


@dataclass(frozen=True)
class _Deployment:
    """One entry of theirs, as a route."""

    upstream: str
    model: str
    place: Place
    order: int | None = None
    """The lowest is used first; None: after all that have one."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """What may be the weight: `weight`, `rpm` or `tpm`."""
    max_streams: int | None = None
    retries: int | None = None
    cost: Decimal | None = None
    """USD per million tokens, of input and output together."""
    tier: int = 0

    @property
    def route(self) -> str:
        return f"{self.upstream}/{self.model}"


def translate(document: Any) -> Translated:
    """What `document`, read from YAML, says in our terms. Never raises on what it holds."""
    return _Translation(document).run()


class _Translation:
    def __init__(self, document: Any) -> None:
        self._result = Translated()
        root = as_mapping(document, (), self._remark)
        self._settings = Settings(root, self._result)
        self._entries = root.get("model_list")
        self._upstreams: dict[str, dict[str, Any]] = {}
        self._groups: dict[str, list[_Deployment]] = {}
        self._prices: dict[str, dict[str, str]] = {}
        self._taken: set[str] = set()
        """Names that no upstream may have: a price of a route would be one of a public name, too."""

    def run(self) -> Translated:
        self._model_list()
        aliases = self._aliases()
        own = {name: _in_tiers(deployments) for name, deployments in self._groups.items()}
        whole = {name: [*deployments] for name, deployments in own.items()}
        for place, name, others in self._settings.fallbacks(tuple(own)):
            self._fall_back(place, name, others, own, whole, aliases)
        models = {name: self._model_of(name, routes, len(own[name])) for name, routes in whole.items()}
        data = self._result.data
        data |= self._settings.before()
        data["upstreams"] = self._upstreams
        if models:
            data["models"] = models
        if aliases:
            data["aliases"] = aliases
        data |= self._settings.behind()
        if self._prices:
            data["prices"] = self._prices
        self._settings.tell_the_rest()
        return self._result

    # === models ===

    def _model_list(self) -> None:
        if not isinstance(self._entries, list):
            self._remark(("model_list",), "is not a list")
            return
        found: list[tuple[Place, str, str, Mapping[str, Any], Mapping[str, Any]]] = []
        for index, entry in enumerate(self._entries):
            place: Place = ("model_list", index)
            model = as_mapping(entry, place, self._remark)
            params = as_mapping(model.get("litellm_params"), (*place, "litellm_params"), self._remark)
            info = as_mapping(model.get("model_info"), (*place, "model_info"), self._remark)
            name, target = model.get("model_name"), params.get("model")
            if not isinstance(name, str) or not isinstance(target, str) or not name or not target:
                self._remark(place, "has no `model_name`, or no `litellm_params.model`")
                continue
            # Older files have them beside the parameters.
            shares = {each: model[each] for each in ("rpm", "tpm") if each in model}
            found.append((place, name, target, {**shares, **params}, info))
        if any(each in _PRICES for *_, params, info in found for each in (*params, *info)):
            self._taken = {name.partition("/")[0] for _, name, *_ in found if "/" in name}
        for each in found:
            self._model(*each)

    def _model(
        self, place: Place, name: str, target: str, params: Mapping[str, Any], info: Mapping[str, Any]
    ) -> None:
        params_place: Place = (*place, "litellm_params")
        stars = name.count("*"), target.count("*")
        if stars not in ((0, 0), (1, 1)):
            message = "is one of one `*`, or of none, for a name with as many: it is left out"
            self._remark((*params_place, "model"), message)
            return
        if target == "*":
            message = "goes to openai, whatever name of a provider the client's begins with"
            self._remark((*params_place, "model"), message)
        upstream = self._upstream(params_place, target, params)
        if upstream is None:
            return
        model, data = upstream
        price = self._price(params_place, params) | self._price((*place, "model_info"), info)
        if price and "input" not in price:
            self._remark(place, "has prices, and none for input: they are left out")
            price = {}
        if price:
            # Theirs are never unknown.
            price.setdefault("cached_input", price["input"])
        served = self._upstream_name(data, model, price)
        if price:
            self._prices.setdefault(f"{served}/{model}", price)
        elif isinstance(info.get("base_model"), str):
            message = f"prices nothing here: add a price of `{served}/{model}` to `prices`"
            self._remark((*place, "model_info", "base_model"), message)
        if stars[0] and self._settings.lists_models:
            prefix = name.partition("*")[0]
            self._upstreams[served].setdefault("discover", {"prefix": prefix} if prefix else True)
        deployment = _Deployment(
            served,
            model,
            place,
            order=self._number(params, "order", params_place, 0, 10**6),
            shares={each: share for each in _SHARES if (share := _share(params.get(each))) is not None},
            max_streams=self._number(params, "max_parallel_requests", params_place, 1, 10**6)
            or self._settings.most_at_once,
            retries=self._number(params, "num_retries", params_place, 0, 10**6),
            cost=sum((Decimal(price.get(kind, 0)) for kind in ("input", "output")), Decimal(0))
            if price
            else None,
        )
        group = self._groups.setdefault(name, [])
        if any(known.route == deployment.route for known in group):
            self._remark(place, f"serves {name} by the same upstream once more, and is left out")
        else:
            group.append(deployment)
        for setting in params:
            if setting not in _USED:
                self._remark((*params_place, setting), NO_COUNTERPART)
        for setting in info:
            if setting not in _PRICES and not setting.startswith(_DESCRIPTIONS):
                self._remark((*place, "model_info", setting), NO_COUNTERPART)

    def _model_of(self, name: str, routes: list[_Deployment], own: int) -> object:
        """The model as a file of ours has it; the first `own` of its routes are no fallbacks."""
        share = next((each for each in _SHARES if any(each in route.shares for route in routes)), None)
        shared = len({route.tier for route in routes}) < len(routes)
        policy = self._settings.policy if shared else None
        if policy == "ordered":
            # Theirs takes the cheapest. What has no price comes last.
            routes = sorted(routes, key=lambda route: (route.tier, route.cost is None, route.cost or 0))
        if policy == "weighted" and share is not None:
            # Theirs gives those without a share nothing, as long as others are there.
            for place, route in enumerate(routes):
                if share not in route.shares and place < own:
                    routes[place] = replace(route, tier=min(route.tier + 1, _MOST_TIERS))
                    message = "is missing or 0: it is asked where the others cannot serve"
                    self._remark((*route.place, "litellm_params", share), message)
            routes = sorted(routes, key=lambda route: route.tier)
        said = [_route(route, share if shared else None) for route in routes]
        for route in routes[:own]:
            for each in route.shares:
                if not shared or each != share:
                    self._remark((*route.place, "litellm_params", each), NO_COUNTERPART)
                elif each != "weight":
                    self._remark((*route.place, "litellm_params", each), "is the weight, and bounds nothing")
        model: dict[str, Any] = {"routes": said}
        if policy not in (None, "ordered"):
            model["policy"] = policy
        retries = [route.retries for route in routes[:own] if route.retries is not None]
        wanted = max(retries, default=self._settings.retries)
        if wanted is not None:
            # Fallbacks are tried as well, whatever a model's own deployments may be tried.
            attempts = min(max(1 + wanted, len(routes) if len(routes) > own else 1), MOST_ATTEMPTS)
            if attempts != len(routes):
                model["retry"] = {"attempts": attempts}
        if len(model) > 1:
            return model
        return said[0] if len(said) == 1 else said

    # === upstreams ===

    def _upstream(
        self, place: Place, target: str, params: Mapping[str, Any]
    ) -> tuple[str, dict[str, Any]] | None:
        """Its name for the model, and its settings."""
        kind, slash, model = target.partition("/")
        if not slash:
            kind, model = "openai", target
        base = params.get("api_base")
        url = written(base) if isinstance(base, str) and base else ""
        key = written(params["api_key"]) if isinstance(params.get("api_key"), str) else ""
        known = _profile_of(kind)
        if known is None:
            self._remark((*place, "model"), f"is of {kind}, which {NO_COUNTERPART}: it is left out")
            return None
        data: dict[str, Any] = {}
        # An address of somebody's own may be any server's that speaks OpenAI's API.
        if known.name != GENERIC and not (url and known.name == "openai"):
            data["profile"] = known.name
        if not url and not known.is_hosted and known.name != "ollama":
            self._remark((*place, "model"), f"is of {kind}, and has no `api_base`: it is left out")
            return None
        url = _address(known, url)
        if not url and known.is_hosted:
            key = key or f"${{{known.key_variable}}}"
        if url:
            data["base_url"] = url
        version = params.get("api_version")
        usual = known.settings.get("query", {})
        if isinstance(version, str) and usual and version != usual.get("api-version"):
            data["query"] = {"api-version": written(version)}
        if key:
            data["api_key"] = key
            if not key.startswith("${"):
                self._remark((*place, "api_key"), "is a key in plain text: ${NAME} takes it from a variable")
        headers = self._headers(place, params)
        if headers:
            data["headers"] = headers
        deadlines = dict(self._settings.deadlines)
        for theirs, ours in _DEADLINES.items():
            self._settings.seconds(deadlines, ours, params.get(theirs), (*place, theirs), LONGEST_SECONDS)
        if deadlines:
            data["deadlines"] = deadlines
        return model, data

    def _headers(self, place: Place, params: Mapping[str, Any]) -> dict[str, str]:
        extra = as_mapping(params.get("extra_headers"), (*place, "extra_headers"), self._remark)
        headers = {str(name): written(value) for name, value in extra.items() if isinstance(value, str)}
        organization = params.get("organization")
        if isinstance(organization, str):
            headers["openai-organization"] = written(organization)
        return headers

    def _upstream_name(self, wanted: Mapping[str, Any], model: str, price: Mapping[str, str]) -> str:
        """The upstream with these settings, made if there is none yet, or where the model has another price
        there: what a route costs is said once.
        """
        for name, known in self._upstreams.items():
            same = {key: value for key, value in known.items() if key != "discover"} == wanted
            if same and (not price or self._prices.get(f"{name}/{model}", price) == price):
                return name
        url = wanted.get("base_url") or profile(wanted.get("profile", GENERIC)).base_url or ""
        name = name_for(url if "${" not in url else "", {*self._upstreams, *self._taken})
        self._upstreams[name] = dict(wanted)
        return name

    def _price(self, place: Place, values: Mapping[str, Any]) -> dict[str, str]:
        found: dict[str, str] = {}
        for theirs, ours in _PRICES.items():
            value = values.get(theirs)
            if value is None:
                continue
            price = _per_million(value)
            if price is None:
                self._remark((*place, theirs), "is not a price")
                continue
            exact = round(price, DECIMALS_PER_MILLION)
            if exact != price:
                self._remark((*place, theirs), f"is rounded to {exact:f} USD per million tokens")
                price = exact
            found[ours] = f"{price:f}".rstrip("0").rstrip(".") if "." in f"{price:f}" else f"{price:f}"
        return found

    # === names ===

    def _aliases(self) -> dict[str, str]:
        """Those that lead to a model. One that has a model's name goes before that model."""
        found = self._settings.aliases()
        names = {name: target for _, name, target in found}
        kept: dict[str, str] = {}
        for place, name, _ in found:
            end = alias_target(name, names)
            deployments = None if end is None else self._serving(end)
            if not deployments or "*" in name:
                self._remark(place, "stands for no model that is served, and is left out")
            elif name in self._groups:
                self._groups[name] = deployments
                self._remark(place, f"is a model's name, too, which is served as {end} is")
            elif end is not None:
                kept[name] = end
        return kept

    def _serving(self, name: str) -> list[_Deployment]:
        """The deployments of the model of this name, or of the wildcard that matches it."""
        if name in self._groups:
            return self._groups[name]
        patterns = [each for each in self._groups if "*" in each and wildcard_matches(each, name)]
        if not patterns:
            return []
        before, _, after = max(patterns, key=len).partition("*")
        star = name[len(before) : len(name) - len(after)]
        return [
            replace(each, model=each.model.replace("*", star))
            for each in self._groups[max(patterns, key=len)]
        ]

    def _fall_back(
        self,
        place: Place,
        name: str,
        others: list[str],
        own: Mapping[str, list[_Deployment]],
        whole: dict[str, list[_Deployment]],
        aliases: Mapping[str, str],
    ) -> None:
        """Put the deployments of `others` behind those of `name`, each model's in tiers of its own."""
        if name not in own:
            self._remark(place, f"is for {name}, which is not served")
            return
        if "*" in name:
            self._remark(place, f"is for {name}, and a wildcard falls back to no model: it is left out")
            return
        routes = whole[name]
        for other in others:
            target = aliases.get(other, other)
            behind = _in_tiers(self._serving(target))
            if not behind or "*" in target:
                self._remark(place, f"names {other}, which is not served")
                continue
            tier = 1 + max(route.tier for route in routes)
            known = {route.route for route in routes}
            routes += [
                replace(each, tier=min(tier + each.tier, _MOST_TIERS))
                for each in behind
                if each.route not in known
            ]

    def _number(
        self, params: Mapping[str, Any], name: str, place: Place, least: int, most: int
    ) -> int | None:
        return whole_number(params.get(name), (*place, name), least, most, self._remark)

    def _remark(self, place: Place, message: str) -> None:
        self._result.remarks.append((place, message))


def _in_tiers(deployments: list[_Deployment]) -> list[_Deployment]:
    """By their `order`, the first tier being 0."""
    orders = sorted({each.order for each in deployments if each.order is not None})
    tiers = {order: min(tier, _MOST_TIERS - 1) for tier, order in enumerate(orders)}
    last = min(len(orders), _MOST_TIERS)
    placed = [replace(each, tier=last if each.order is None else tiers[each.order]) for each in deployments]
    return sorted(placed, key=lambda each: each.tier)


def _route(deployment: _Deployment, share: str | None) -> object:
    """As a file of ours has it."""
    more: dict[str, Any] = {}
    if share is not None and share in deployment.shares:
        more["weight"] = deployment.shares[share]
    if deployment.tier:
        more["tier"] = deployment.tier
    if deployment.max_streams is not None:
        more["max_streams"] = deployment.max_streams
    if not more:
        return deployment.route
    return {"upstream": deployment.upstream, "model": deployment.model, **more}


def _share(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return min(value, _MOST_WEIGHT) if value > 0 else None


def _profile_of(kind: str) -> Profile | None:
    """By LiteLLM's word before the model's name."""
    if kind in _ELSEWHERE:
        return profile(GENERIC)
    return next((one for one in profiles() if kind in one.litellm), None)


def _address(known: Profile, url: str) -> str:
    """What they have as `api_base`, as ours. Empty: the usual one."""
    url = url.rstrip("/")
    # Theirs are Ollama's own API and Anthropic's without the version.
    needs_version = known.name in ("ollama", "anthropic")
    if url and needs_version and "${" not in url and not url.endswith("/v1"):
        url = f"{url}/v1"
    return "" if url == known.base_url else url


def _per_million(value: Any) -> Decimal | None:
    try:
        price = Decimal(str(value)) * _PER_MILLION
    except InvalidOperation:
        return None
    return price if price.is_finite() and 0 <= price < _MOST_PRICE else None
