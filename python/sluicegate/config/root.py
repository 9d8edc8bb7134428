"""The whole configuration: typed, frozen, nothing unknown accepted. Its sections have files of their own.

A value that may be a secret is a `SecretStr`: it shows as stars in `repr`, logs, errors and dumps.
Times are seconds, sizes are bytes, prices are USD per million tokens. A file may give times and sizes with a
unit (`30s`, `64MiB`). Every setting has a description: `config.settings` makes the table of settings of them.
"""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import (
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from sluicegate.config.admin import AdminConfig
from sluicegate.config.agreement import Named, disagreements, idle_limits
from sluicegate.config.callers import CallerConfig, KeyConfig, TeamConfig, UsersConfig
from sluicegate.config.health import HealthConfig
from sluicegate.config.ledger import LedgerConfig, StorageConfig
from sluicegate.config.limits import LimitSet
from sluicegate.config.models import ModelConfig, named
from sluicegate.config.own import PriceFunction
from sluicegate.config.passthrough import PassthroughConfig
from sluicegate.config.prices import PriceConfig
from sluicegate.config.quantities import fault, raise_all
from sluicegate.config.routing import RoutingConfig
from sluicegate.config.section import Section
from sluicegate.config.server import ServerConfig
from sluicegate.config.upstream import UpstreamConfig
from sluicegate.config.values import (
    Alias,
    Bytes,
    Count,
    MemoryBytes,
    ModelName,
    Name,
    Positive,
    Retention,
    Seconds,
    Secret,
    UpstreamName,
)

Access = Literal["open", "keys"]
CostStyle = Literal["openrouter", "cocoon", "none"]


class CostConfig(Section):
    """How a reply shows its cost, and where prices come from that are not in `prices`."""

    style: CostStyle = Field(
        default="openrouter",
        description="How the usage object shows the cost. openrouter: in USD; cocoon: whole numbers of "
        "millionths of a USD, for prompt and completion each; none: not at all.",
    )
    genai_prices: bool = Field(
        default=True, description="Use the genai-prices list for models that have no price in `prices`."
    )
    function: PriceFunction | None = Field(
        default=None,
        description="`package.module:function`, to be found by Python's own search path: it is asked what "
        "each request costs, in place of `prices` and of the list.",
    )


class StoreConfig(Section):
    """Stored and background responses: where they are kept, for how long, and how much runs at once."""

    store: bool = Field(
        default=True, description="Keep responses; false: nothing is kept, and `background` is refused."
    )
    path: str = Field(
        default="",
        description="The SQLite file, made on first use; empty: `responses.db` in $STATE_DIRECTORY, "
        "or in sluicegate/ below $XDG_STATE_HOME (~/.local/state).",
    )
    url: Secret | None = Field(
        default=None, description="postgresql://user:password@host/database, in place of the file."
    )
    retention_seconds: Retention = Field(default=30 * 24 * 3600.0, description="How long a response is kept.")
    max_bytes: Bytes = Field(
        default=4 * 1024**3,
        description="How much is kept in all; past it whoever has more than an equal share loses its "
        "oldest responses.",
    )
    max_response_bytes: MemoryBytes = Field(
        default=64 * 1024**2,
        description="The largest response that is kept; a background one that grows larger fails.",
    )
    concurrency: Positive = Field(default=64, description="How many background responses run at once.")
    max_queued: Positive = Field(
        default=10_000,
        description="How many background responses may wait; more are refused with 429. No caller may have "
        "more of them than are left free.",
    )
    queue_seconds: Seconds = Field(
        default=3600.0, description="How long a background response may wait to be run before it fails."
    )
    max_waiting_bytes: MemoryBytes = Field(
        default=256 * 1024**2,
        description="Of what waits in memory for the store, and of the copies of live replies under way, "
        "each. Past it background responses are slowed, new ones are refused with 503, and live replies are "
        "not kept.",
    )
    max_loaded_bytes: MemoryBytes = Field(
        default=256 * 1024**2,
        description="How much of stored responses is loaded at once for all requests together: conversations "
        "that are continued, items, and responses that are retrieved. Each counts three times, and until its "
        "upstream's reply begins. Past it requests wait, and are then refused with 503. No caller that has "
        "some already gets more than it leaves to others.",
    )
    lease_seconds: Seconds = Field(
        default=15.0,
        description="How long a process may be silent before others take over what it was running.",
    )
    retries: Count = Field(
        default=0,
        description="How often a background response is run again that failed before any output was kept.",
    )
    rerun_interrupted: bool = Field(
        default=True,
        description="Run a background response again whose process died before any output was kept; false: "
        "it fails.",
    )

    @field_validator("url")
    @classmethod
    def _postgresql(cls, url: Secret | None) -> Secret | None:
        if url is not None and not url.get_secret_value().startswith("postgresql://"):
            raise fault("url", "is not a PostgreSQL URL", "postgresql://user:password@host/database")
        return url


def discovers(upstreams: object) -> bool:
    """Whether one of `upstreams` lists its models itself; they may be as they stand in a file."""
    found = upstreams.values() if isinstance(upstreams, Mapping) else ()
    return any(
        upstream.discover is not None
        if isinstance(upstream, UpstreamConfig)
        else isinstance(upstream, Mapping) and upstream.get("discover") not in (None, False)
        for upstream in found
    )


def _in_parts(info: ValidationInfo) -> bool:
    """Whether what has a fault was left out, to find those of the rest."""
    return bool((info.context or {}).get("in_parts"))


class Config(Section):
    """A gateway's whole configuration."""

    server: ServerConfig = Field(
        default=ServerConfig(), description="The gateway's own side; a change needs a restart."
    )
    limits: Mapping[Name, LimitSet] = Field(
        default={}, description="How much may be used, by names that callers, keys, teams and `users` give."
    )
    teams: Mapping[Name, TeamConfig] = Field(default={}, description="Callers who share limits, by name.")
    callers: tuple[CallerConfig, ...] = Field(
        default=(), description="Who calls; a key with no caller here is a caller by itself."
    )
    keys: tuple[KeyConfig, ...] = Field(
        default=(),
        description="The keys of clients, beside those that `sluicegate keys create` makes. Without any "
        "here, say `access: keys`: otherwise anyone who can connect may call.",
    )
    users: UsersConfig | None = Field(
        default=None, description="The people behind callers, each with limits of their own."
    )
    access: Access | None = Field(
        default=None,
        description="Who may call. keys: who has a key, of `keys` or made by `sluicegate keys create`; open: "
        "anyone who can connect; null: keys where there are `keys`, otherwise open with a warning.",
    )
    upstreams: Mapping[UpstreamName, UpstreamConfig] = Field(description="The inference servers, by name.")
    models: Mapping[ModelName, ModelConfig] = Field(
        description="The models that clients ask for, by name. A name with a `*` in it is a wildcard: what "
        "the star stands for goes on (`openai/*: hosted/*`). The longest that matches is taken."
    )
    aliases: Mapping[Alias, Name] = Field(
        default={}, description="Other names of models: `gpt-4o-mini: llama-70b`."
    )
    passthrough: tuple[PassthroughConfig, ...] = Field(
        default=(),
        description="Paths of your own that are forwarded as the gateway's endpoints are; the first that "
        "means a request is taken.",
    )
    routing: RoutingConfig = Field(
        default=RoutingConfig(), description="What routing policies see of a request."
    )
    health: HealthConfig = Field(
        default=HealthConfig(), description="When an upstream, or a model of it, is not asked for a while."
    )
    prices: Mapping[ModelName, PriceConfig] = Field(
        default={},
        description="Prices by route (`upstream/model`), by the model's public name, or by the upstream's "
        "name of it; a name with a `*` in it is a wildcard.",
    )
    cost: CostConfig = Field(default=CostConfig(), description="How replies show their cost.")
    storage: StorageConfig = Field(
        default=StorageConfig(),
        description="Where the ledger, callers and keys are kept; a change needs a restart.",
    )
    ledger: LedgerConfig | None = Field(
        default=None,
        description="What every request cost, kept through any crash; null: nothing of it is. `ledger: {}` "
        "keeps it as the defaults say. A change needs a restart.",
    )
    responses: StoreConfig = Field(
        default=StoreConfig(), description="Stored and background responses; a change needs a restart."
    )

    admin: AdminConfig | None = Field(
        default=None,
        description="The admin API, with metrics, on a listener of its own; null: none. `admin: {}` listens "
        "as the defaults say. A change needs a restart.",
    )

    @field_validator("keys")
    @classmethod
    def _some(cls, keys: tuple[KeyConfig, ...]) -> tuple[KeyConfig, ...]:
        if not keys:
            hint = "say `access: open` in place of it to serve anyone who can connect"
            raise fault("keys", "is empty", hint)
        return keys

    @model_validator(mode="before")
    @classmethod
    def _may_be_left_out(cls, value: object, info: ValidationInfo) -> object:
        if not isinstance(value, Mapping):
            return value
        if _in_parts(info):
            return {"upstreams": {}, "models": {}, **value}
        # Where an upstream lists its models, none need be configured.
        if "models" not in value and discovers(value.get("upstreams")):
            return {**value, "models": {}}
        return value

    @field_validator("upstreams", "models")
    @classmethod
    def _not_empty(cls, value: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
        if value or _in_parts(info):
            return value
        if not (info.field_name == "models" and discovers(info.data.get("upstreams", {}))):
            raise fault("empty", "is empty", "a gateway needs at least one")
        return value

    @field_validator("models")
    @classmethod
    def _model_names(cls, models: Mapping[str, ModelConfig]) -> Mapping[str, ModelConfig]:
        return {
            name: model.model_copy(update={"routes": tuple(named(name, route) for route in model.routes)})
            for name, model in models.items()
        }

    @model_validator(mode="after")
    def _agrees(self, info: ValidationInfo) -> Self:
        context = info.context or {}
        named = Named(
            context.get("upstreams") or self.upstreams,
            context.get("models") or self.models,
            context.get("lists_models", False) or discovers(self.upstreams),
        )
        raise_all("Config", disagreements(self, named))
        return self

    @property
    def idle_limits(self) -> tuple[str, ...]:
        """The names of limits that nobody in the configuration has: callers of the database may have them."""
        return idle_limits(self)

    @property
    def shown_headers(self) -> tuple[str, ...]:
        """The headers of clients that policies see, in lower case."""
        names = [name.lower() for name in self.routing.headers]
        for model in self.models.values():
            affinity = model.policy.affinity
            if affinity is not None and affinity.header is not None:
                names.append(affinity.header.lower())
        return tuple(dict.fromkeys(names))

    @property
    def passed_upstreams(self) -> tuple[str, ...]:
        """The upstreams that paths of the operator's own lead to, whatever model is asked for."""
        named = (path.upstream for path in self.passthrough if path.upstream is not None)
        return tuple(dict.fromkeys(named))

    @property
    def wants_affinity(self) -> bool:
        """Whether a policy wants to know which conversation a request belongs to."""
        return self.routing.affinity or any(model.policy.affinity for model in self.models.values())

    @property
    def needs_keys(self) -> bool:
        """Whether nobody may call without a key, of the configuration or of the database."""
        return bool(self.keys) or self.access == "keys"

    @property
    def is_open_unsaid(self) -> bool:
        """Whether anyone on another machine is served without a key, and nothing says that this is meant."""
        return not (self.needs_keys or self.access == "open" or self.server.is_loopback)
