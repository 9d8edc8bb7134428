"""What the scripted upstream does with a request: one frozen tree of plain values.

The same tree is written in Python (`Script(tokens=3, framing=Framing(line_ending="crlf"))`) and in JSON, in
a request's `mock` member or its `x-mock` header (`{"tokens": 3, "framing": {"line_ending": "crlf"}}`).
Times are seconds, sizes are bytes. An *event* is one that carries data: a comment is none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sluicegate.testing.dialects import DIALECTS, DialectName, Traits, UsagePlacement

Api = Literal[
    "chat",
    "completions",
    "embeddings",
    "responses",
    "messages",
    "count_tokens",
    "ollama",
    "speech",
    "transcriptions",
    "translations",
    "images",
    "image_edits",
    "moderations",
    "rerank",
    "score",
    "tokenize",
    "detokenize",
]
LineEnding = Literal["lf", "crlf", "cr"]
Compression = Literal["gzip", "deflate", "br", "zstd"]
Transfer = Literal["chunked", "length", "close"]
FaultAction = Literal["close", "reset", "stall", "error", "malformed", "oversized"]
FaultPlace = Literal["accept", "before_head", "in_head", "after_head", "events", "mid_event"]
ErrorStyle = Literal["data", "event", "field"]
StepAction = Literal["close", "reset", "stall"]

Step = bytes | float | StepAction
"""One step of a byte script: bytes to write, seconds to wait, or how the connection ends (`stall`: never)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One tool call of the reply."""

    name: str = "get_weather"
    arguments: str = '{"city":"Rome","unit":"celsius"}'
    """As text: a function's JSON, a custom tool's free text. Not checked, so that it may be broken."""
    id: str | None = None
    """None: made from the request (`call_…`)."""
    kind: Literal["function", "custom"] = "function"
    piece: int = 6
    """Characters of the arguments in one chunk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageScript:
    """What the reply says about its tokens, and where."""

    placement: UsagePlacement | None = None
    """None: as the dialect does."""
    nulls: bool | None = None
    """`"usage": null` on all other chunks. None: as the dialect does (OpenAI: where usage was asked for)."""
    input_tokens: int = 12
    """Cached tokens and cache writes included, whatever the dialect makes of that."""
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int | None = None
    """Reasoning included. None: as many as the reply has."""
    reasoning_tokens: int | None = None
    input_audio_tokens: int = 0
    output_audio_tokens: int = 0
    details: bool = True
    """The `*_details` objects."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Members added to the usage object, or put in place of its own (`{"cost": 0.1}`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """How events become bytes, and bytes become writes."""

    line_ending: LineEnding | None = None
    """None: LF, unless the dialect has another."""
    space_after_colon: bool = True
    trailing_space: bool | None = None
    """A space after the data of each event. None: as the dialect does (TensorRT-LLM has one)."""
    data_lines: int = 1
    """Spread each JSON payload over up to this many `data:` lines."""
    extra_lines: tuple[str, ...] = ()
    """Lines put before the data of each event (`id: 7`, `retry: 100`, `unknown`)."""
    bom: bool = False
    """A UTF-8 byte-order mark before the first event."""
    done_markers: int | None = None
    """How many `[DONE]` events end the stream. None: one, unless the API or the dialect has none."""
    final_blank_line: bool = True
    """False: the last event ends after its data line, as some llama.cpp builds leave `[DONE]`."""
    ensure_ascii: bool = False
    """Escape all other characters in JSON, as Python does by itself."""
    json_spaces: bool = False
    """A space after `:` and `,` in JSON."""
    keepalive: str = ": keep-alive"
    """What a keep-alive is, without its line ends. Not always a comment: `data: : keepalive` was seen."""
    keepalive_first: bool = False
    """One before the first event, as OpenRouter does."""
    keepalive_every_events: int = 0
    """One after each so many events, but none after the last; 0: none."""
    keepalive_every_seconds: float = 0.0
    """One after so long a silence, within delays and pace; 0: none."""
    events_per_write: int = 1
    """Events joined to one write and one HTTP chunk, where nothing has to be waited for between them."""
    piece_bytes: int = 0
    """Cut the body into HTTP chunks of this size, each a write of its own; 0: as `events_per_write` says."""
    wire_bytes: int = 0
    """Cut all that goes out (head, chunk sizes and body) into writes of this size; 0: no cuts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that goes wrong.

    `at` is where: as the connection is accepted (server defaults only), before, within or after the
    response head, after `events` whole events, or half-way through the event that follows them. A reply
    that is no stream counts as one event. A reply that is shorter than that ends first: no fault.

    What happens there:
    - `close`: the connection is closed (FIN), whatever is missing; `reset`: the same with RST;
    - `stall`: nothing is sent for `seconds`, then the reply goes on; without `seconds` it never does;
    - `error`: an error event, after which the stream ends (only at `events`);
    - `malformed`: an event whose JSON is cut off, then the reply goes on (only at `events`);
    - `oversized`: an event of `bytes` bytes of content, then the reply goes on (only at `events`).
    """

    action: FaultAction
    at: FaultPlace = "events"
    events: int = 1
    seconds: float | None = None
    keepalives: bool = False
    """Whether keep-alives go on while stalled."""
    bytes: int = 1_000_000
    error: Mapping[str, Any] | str | None = None
    """The value of the error event's `error` member. None: a server error as OpenAI writes it."""
    style: ErrorStyle = "data"
    """`data: {"error": …}`; the same in a named `event: error`; or llama.cpp's old field, `error: {…}`."""
    done: bool = False
    """Whether `[DONE]` follows the error event, as vLLM and mistral.rs have it."""
    on_reused: bool = False
    """Only where the connection has served a request before: what a client's pool may meet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One reply. Every field has a default: `Script()` is a plain, healthy OpenAI reply of a few words."""

    # What is said.
    tokens: int = 8
    """Content tokens, one a chunk; 0: none."""
    text: str | None = None
    """The content, split at its words. None: `tokens` words of a fixed text."""
    chunk_bytes: int = 0
    """Content of exactly this many bytes (ASCII) in each of `tokens` chunks; 0: words."""
    reasoning_tokens: int = 0
    reasoning_signature: str | None = None
    """What the upstream wants back with its reasoning: the signature (Messages), `encrypted_content`
    (Responses), the signature in `reasoning_details` (chat, as OpenRouter has it). None: Messages makes one
    from the request, the others have none."""
    refusal: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    n: int | None = None
    """Choices. None: as many as asked for."""
    logprobs: bool | None = None
    """None: where asked for."""
    finish_reason: str | None = "auto"
    """`auto`: `tool_calls` or `stop`. None: the stream has none."""
    role: bool | None = None
    """A first chunk with the role alone. None: as the dialect does."""
    reply_id: str | None = None
    """None: made from the request's messages, so that the same question has the same id."""
    model: str | None = None
    """The model that the reply names. None: the one asked for."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Members added to every chunk and document."""
    echo: bool = False
    """The first event, or the document, has a member `echo`: the request's method, path, headers and body."""
    usage: UsageScript = UsageScript()
    dialect: DialectName = "openai"
    """Of chat, and of Messages where the server has that API (vLLM, llama.cpp, Ollama, SGLang, Bedrock)."""
    traits: Traits | None = None
    """A dialect of one's own, in place of the named one."""

    # When.
    head_delay: float = 0.0
    first_token_delay: float = 0.0
    """Between the preamble (role chunk, `response.created`) and the first token."""
    pace: float = 0.0
    """Between tokens."""
    end_delay: float = 0.0
    """Between the last token and what ends the stream."""

    # In which form.
    api: Api | None = None
    """Reply as this API would. None: as the one that was called."""
    stream: bool | None = None
    """True: a stream, False: one JSON document, whatever was asked for. None: as asked."""
    ndjson: bool = False
    """A stream of JSON lines in place of events."""
    status: int = 200
    """400 or more: an error reply."""
    error: Mapping[str, Any] | str | None = None
    """The `error` member of an error reply. None: one that fits the status."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Added to the response head."""
    content_type: str | None = None
    """None: the right one."""
    compression: Compression | None = None
    """Compress the body, and flush after each write. br and zstd need a package of their own."""
    transfer: Transfer | None = None
    """How the body is delimited. None: chunked for streams, Content-Length for documents."""
    length_excess: int = 0
    """Added to the declared Content-Length; where positive, the connection is closed after the body."""
    keep_alive: bool = True
    """False: `Connection: close`, and it is."""
    refuse_stream_options: bool = False
    """A request with `stream_options` is answered with a 400 that names it."""
    framing: Framing = Framing()
    faults: tuple[Fault, ...] = ()

    # Instead of all that.
    body: tuple[Step, ...] = ()
    """The body, step by step, after a normal head; chunked, unless `transfer` says otherwise."""
    raw: tuple[Step, ...] = ()
    """Everything, status line included, step by step; the connection is closed after the last."""

    @property
    def wire(self) -> Traits:
        """The dialect's traits."""
        return self.traits or DIALECTS[self.dialect]


def raw(*steps: Step) -> Script:
    """A script of bytes alone: all that goes over the connection, status line included.

    `raw(b"HTTP/1.1 200 OK\\r\\n", 0.5, b"content-length: 2\\r\\n\\r\\n{", "reset")`
    """
    return Script(raw=steps)


def body(*steps: Step, content_type: str = "text/event-stream", status: int = 200) -> Script:
    """A script of the body's bytes; head and chunked encoding are made as usual, one HTTP chunk a step."""
    return Script(body=steps, content_type=content_type, status=status)
