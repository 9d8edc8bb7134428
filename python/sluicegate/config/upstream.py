"""One upstream of a configuration: how it is reached, and how it is spoken to."""

from collections.abc import Iterator, Mapping
from typing import Literal, Self

from pydantic import Field, ModelWrapValidatorHandler, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from sluicegate.config.apis import Apis, spelled
from sluicegate.config.discover import DiscoverConfig, whole_form
from sluicegate.config.health import ProbeConfig
from sluicegate.config.members import MembersConfig
from sluicegate.config.messages import CountTokens, MessagesConfig
from sluicegate.config.profiles import GENERIC, NAMES, ProfileName, profile
from sluicegate.config.quantities import fault, raise_all
from sluicegate.config.section import Section
from sluicegate.config.values import (
    BaseUrl,
    Count,
    EndpointPaths,
    ExistingFile,
    ForwardedHeaders,
    KeyHeader,
    Name,
    ReplyHeaders,
    Seconds,
    Secret,
    SecretHeaders,
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
InstructionsRole = Literal["system", "developer"]
ReasoningField = Literal["reasoning_content", "reasoning", "none"]
MaxTokensField = Literal["max_tokens", "max_completion_tokens"]
LateSystem = Literal["system", "user"]
Effort = Literal["minimal", "low", "medium", "high", "xhigh", "max"]
ThinkingOff = Literal["nothing", "effort", "template"]
TextFormat = Literal["auto", "harmony"]
Streaming = Literal["auto", "always", "never"]


class DeadlineConfig(Section):
    """How long to wait for an upstream; null: without limit. Keep-alives do not count as tokens."""

    connect: Seconds | None = Field(default=5.0, description="Until a connection is there, TLS included.")
    first_byte: Seconds | None = Field(default=600.0, description="Until the reply begins.")
    first_token: Seconds | None = Field(
        default=600.0,
        description="Until the first text, reasoning or tool call. Balancers in front of the gateway close a "
        "connection that is silent for 60 s: set `server.keepalive_seconds` below that, or this.",
    )
    between_tokens: Seconds | None = Field(
        default=120.0, description="Between one text, reasoning or tool call and the next."
    )
    total: Seconds | None = Field(
        default=3600.0,
        description="From the request's first sending to the reply's end, all attempts and pauses "
        "between them included. A client lowers it with `x-sluicegate-timeout`.",
    )


class ChatConfig(MembersConfig):
    """How requests are put to a server of Chat Completions."""

    instructions_role: InstructionsRole = Field(
        default="system", description="The role that `instructions` and developer messages are given."
    )
    reasoning_field: ReasoningField = Field(
        default="reasoning_content",
        description="The member of a message that carries the reasoning of earlier turns; none: not sent.",
    )
    max_tokens_field: MaxTokensField | None = Field(
        default=None,
        description="The member that carries the limit of output tokens; null: as the client calls it, and "
        "`max_tokens` in what is translated.",
    )
    late_system: LateSystem = Field(
        default="system",
        description="Where system messages go that a client of Messages sends between others. user: into the "
        "user's next message, for chat templates that allow one only in front.",
    )
    effort_ceiling: Effort = Field(
        default="high",
        description="The highest effort that the server knows; a client of Messages may ask for more.",
    )
    thinking_off: ThinkingOff = Field(
        default="nothing",
        description="How the server is told that a client of Messages wants no thinking. effort: "
        "`reasoning_effort: none`; template: `chat_template_kwargs: {enable_thinking: false}`.",
    )


class ResponsesConfig(MembersConfig):
    """How requests are put to a server of the Responses API."""

    takes_reasoning: bool = Field(
        default=False,
        description="The server takes the reasoning of earlier turns as text (vLLM does; OpenAI does not).",
    )


class UpstreamConfig(Section):
    """One inference server."""

    profile: ProfileName = Field(
        default=GENERIC,
        description="What kind of server it is: what follows from that need not be said, and what is said "
        "goes before it. `sluicegate profiles` lists them. generic: nothing is known.",
    )
    base_url: BaseUrl = Field(
        description="The server's URL without the endpoint: http://127.0.0.1:8000/v1. It may be left out "
        "where the profile has one."
    )
    paths: EndpointPaths = Field(
        default={},
        description="Where endpoints lie below `base_url` that are not where they usually are, by the path "
        "that clients call (`/v1/embeddings: /embed`); `{model}` stands for the server's name of the model, "
        "which the request does not have then.",
    )
    stream_paths: EndpointPaths = Field(
        default={}, description="The same for requests that ask for a stream, where that is another endpoint."
    )
    query: Mapping[Name, str] = Field(
        default={}, description="The query of every request (`api-version: 2024-10-21`)."
    )
    api_key: Secret | None = Field(default=None, description="The gateway's own key for the server.")
    key_header: KeyHeader | None = Field(
        default=None,
        description="The header that carries `api_key`. authorization: as `Bearer …`; any other: as it is; "
        "null: `x-api-key` to a Messages API, otherwise `authorization`.",
    )
    api: Apis = Field(
        default=("chat",),
        description="What the server has: Chat Completions, the Responses API, Anthropic's Messages API, or "
        "several (both: the first two). What it has is forwarded as it comes, so what the server cannot do "
        "is left for the server to refuse; other requests are translated to the first of the list, and what "
        "that cannot do (`file_search`, `conversation` with chat) is refused by name.",
    )
    chat: ChatConfig = Field(
        default=ChatConfig(),
        description="How requests to Chat Completions differ, and how others are translated to it.",
    )
    responses: ResponsesConfig = Field(
        default=ResponsesConfig(),
        description="How requests to its Responses API differ, and how others are translated to it.",
    )
    messages: MessagesConfig = Field(
        default=MessagesConfig(),
        description="How its Messages API is spoken to, and how input tokens are counted.",
    )
    discover: DiscoverConfig | None = Field(
        default=None, description="true: ask the server which models it serves, and serve them."
    )
    repair: bool = Field(
        default=False,
        description="Write the events of its Responses and Messages streams again, for a server that breaks "
        "the protocol (llama.cpp).",
    )
    format: TextFormat = Field(
        default="auto",
        description="harmony: decode the raw text of gpt-oss that the server sends as content; auto: do not.",
    )
    dialect: Dialect | None = Field(
        default=None, description="How the server reports usage; null: it is recognised from the reply."
    )
    stream_options: bool = Field(
        default=True,
        description="Ask for usage in streams; false: for a server that refuses `stream_options`.",
    )
    streaming: Streaming = Field(
        default="auto",
        description="Whether the server is asked to stream; auto: as the client asks. The reply is converted "
        "where the client asked otherwise.",
    )
    deadlines: DeadlineConfig = Field(default=DeadlineConfig(), description="How long to wait for it.")
    headers: SecretHeaders = Field(default={}, description="Headers to set on every request to it.")
    forward_authorization: bool = Field(
        default=False,
        description="Pass the client's own `Authorization` header on, and to a Messages API `x-api-key`.",
    )
    forward_headers: ForwardedHeaders = Field(
        default=(), description="Headers of the client's request to pass on beside the usual ones."
    )
    reply_headers: ReplyHeaders = Field(
        default=(), description="Headers of its replies to pass on to clients beside the usual ones."
    )
    http2: bool = Field(
        default=False, description="Use HTTP/2: with prior knowledge on http, by ALPN on https."
    )
    socket: str | None = Field(
        default=None,
        min_length=1,
        description="A Unix socket to connect to; `base_url` then gives the `Host` header and the path.",
    )
    ca_file: ExistingFile | None = Field(
        default=None, description="The authorities to trust in place of the usual ones, PEM."
    )
    client_cert_file: ExistingFile | None = Field(
        default=None,
        description="The gateway's own certificate and its chain, PEM, where the server asks for one.",
    )
    client_key_file: ExistingFile | None = Field(
        default=None, description="The private key of `client_cert_file`, PEM."
    )
    pool_idle_seconds: Seconds = Field(
        default=4.0,
        description="How long an idle connection is kept. Below the 5 s after which self-hosted servers "
        "close one themselves.",
    )
    pool_max_idle: Count = Field(default=256, description="How many idle connections a thread keeps.")
    probe: ProbeConfig | None = Field(
        default=None, description="Ask it again and again whether it is there; null: requests tell."
    )

    @model_validator(mode="wrap")
    @classmethod
    def _over_the_profile(
        cls, data: object, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        """The profile's settings are filled in; which ones are the upstream's own is still told."""
        if not isinstance(data, Mapping):
            return handler(data)
        name = data.get("profile", GENERIC)
        if not isinstance(name, str) or name not in NAMES:
            # Whether it would have had an address is not known: one fault is enough.
            return handler({"base_url": "http://unknown", **data})
        known = profile(name)
        merged = known.under(data)
        if (info.context or {}).get("in_parts"):
            # Its address has a fault, and was left out: there may be others.
            merged = {"base_url": "http://unknown", **merged}
        if "base_url" not in merged and known.address is not None:
            missing = f"such as {known.address}"
            raise_all("UpstreamConfig", [fault("address", "is missing", missing, at=("base_url",))])
        made = handler(merged)
        object.__setattr__(made, "__pydantic_fields_set__", set(data))
        return made

    @field_validator("discover", mode="before")
    @classmethod
    def _discover(cls, value: object) -> object:
        return whole_form(value)

    @property
    def without_effect(self) -> list[str]:
        """The settings that are given and that only matter where `api` is another."""
        applies = {
            "chat": "chat" in self.api,
            "responses": "responses" in self.api,
            "messages": "messages" in self.api or self.messages.count_tokens is not None,
            "repair": "responses" in self.api or "messages" in self.api,
            "format": "chat" in self.api,
        }
        return [name for name, does in applies.items() if not does and name in self.model_fields_set]

    @property
    def apis(self) -> str:
        """`api` as a file would have it."""
        return spelled(self.api)

    @property
    def counts_tokens(self) -> CountTokens:
        """What becomes of a request to count the tokens of an input."""
        return self.messages.count_tokens or ("forward" if "messages" in self.api else "off")

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        raise_all("UpstreamConfig", self._faults())
        return self

    def _faults(self) -> Iterator[PydanticCustomError]:
        if (self.client_cert_file is None) != (self.client_key_file is None):
            there, lacks = "client_cert_file", "client_key_file"
            if self.client_cert_file is None:
                there, lacks = lacks, there
            message = "has one of `client_cert_file` and `client_key_file`"
            yield fault("client_certificate", message, "give both, or neither", at=(there,), lacks=(lacks,))
        if self.messages.count_tokens == "forward" and "messages" not in self.api:
            yield fault(
                "count_tokens",
                "is `forward`, and the server has no Messages API",
                "say `estimate` or `off`, or add messages to `api`",
                at=("messages", "count_tokens"),
                lacks=("api", "profile"),
            )
        usual = {"authorization", "x-api-key"} if "messages" in self.api else {"authorization"}
        credentials = usual if self.key_header is None else {self.key_header}
        sources = {
            "api_key": self.api_key is not None,
            "headers": any(name.lower() in credentials for name in self.headers),
            "forward_authorization": self.forward_authorization,
        }
        named = [name for name, present in sources.items() if present]
        if len(named) > 1:
            message = f"sets the authorization more than once: {', '.join(named)}"
            yield fault("authorization", message, "keep one", at=(named[-1],), lacks=("api", "key_header"))
