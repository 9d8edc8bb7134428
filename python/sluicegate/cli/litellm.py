"""From the configuration of LiteLLM's proxy to ours: what has a counterpart, and remarks about the rest."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from sluicegate.cli.upstreams import name_for
from sluicegate.config import DECIMALS_PER_MILLION, GENERIC, Profile, profile, profiles

Place = tuple[str | int, ...]

_VARIABLE = "os.environ/"
_NO_COUNTERPART = "has no counterpart"
_PER_MILLION = Decimal(1_000_000)
# What a deadline of ours may be at most.
_LONGEST_SECONDS = 30 * 24 * 3600

# Servers of OpenAI's API that have no address of their own, and no profile.
_ELSEWHERE = frozenset({"llamafile", "litellm_proxy", "custom_openai"})

_PRICES = {
    "input_cost_per_token": "input",
    "output_cost_per_token": "output",
    "cache_read_input_token_cost": "cached_input",
    "cache_creation_input_token_cost": "cache_write",
    "output_cost_per_reasoning_token": "reasoning",
}
_DEADLINES = {"timeout": "total", "stream_timeout": "first_token"}
# What describes a model, and changes nothing of how it is served.
_DESCRIPTIONS = ("id", "mode", "base_model", "description", "supports_", "max_")


@dataclass
class Translated:
    """`data` is shaped as a file of ours. `remarks`: places in theirs, and what is left out or differs."""

    data: dict[str, Any] = field(default_factory=dict)
    remarks: list[tuple[Place, str]] = field(default_factory=list)


def translate(document: Any) -> Translated:
    """What `document`, read from YAML, says in our terms. Never raises on what it holds."""
    return _Translation().run(document)


class _Translation:
    def __init__(self) -> None:
        self._result = Translated()
        self._upstreams: dict[str, dict[str, Any]] = {}
        self._models: dict[str, list[str]] = {}
        self._prices: dict[str, dict[str, str]] = {}
        self._deadlines: dict[str, float] = {}

    def run(self, document: Any) -> Translated:
        root = self._mapping(document, ())
        router = self._mapping(root.get("router_settings"), ("router_settings",))
        settings = self._mapping(root.get("litellm_settings"), ("litellm_settings",))
        general = self._mapping(root.get("general_settings"), ("general_settings",))
        self._default_deadlines(settings, router)
        self._model_list(root.get("model_list"))
        self._fallbacks(settings, ("litellm_settings",))
        self._fallbacks(router, ("router_settings",))
        keys = self._keys(general)
        for name, section, known in (
            ("litellm_settings", settings, {"fallbacks", "request_timeout"}),
            ("router_settings", router, {"fallbacks", "timeout", "stream_timeout"}),
            ("general_settings", general, {"master_key"}),
            ("", root, {"model_list", "litellm_settings", "router_settings", "general_settings"}),
        ):
            for setting in section:
                if setting not in known:
                    self._remark((name, setting) if name else (setting,), _NO_COUNTERPART)
        data = self._result.data
        if keys:
            data["keys"] = keys
        data["upstreams"] = self._upstreams
        if self._models:
            data["models"] = {
                name: routes[0] if len(routes) == 1 else routes for name, routes in self._models.items()
            }
        if self._prices:
            data["prices"] = self._prices
        return self._result

    # === models ===

    def _model_list(self, entries: Any) -> None:
        if not isinstance(entries, list):
            self._remark(("model_list",), "is not a list")
            return
        for index, entry in enumerate(entries):
            place: Place = ("model_list", index)
            model = self._mapping(entry, place)
            params = self._mapping(model.get("litellm_params"), (*place, "litellm_params"))
            info = self._mapping(model.get("model_info"), (*place, "model_info"))
            name, target = model.get("model_name"), params.get("model")
            if not isinstance(name, str) or not isinstance(target, str):
                self._remark(place, "has no `model_name`, or no `litellm_params.model`")
                continue
            self._model(place, name, target, params, info)

    def _model(
        self, place: Place, name: str, target: str, params: Mapping[str, Any], info: Mapping[str, Any]
    ) -> None:
        params_place: Place = (*place, "litellm_params")
        upstream = self._upstream(params_place, target, params)
        if upstream is None:
            return
        model, data = upstream
        served = self._upstream_name(data)
        if name.endswith("*"):
            # `openai/*` serves whatever the upstream lists, under that prefix.
            prefix = name.removesuffix("*")
            self._upstreams[served]["discover"] = {"prefix": prefix} if prefix else True
        else:
            routes = self._models.setdefault(name, [])
            route = f"{served}/{model}"
            if route in routes:
                self._remark(place, f"serves {name} by the same upstream once more, and is left out")
            else:
                if len(routes) == 1:
                    self._remark(place, f"serves {name}, too: upstreams are tried in order, not in turns")
                routes.append(route)
        self._price(name, params_place, params)
        self._price(name, (*place, "model_info"), info)
        used = {"model", "api_base", "api_key", "api_version", "extra_headers", "organization"}
        used |= _DEADLINES.keys() | _PRICES.keys()
        for setting in params:
            if setting not in used:
                self._remark((*params_place, setting), _NO_COUNTERPART)
        for setting in info:
            if setting not in _PRICES and not setting.startswith(_DESCRIPTIONS):
                self._remark((*place, "model_info", setting), _NO_COUNTERPART)

    def _upstream(
        self, place: Place, target: str, params: Mapping[str, Any]
    ) -> tuple[str, dict[str, Any]] | None:
        """Its name for the model, and its settings."""
        kind, slash, model = target.partition("/")
        if not slash:
            kind, model = "openai", target
        base = params.get("api_base")
        url = _text(base) if isinstance(base, str) and base else ""
        key = _text(params["api_key"]) if isinstance(params.get("api_key"), str) else ""
        known = _profile_of(kind)
        if known is None:
            self._remark((*place, "model"), f"is of {kind}, which {_NO_COUNTERPART}: it is left out")
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
        if isinstance(version, str) and "query" in known.settings:
            data["query"] = {"api-version": _text(version)}
        if key:
            data["api_key"] = key
            if not key.startswith("${"):
                self._remark((*place, "api_key"), "is a key in plain text: ${NAME} takes it from a variable")
        headers = self._headers(place, params)
        if headers:
            data["headers"] = headers
        deadlines = dict(self._deadlines)
        for theirs, ours in _DEADLINES.items():
            self._seconds(deadlines, ours, params.get(theirs), (*place, theirs))
        if deadlines:
            data["deadlines"] = deadlines
        return model, data

    def _headers(self, place: Place, params: Mapping[str, Any]) -> dict[str, str]:
        extra = self._mapping(params.get("extra_headers"), (*place, "extra_headers"))
        headers = {str(name): _text(value) for name, value in extra.items() if isinstance(value, str)}
        organization = params.get("organization")
        if isinstance(organization, str):
            headers["openai-organization"] = _text(organization)
        return headers

    def _upstream_name(self, wanted: Mapping[str, Any]) -> str:
        """The upstream with these settings, made if there is none yet."""
        for name, known in self._upstreams.items():
            if {key: value for key, value in known.items() if key != "discover"} == wanted:
                return name
        url = wanted.get("base_url") or profile(wanted.get("profile", GENERIC)).base_url or ""
        name = name_for(url if "${" not in url else "", self._upstreams)
        self._upstreams[name] = dict(wanted)
        return name

    def _price(self, name: str, place: Place, values: Mapping[str, Any]) -> None:
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
        if not found:
            return
        if "input" not in found and "input" not in self._prices.get(name, {}):
            self._remark(place, "has prices, and none for input: they are left out")
            return
        known = self._prices.setdefault(name, {})
        if known and any(known.get(kind, written) != written for kind, written in found.items()):
            self._remark(place, f"has other prices than an earlier entry of {name}: the first ones count")
        for kind, written in found.items():
            known.setdefault(kind, written)

    # === the rest ===

    def _default_deadlines(self, settings: Mapping[str, Any], router: Mapping[str, Any]) -> None:
        timeout = settings.get("request_timeout")
        self._seconds(self._deadlines, "total", timeout, ("litellm_settings", "request_timeout"))
        for theirs, ours in _DEADLINES.items():
            self._seconds(self._deadlines, ours, router.get(theirs), ("router_settings", theirs))

    def _seconds(self, deadlines: dict[str, float], name: str, value: Any, place: Place) -> None:
        if value is None:
            return
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _LONGEST_SECONDS:
            deadlines[name] = value
        else:
            self._remark(place, "is not a number of seconds")

    def _fallbacks(self, section: Mapping[str, Any], place: Place) -> None:
        entries = section.get("fallbacks")
        if entries is None:
            return
        before = {name: list(routes) for name, routes in self._models.items()}
        for index, name, others in _pairs(entries):
            if name not in before:
                self._remark((*place, "fallbacks", index), f"is for {name}, which is not served")
                continue
            for other in others:
                if other not in before:
                    self._remark((*place, "fallbacks", index), f"names {other}, which is not served")
                    continue
                routes = self._models[name]
                routes += [route for route in before[other] if route not in routes]

    def _keys(self, general: Mapping[str, Any]) -> list[dict[str, str]]:
        key = general.get("master_key")
        if not isinstance(key, str) or not key:
            return []
        return [{"name": "master", "key": _text(key)}]

    def _mapping(self, value: Any, place: Place) -> Mapping[str, Any]:
        if isinstance(value, Mapping):
            return value
        if value is not None:
            self._remark(place, "is not a mapping")
        return {}

    def _remark(self, place: Place, message: str) -> None:
        self._result.remarks.append((place, message))


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


def _pairs(entries: Any) -> Iterator[tuple[int, str, list[str]]]:
    """`[{a: [b, c]}]`."""
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        if isinstance(entry, Mapping):
            for name, others in entry.items():
                if isinstance(others, list):
                    yield index, str(name), [other for other in others if isinstance(other, str)]


def _per_million(value: Any) -> Decimal | None:
    try:
        price = Decimal(str(value)) * _PER_MILLION
    except InvalidOperation:
        return None
    return price if price.is_finite() and price >= 0 else None


def _text(value: str) -> str:
    """`os.environ/NAME` is `${NAME}`; a `${` of theirs means nothing to them."""
    if value.startswith(_VARIABLE):
        return f"${{{value.removeprefix(_VARIABLE)}}}"
    return value.replace("${", "$${")
