"""The configuration's shape: typed, frozen, nothing unknown accepted.

A value that may be a secret is a `SecretStr`: it shows as stars in `repr`, logs, errors and dumps.
Times are seconds, sizes are bytes, prices are USD per million tokens.
"""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from ipaddress import ip_address
from typing import Any, Literal, Self

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from sluicegate.config.bounds import BoundsConfig
from sluicegate.config.section import Section
from sluicegate.config.values import (
    BaseUrl,
    Bytes,
    CallerId,
    ClientBuffer,
    Count,
    ExistingFile,
    ForwardedHeaders,
    MemoryBytes,
    Name,
    Port,
    Positive,
    ReplyHeaders,
    Retention,
    RoutePart,
    Seconds,
    Secret,
    SecretHeaders,
    Threads,
    Tokens,
    UpstreamName,
    UsdPerMillion,
    default_threads,
    fault,
)

# The dialects of usage that the core reads; None in a configuration: told from the reply itself.
Dialect = Literal[
    "openai",
    "anthropic",
    "cohere",
    "deepseek",
    "gemini",
    "groq",
    "llama.cpp",
    "mistral",
    "ollama",
    "perplexity",
    "xai",
]
Api = Literal["chat", "responses", "both"]
InstructionsRole = Literal["system", "developer"]
ReasoningField = Literal["reasoning_content", "reasoning", "none"]
MaxTokensField = Literal["max_tokens", "max_completion_tokens"]
TextFormat = Literal["auto", "harmony"]
ReplyModel = Literal["public", "upstream"]
Streaming = Literal["auto", "always", "never"]
Http = Literal["http1", "auto"]
Access = Literal["open", "keys"]
TlsVersion = Literal["1.2", "1.3"]
OnClientLeave = Literal["cancel", "drain"]
CostStyle = Literal["openrouter", "cocoon", "none"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "console"]


class LogConfig(Section):
    """The structured log: a line for each request, and for what happens to the process."""

    level: LogLevel = "info"
    format: LogFormat = Field(
        default="auto", description="auto: console on a terminal, JSON lines elsewhere."
    )


class DisconnectDrainConfig(Section):
    """How far replies are read on after their clients have left, where a route drains."""

    seconds: Seconds = Field(default=60.0, description="The upstream's own deadlines run as well.")
    bytes: Bytes = Field(default=16 * 1024 * 1024, description="Of one reply, after its client has left.")
    replies: Count = Field(default=100, description="At once.")


class TlsConfig(Section):
    """TLS towards clients. `key_file` and `client_ca_file` are PEM, as `cert_file` is."""

    cert_file: ExistingFile = Field(description="The certificate, and the chain behind it.")
    key_file: ExistingFile
    key_password: Secret | None = None
    min_version: TlsVersion = "1.2"
    client_ca_file: ExistingFile | None = Field(
        default=None, description="Clients must show a certificate that these authorities signed."
    )


class ServerConfig(Section):
    """The gateway's own side: where it listens, and what bounds a request."""

    host: str = Field(default="127.0.0.1", min_length=1)
    port: Port = Field(default=8080, description="0: a free port, chosen by the system.")
    reuse_port: bool = Field(
        default=False,
        description="Let another process listen on the same port: two gateways share its connections "
        "while one takes over from the other.",
    )
    threads: Threads = Field(
        default_factory=default_threads,
        description="Threads that move bytes; left out: one fewer than the cores this process may use.",
    )
    http: Http = Field(
        default="http1",
        description="auto: HTTP/1.1 and HTTP/2, by ALPN with TLS, else by how the client begins.",
    )
    tls: TlsConfig | None = Field(default=None, description="null: no TLS.")
    max_body_bytes: MemoryBytes = Field(
        default=64 * 1024 * 1024, description="Of a request; a larger one is answered with 413."
    )
    max_event_bytes: MemoryBytes = Field(
        default=16 * 1024 * 1024, description="Of one event in an upstream's stream."
    )
    max_reply_bytes: MemoryBytes = Field(
        default=64 * 1024 * 1024, description="Of one JSON reply that must be held whole."
    )
    client_buffer_bytes: ClientBuffer = Field(
        default=256 * 1024,
        description="Held for one slow client before its upstream is paused, the server's buffers included.",
    )
    bounds: BoundsConfig = BoundsConfig()
    drain_seconds: Seconds = Field(
        default=30.0, description="For streams under way when the server is told to stop."
    )
    disconnect_drain: DisconnectDrainConfig = DisconnectDrainConfig()
    keepalive_seconds: Seconds | None = Field(
        default=None,
        description="An SSE comment to the client after this long a silence of the upstream; null: none.",
    )
    reload_on_change: bool = Field(
        default=True, description="Follow the file itself; without it on SIGHUP only."
    )
    log: LogConfig = LogConfig()


