"""What the sections of LiteLLM's configuration beside `model_list` say in our terms.

The same setting may stand in `router_settings` and in `litellm_settings`; the router's goes before.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import parse_qsl, quote

Place = tuple[str | int, ...]
Tell = Callable[[Place, str], None]

NO_COUNTERPART = "has no counterpart"
MOST_ATTEMPTS = 32
# What a deadline of ours may be at most, and what a time of health may be.
LONGEST_SECONDS = 30 * 24 * 3600
_LONGEST_REST = 3600

_VARIABLE = "os.environ/"
_EVERYONE = "everyone"

_POLICIES: Mapping[str, Any] = {
    "simple-shuffle": "weighted",
    "least-busy": "least_busy",
    "latency-based-routing": "latency",
    "usage-based-routing": {"least_busy": {"by": "tokens"}},
    "usage-based-routing-v2": {"least_busy": {"by": "tokens"}},
    "cost-based-routing": "ordered",
}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "mo": 30 * 86_400}
# A month of theirs has 30 days.
_WINDOWS = (("month", 30 * 86_400), ("week", 7 * 86_400), ("day", 86_400), ("hour", 3600), ("minute", 60))

# What is done here without a setting, or where it is said.
_ELSEWHERE = {
    "background_health_checks": "`probe` of an upstream asks whether it is there",
    "health_check_interval": "`probe` of an upstream asks whether it is there",
    "success_callback": "every request is in the log, the metrics and the ledger",
    "failure_callback": "every request is in the log, the metrics and the ledger",
    "callbacks": "every request is in the log, the metrics and the ledger",
    "store_model_in_db": "models are in the configuration, which is read again when it changes",
    "context_window_fallbacks": "a request that is too long fails as its upstream says",
    "max_user_budget": "`limits` of a caller hold for all its keys: `callers create --limits`",
    "max_internal_user_budget": "`limits` of a caller hold for all its keys: `callers create --limits`",
    "provider_budget_config": "`limits` hold whoever calls, by model if need be, and no provider",
    "retry_after": "`retry.backoff` of a model is the pause before the same deployment is tried again",
}


@dataclass
class Translated:
    """`data` is shaped as a file of ours. `remarks`: places in theirs, and what is left out or differs."""

    data: dict[str, Any] = field(default_factory=dict)
    remarks: list[tuple[Place, str]] = field(default_factory=list)


class Settings:
    """Their settings. Each that is asked for is known; `tell_the_rest` tells of the others."""

    def __init__(self, root: Mapping[str, Any], result: Translated) -> None:
        self._tell: Tell = lambda place, message: result.remarks.append((place, message))
        self._root = root
        self._sections = {
            name: as_mapping(root.get(name), (name,), self._tell)
            for name in ("router_settings", "litellm_settings", "general_settings")
        }
        self._known: set[Place] = {("model_list",), *((name,) for name in self._sections)}
        self.deadlines: dict[str, float] = {}
        place, value = self._find("request_timeout")
        self.seconds(self.deadlines, "total", value, place, LONGEST_SECONDS)
        for theirs, ours in (("timeout", "total"), ("stream_timeout", "first_token")):
            place, value = self._find(theirs, ("router_settings",))
            self.seconds(self.deadlines, ours, value, place, LONGEST_SECONDS)
        self.policy = self._policy()
        self.retries = self._number("num_retries", 0, 10**6)
        self.most_at_once = self._number("max_parallel_requests", 1, 10**6, ("general_settings",))
        self.lists_models = self._find("check_provider_endpoint")[1] is True

    # === for models ===

    def aliases(self) -> list[tuple[Place, str, str]]:
        """The place of each alias, its name, and what it stands for."""
        place, value = self._find("model_group_alias", ("router_settings", "litellm_settings"))
        found = []
        for name, said in as_mapping(value, place, self._tell).items():
            target = said.get("model") if isinstance(said, Mapping) else said
            if not isinstance(target, str) or not isinstance(name, str) or not name:
                self._tell((*place, name), "names no model")
                continue
            if isinstance(said, Mapping) and said.get("hidden") is True:
                self._tell((*place, name, "hidden"), "is listed: every alias is")
            found.append(((*place, name), name, target))
        return found

    def fallbacks(self, names: tuple[str, ...]) -> Iterator[tuple[Place, str, list[str]]]:
        """For the models `names`: places, names, and what is tried after them, in this order."""
        general: list[tuple[Place, list[str]]] = []
        said = set()
        for section in ("litellm_settings", "router_settings"):
            place, entries = self._find("fallbacks", (section,))
            for index, name, others in _pairs(entries):
                if name == "*" and name not in names:
                    general.append(((*place, index), others))
                else:
                    said.add(name)
                    yield (*place, index), name, others
            place, entries = self._find("default_fallbacks", (section,))
            if isinstance(entries, list):
                general.append((place, [each for each in entries if isinstance(each, str)]))
        for place, others in general:
            for name in names:
                if name in said:
                    continue
                if "*" in name:
                    self._tell(place, f"is not for `{name}`: a wildcard falls back to no model")
                    continue
                yield place, name, [each for each in others if each != name]

    # === sections of ours ===

    def before(self) -> dict[str, Any]:
        """What stands before the upstreams."""
        data: dict[str, Any] = {}
        server: dict[str, Any] = {}
        at_once = self._number("global_max_parallel_requests", 1, 10**6, ("general_settings",))
        if at_once is not None:
            server["bounds"] = {"requests": at_once}
        megabytes = self._number("max_request_size_mb", 1, 1024, ("general_settings",))
        if megabytes is not None:
            server["max_body_bytes"] = f"{megabytes}MiB"
        if self._find("json_logs", ("litellm_settings",))[1] is True:
            server["log"] = {"format": "json"}
        if server:
            data["server"] = server
        limits: dict[str, Any] = {}
        budget = self._budget("max_budget", "budget_duration", _EVERYONE)
        of_users = self._budget("max_end_user_budget", None, "end-users")
        _, header = self._find("user_header_name", ("general_settings",))
        place, key = self._find("master_key", ("general_settings",))
        has_key = isinstance(key, str) and bool(key)
        if budget is not None and not has_key:
            place = self._find("max_budget")[0]
            self._tell(place, "is left out: without `master_key` nobody is told apart, and anyone may call")
        elif budget is not None:
            limits[_EVERYONE] = budget
            data["teams"] = {_EVERYONE: {"limits": _EVERYONE}}
            data["callers"] = [{"name": "master", "team": _EVERYONE}]
            message = f"holds for the team `{_EVERYONE}`: `callers create NAME --team {_EVERYONE}`"
            self._tell(self._find("max_budget")[0], message)
        if of_users is not None and isinstance(header, str) and header.isascii() and header.isprintable():
            limits["end-users"] = of_users
            data["users"] = {"header": header, "limits": "end-users"}
        elif of_users is not None:
            message = "needs the header that names people: `users: {header: …, limits: …}`"
            self._tell(self._find("max_end_user_budget")[0], message)
        if limits:
            data["limits"] = limits
        if has_key:
            data["keys"] = [{"name": "master", "key": written(key)}]
        return data

    def behind(self) -> dict[str, Any]:
        """What stands behind the models."""
        data: dict[str, Any] = {}
        health = self._health()
        if health:
            data["health"] = health
        storage: dict[str, str] = {}
        place, url = self._find("database_url", ("general_settings",))
        if isinstance(url, str) and url:
            storage["database"] = self._postgresql(place, url)
            message = "has none of its keys: `sluicegate callers create` and `keys create` make them"
            self._tell(place, message)
        counters = self._redis()
        if counters:
            storage["counters"] = counters
        if storage:
            data["storage"] = storage
        if "database" in storage and self._find("disable_spend_logs", ("general_settings",))[1] is not True:
            data["ledger"] = {}
        return data

    def _postgresql(self, place: Place, url: str) -> str:
        """The URL without the parameters of Prisma, by which LiteLLM speaks with the server."""
        url = written(url)
        if url.startswith("postgres://"):
            url = f"postgresql://{url.removeprefix('postgres://')}"
        server, _, query = url.partition("?")
        parameters = dict(parse_qsl(query))
        mode = parameters.pop("sslmode", None)
        if parameters.pop("schema", "public") != "public":
            self._tell(
                place, "is used without its `schema`: ours keeps its tables in the first of the search path"
            )
        if parameters:
            self._tell(place, f"is used without {', '.join(f'`{name}`' for name in parameters)}")
        return server if mode is None else f"{server}?ssl={quote(mode, safe='')}"

    def tell_the_rest(self) -> None:
        """Of each setting that nobody has asked for."""
        for name, section in self._sections.items():
            for setting in section:
                if (name, setting) not in self._known:
                    self._tell((name, setting), _ELSEWHERE.get(str(setting), NO_COUNTERPART))
        for name in self._root:
            if name == "environment_variables":
                self._tell((name,), "is left out: set them in the environment of the gateway")
            elif (name,) not in self._known:
                self._tell((name,), NO_COUNTERPART)

    # === what one setting says ===

    def seconds(self, found: dict[str, float], name: str, value: Any, place: Place, longest: float) -> None:
        """Put the time `value` into `found`, where it is one."""
        if value is None:
            return
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= longest:
            found[name] = value
        else:
            self._tell(place, "is not a number of seconds")

    def _policy(self) -> Any:
        place, value = self._find("routing_strategy")
        if value is None:
            return "weighted"
        policy = _POLICIES.get(value) if isinstance(value, str) else None
        if policy is None:
            self._tell(place, f"{NO_COUNTERPART}: deployments are taken by chance (`weighted`)")
            return "weighted"
        if isinstance(policy, dict):
            self._tell(place, "becomes `least_busy` by the tokens in flight, not by those of the last minute")
        elif policy == "ordered":
            self._tell(place, "becomes the order of routes: the cheapest first, by the prices that are here")
        return policy

    def _health(self) -> dict[str, Any]:
        health: dict[str, Any] = {}
        if self._find("disable_cooldowns")[1] is True:
            health["enabled"] = False
        fails = self._number("allowed_fails", 0, 10**6 - 1)
        if fails is not None:
            health["consecutive"] = fails + 1
            self._tell(self._find("allowed_fails")[0], "counts failures in a row, not those of a minute")
        place, value = self._find("cooldown_time")
        self.seconds(health, "eject", value, place, _LONGEST_REST)
        if "eject" in health:
            health["eject_at_most"] = health["eject"]
        return health

    def _redis(self) -> str:
        """The URL of the server that they name in one setting or in several; empty: none."""
        _, url = self._find("redis_url")
        parts = {
            name: _text(self._find(f"redis_{name}")[1])
            for name in ("host", "port", "password", "username", "db")
        }
        secure = self._find("redis_ssl")[1] is True
        if isinstance(url, str) and url:
            return written(url)
        if not parts["host"]:
            return ""
        user = ""
        if parts["password"]:
            user = f"{parts['username']}:{parts['password']}@"
            if "${" in user:
                place = self._find("redis_password")[0]
                self._tell(place, "stands in a URL now, where signs such as `@` and `/` are written %40, %2F")
        port, database = parts["port"] or "6379", f"/{parts['db']}" if parts["db"] else ""
        return f"redis{'s' if secure else ''}://{user}{parts['host']}:{port}{database}"

    def _budget(self, name: str, duration: str | None, limits: str) -> dict[str, Any] | None:
        """As limits of ours are written; None: there is none."""
        place, value = self._find(name)
        length: float | None = None
        if duration is not None:
            at, text = self._find(duration)
            length = _length(text)
            if text is not None and length is None:
                self._tell(at, "is not a time such as 30d")
        if value is None:
            return None
        amount = _usd(value)
        if amount is None:
            self._tell(place, "is no budget in USD that limits can hold")
            return None
        if length is None:
            self._tell(place, "is for ever there, and for each month here")
            return {"cost": f"{amount:f}/month"}
        window, seconds = next(((w, s) for w, s in _WINDOWS if s <= length), _WINDOWS[-1])
        whole = 28 * 86_400 <= length <= 31 * 86_400
        if whole:
            window = "month"
        elif length != seconds:
            part = _usd(amount * Decimal(seconds) / Decimal(length)) or amount
            self._tell(place, f"becomes its part for a {window}, {part:f} USD")
            amount = part
        return {"cost": f"{amount:f}/{window}"}

    def _number(
        self,
        name: str,
        least: int,
        most: int,
        sections: tuple[str, ...] = ("router_settings", "litellm_settings"),
    ) -> int | None:
        place, value = self._find(name, sections)
        return whole_number(value, place, least, most, self._tell)

    def _find(
        self, name: str, sections: tuple[str, ...] = ("router_settings", "litellm_settings")
    ) -> tuple[Place, Any]:
        """Where the setting stands, and what it says; None: nothing."""
        found: tuple[Place, Any] = (sections[0], name), None
        for section in reversed(sections):
            self._known.add((section, name))
            value = self._sections[section].get(name)
            if value is not None:
                found = (section, name), value
        return found


def as_mapping(value: Any, place: Place, tell: Tell) -> Mapping[str, Any]:
    """`value`, or none of its members where it is no mapping."""
    if isinstance(value, Mapping):
        return value
    if value is not None:
        tell(place, "is not a mapping")
    return {}


def whole_number(value: Any, place: Place, least: int, most: int, tell: Tell) -> int | None:
    """`value`, where it is one from `least` to `most`."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    tell(place, f"is not a whole number from {least} to {most}")
    return None