class KeyConfig(Section):
    """One client key. `name` is what logs and metrics show."""

    name: Name
    key: Secret
    id: CallerId | None = Field(
        default=None,
        description="Whose stored responses it reads: keys with one id share them, so a new key with the id "
        "of an old one goes on with what is there. Left out, they belong to the key itself: another key has "
        "none of them, whatever its name, and a key that gains an id later begins anew.",
    )


class DeadlineConfig(Section):
    """How long to wait for an upstream, in seconds; null: for ever. Keep-alives do not count as tokens."""

    connect: Seconds | None = 5.0
    first_byte: Seconds | None = 600.0
    first_token: Seconds | None = 600.0
    between_tokens: Seconds | None = 120.0
    total: Seconds | None = 3600.0


class ChatConfig(Section):
    """How requests for a response are put to a server of Chat Completions: where such servers differ."""

    instructions_role: InstructionsRole = Field(
        default="system", description="Of `instructions` and developer messages."
    )
    reasoning_field: ReasoningField = Field(
        default="reasoning_content", description="Where the reasoning of earlier turns goes back."
    )
    max_tokens_field: MaxTokensField = Field(
        default="max_tokens", description="The name of the bound on output tokens."
    )
    omit: tuple[Name, ...] = Field(
        default=(), description="Members that it refuses, and that are not sent to it: prompt_cache_key, …"
    )


class ResponsesConfig(Section):
    """How chat requests are put to a server that speaks Responses only."""

    takes_reasoning: bool = Field(
        default=False, description="It takes the reasoning of earlier turns as text (vLLM; not OpenAI)."
    )
    omit: tuple[Name, ...] = Field(default=(), description="Members that it refuses.")


class UpstreamConfig(Section):
    """One inference server."""

    base_url: BaseUrl = Field(description="Up to and without the endpoint: http://127.0.0.1:8000/v1")
    api_key: Secret | None = Field(default=None, description="Sent as `Authorization: Bearer …`.")
    api: Api = Field(
        default="chat",
        description="What it serves: Chat Completions, the Responses API, or both (vLLM, llama.cpp).",
    )
    chat: ChatConfig = ChatConfig()
    responses: ResponsesConfig = ResponsesConfig()
    repair: bool = Field(
        default=False,
        description="Make the events of its Responses streams anew: they break the protocol (llama.cpp).",
    )
    format: TextFormat = Field(
        default="auto", description="harmony: its content is the raw text of gpt-oss, which is decoded."
    )
    dialect: Dialect | None = Field(
        default=None, description="How it reports usage; null: told from the reply."
    )
    stream_options: bool = Field(
        default=True, description="False for a server that refuses `stream_options`."
    )
    streaming: Streaming = Field(
        default="auto",
        description="Whether it is asked to stream (auto: as the client asks). Replies are converted.",
    )
    deadlines: DeadlineConfig = DeadlineConfig()
    headers: SecretHeaders = Field(default={}, description="Set on every request to it.")
    forward_authorization: bool = Field(
        default=False, description="Pass the client's own `Authorization` on."
    )
    forward_headers: ForwardedHeaders = Field(
        default=(), description="Of the client's, passed on beside the usual ones."
    )
    reply_headers: ReplyHeaders = Field(
        default=(), description="Of its replies', passed on to clients beside the usual ones."
    )
    http2: bool = Field(default=False, description="HTTP/2 with prior knowledge on http, by ALPN on https.")
    socket: str | None = Field(
        default=None,
        min_length=1,
        description="A Unix socket to connect to; `base_url` then gives the `Host` header and the path.",
    )
    ca_file: ExistingFile | None = Field(default=None, description="PEM, in place of the usual roots.")
    client_cert_file: ExistingFile | None = Field(
        default=None, description="PEM: our own certificate and its chain, where the server asks for one."
    )
    client_key_file: ExistingFile | None = Field(default=None, description="PEM: its private key.")
    pool_idle_seconds: Seconds = Field(
        default=4.0,
        description="Below the 5 s after which self-hosted servers close an idle connection themselves.",
    )
    pool_max_idle: Count = 256

    @property
    def without_effect(self) -> list[str]:
        """The settings that are given and that only matter where `api` is another."""
        applies = {
            "chat": self.api == "chat",
            "responses": self.api == "responses",
            "repair": self.api != "chat",
            "format": self.api != "responses",
        }
        return [name for name, does in applies.items() if not does and name in self.model_fields_set]

    @model_validator(mode="after")
    def _certificate_with_key(self) -> Self:
        if (self.client_cert_file is None) != (self.client_key_file is None):
            raise fault(
                "client_certificate",
                "has one of `client_cert_file` and `client_key_file`",
                "give both, or neither",
            )
        return self

    @model_validator(mode="after")
    def _one_authorization(self) -> Self:
        sources = {
            "api_key": self.api_key is not None,
            "headers": any(name.lower() == "authorization" for name in self.headers),
            "forward_authorization": self.forward_authorization,
        }
        named = [name for name, present in sources.items() if present]
        if len(named) > 1:
            raise fault(
                "authorization", f"sets the authorization more than once: {', '.join(named)}", "keep one"
            )
        return self


def _known_upstream(name: str, known: Collection[str]) -> None:
    if name not in known:
        close = get_close_matches(name, known, n=1)
        raise fault(
            "unknown_upstream",
            f"names the upstream {name!r}, which is not configured",
            f"did you mean `{close[0]}`?" if close else f"configured: {', '.join(sorted(known))}",
        )


class RouteConfig(Section):
    """One way to serve a model. In short: `upstream`, or `upstream/model`."""

    upstream: RoutePart
    model: RoutePart = Field("", description="The upstream's own name for it; left out: the public name.")
    on_client_leave: OnClientLeave | None = Field(None, description="Left out: as the model says.")

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        upstream, slash, model = value.partition("/")
        return {"upstream": upstream, "model": model} if slash else {"upstream": upstream}

    @field_validator("upstream")
    @classmethod
    def _configured(cls, upstream: str, info: ValidationInfo) -> str:
        # A check brings the names along, so that they are known even where an upstream has faults.
        known = info.context.get("upstreams") if info.context else None
        if known is not None:
            _known_upstream(upstream, known)
        return upstream

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        full = handler.resolve_ref_schema(handler(core))
        return {"anyOf": [{"type": "string", "description": "upstream, or upstream/model"}, full]}