def written(value: str) -> str:
    """`os.environ/NAME` is `${NAME}`; a `${` of theirs means nothing to them."""
    if value.startswith(_VARIABLE):
        return f"${{{value.removeprefix(_VARIABLE)}}}"
    return value.replace("${", "$${")


def _text(value: Any) -> str:
    """As a part of a URL."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        return ""
    return written(value) if value.startswith(_VARIABLE) else quote(value, safe="")


def _pairs(entries: Any) -> Iterator[tuple[int, str, list[str]]]:
    """`[{a: [b, c]}]`."""
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        if isinstance(entry, Mapping):
            for name, others in entry.items():
                if isinstance(others, list):
                    yield index, str(name), [other for other in others if isinstance(other, str)]


def _length(text: Any) -> float | None:
    """Seconds: `30d`, `1mo`."""
    if not isinstance(text, str):
        return None
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = _UNITS.get(text[len(number) :])
    if unit is None or not number.isascii() or not number.isdigit() or len(number) > 6:
        return None
    return int(number) * unit or None


def _usd(value: Any) -> Decimal | None:
    """More than nothing, with six decimals at most."""
    if isinstance(value, bool):
        return None
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        return None
    if not amount.is_finite() or not 0 < amount < 10**12:
        return None
    return round(amount, 6).normalize() or None