class ModelConfig(Section):
    """A model that clients ask for, and who serves it, tried in order. In short: its route, or a list."""

    routes: tuple[RouteConfig, ...] = Field(json_schema_extra={"minItems": 1})
    reply_model: ReplyModel = Field("upstream", description="Whose name the reply's `model` shows.")
    on_client_leave: OnClientLeave = Field(
        "cancel",
        description="cancel: close the upstream at once; drain: read its reply on for its usage.",
    )

    # Not `min_length`: that counts what is valid, so one bad route would also be called an empty list.
    @field_validator("routes")
    @classmethod
    def _not_empty(cls, routes: tuple[RouteConfig, ...]) -> tuple[RouteConfig, ...]:
        if not routes:
            raise fault("empty", "is empty", "a model needs at least one route")
        return routes

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if isinstance(value, list | tuple):
            return {"routes": value}
        if isinstance(value, str) or (isinstance(value, Mapping) and "upstream" in value):
            return {"routes": [value]}
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        full = handler.resolve_ref_schema(handler(core))
        routes = full["properties"]["routes"]
        return {"anyOf": [routes["items"], {**routes, "title": "Routes"}, full]}


class _Rates(Section):
    cached_input: UsdPerMillion | None = Field(default=None, description="Input read from the cache.")
    cache_write: UsdPerMillion | None = Field(
        default=None, description="Input written to the cache, for 5 minutes."
    )
    cache_write_1h: UsdPerMillion | None = Field(
        default=None, description="Input written to the cache, for an hour."
    )
    output: UsdPerMillion | None = Field(
        default=None, description="Left out for a model that makes none (embeddings)."
    )
    reasoning: UsdPerMillion | None = Field(
        default=None, description="Output spent on reasoning; left out: as `output`."
    )
    input_audio: UsdPerMillion | None = Field(default=None, description="Left out: as `input`.")
    input_image: UsdPerMillion | None = Field(default=None, description="Left out: as `input`.")
    output_audio: UsdPerMillion | None = Field(default=None, description="Left out: as `output`.")
    output_image: UsdPerMillion | None = Field(default=None, description="Left out: as `output`.")


class TierConfig(_Rates):
    """Long context: prices of a whole request with more input than `above`. What is left out stays."""

    above: Tokens = Field(description="Input tokens, cached ones included.")
    input: UsdPerMillion | None = None


class PriceConfig(_Rates):
    """What a model costs, in USD per million tokens. Where a needed price is missing the cost is unknown."""

    input: UsdPerMillion = Field(description="Input that was neither read from nor written to a cache.")
    tiers: tuple[TierConfig, ...] = ()

    @field_validator("tiers")
    @classmethod
    def _ascending(cls, tiers: tuple[TierConfig, ...]) -> tuple[TierConfig, ...]:
        if len({tier.above for tier in tiers}) != len(tiers):
            raise fault("tiers", "has two tiers above the same number of tokens", "keep one of them")
        return tuple(sorted(tiers, key=lambda tier: tier.above))


class CostConfig(Section):
    """How a reply shows its cost, and where prices come from that are not in `prices`."""

    style: CostStyle = "openrouter"
    genai_prices: bool = Field(
        default=True, description="Ask the genai-prices list for models without a price here."
    )


class StoreConfig(Section):
    """Stored and background responses: where they are kept, for how long, and how much runs at once."""

    store: bool = Field(default=True, description="False: nothing is kept, and `background` is refused.")
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
        default=4 * 1024**3, description="Of all that is kept; past it the oldest responses go."
    )
    max_response_bytes: MemoryBytes = Field(
        default=64 * 1024**2, description="Of one response; a background one that grows past it fails."
    )
    max_waiting_bytes: MemoryBytes = Field(
        default=256 * 1024**2,
        description="Of what waits in memory for the store. Past it background responses are slowed, new "
        "ones are refused with 503, and live replies are not kept.",
    )
    concurrency: Positive = Field(default=64, description="Background responses at once.")
    max_queued: Positive = Field(default=10_000, description="More are refused with 429.")
    queue_seconds: Seconds = Field(default=3600.0, description="What waits longer than this fails.")
    lease_seconds: Seconds = Field(
        default=15.0, description="A process that is silent for this long has lost what it was running."
    )
    retries: Count = Field(
        default=0, description="Of background work that an upstream failed before any output was kept."
    )
    rerun_interrupted: bool = Field(
        default=True,
        description="Run work again whose process died before any output was kept; false: it fails.",
    )

    @field_validator("url")
    @classmethod
    def _postgresql(cls, url: Secret | None) -> Secret | None:
        if url is not None and not url.get_secret_value().startswith("postgresql://"):
            raise fault("url", "is not a PostgreSQL URL", "postgresql://user:password@host/database")
        return url


class Config(Section):
    """A gateway's whole configuration."""

    server: ServerConfig = ServerConfig()
    keys: tuple[KeyConfig, ...] = Field(
        default=(), description="Who may call; left out: anyone who can connect."
    )
    access: Access | None = Field(
        default=None,
        description="Who may call: `open` is anyone who can connect; left out: `keys` where there are keys.",
    )
    upstreams: Mapping[UpstreamName, UpstreamConfig]
    models: Mapping[Name, ModelConfig]
    prices: Mapping[Name, PriceConfig] = Field(
        default={}, description="By public name, or by the upstream's name for the model."
    )
    cost: CostConfig = CostConfig()
    responses: StoreConfig = StoreConfig()

    @field_validator("keys")
    @classmethod
    def _keys(cls, keys: tuple[KeyConfig, ...]) -> tuple[KeyConfig, ...]:
        if not keys:
            raise fault(
                "keys",
                "is empty",
                "say `access: open` in place of it to serve anyone who can connect",
            )
        if len({key.name for key in keys}) != len(keys):
            raise fault("keys", "has two keys of the same name", "each client needs a name of its own")
        if len({key.key.get_secret_value() for key in keys}) != len(keys):
            raise fault("keys", "has the same key under two names", "each client needs a key of its own")
        return keys

    @field_validator("access")
    @classmethod
    def _agrees_with_keys(cls, access: Access | None, info: ValidationInfo) -> Access | None:
        # Keys with faults of their own are not in `data`: then only those are told.
        if "keys" not in info.data:
            return access
        if access == "keys" and not info.data["keys"]:
            raise fault("access", "says `keys`, and there are none", "add `keys`")
        if access == "open" and info.data["keys"]:
            raise fault("access", "says `open`, and there are keys", "take one of the two out")
        return access

    @field_validator("upstreams", "models")
    @classmethod
    def _not_empty(cls, value: Mapping[str, Any]) -> Mapping[str, Any]:
        if not value:
            raise fault("empty", "is empty", "a gateway needs at least one")
        return value

    @field_validator("models")
    @classmethod
    def _model_names(cls, models: Mapping[str, ModelConfig]) -> Mapping[str, ModelConfig]:
        def named(name: str, route: RouteConfig) -> RouteConfig:
            return route if route.model else route.model_copy(update={"model": name})

        return {
            name: model.model_copy(update={"routes": tuple(named(name, route) for route in model.routes)})
            for name, model in models.items()
        }

    @model_validator(mode="after")
    def _routes_lead_somewhere(self) -> Self:
        for model in self.models.values():
            for route in model.routes:
                _known_upstream(route.upstream, self.upstreams)
        return self

    @property
    def is_open_unsaid(self) -> bool:
        """Whether anyone on another machine is served without a key, and nothing says that this is meant."""
        if self.keys or self.access == "open":
            return False
        try:
            return not ip_address(self.server.host).is_loopback
        except ValueError:
            return self.server.host != "localhost"

    @classmethod
    def default(cls) -> Self:
        """What runs without a file: the scripted upstream that `sluicegate mock` starts, and its model."""
        return cls.model_validate(
            {
                "upstreams": {"mock": {"base_url": "http://127.0.0.1:18101/v1"}},
                "models": {"mock-1": "mock"},
                "prices": {
                    "mock-1": {"input": "0.5", "cached_input": "0.1", "cache_write": "0.6", "output": "2"}
                },
            }
        )
