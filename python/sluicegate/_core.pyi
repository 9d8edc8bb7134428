"""The byte path, in Rust. Private: the public names are re-exported by `sluicegate`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, ClassVar, Final, Literal, final

from sluicegate.errors import ParseError

__version__: str
BUILD: str
"""The cargo profile of this build: `release`, `quick`, `debug`. Figures are measured with `release` only."""

__all__ = [
    "BUILD",
    "ENDPOINTS",
    "FAULT_KINDS",
    "FAULT_REASONS",
    "AbandonedSegment",
    "Arrived",
    "ChatTarget",
    "ChatToResponses",
    "Clock",
    "DatedRows",
    "Deadlines",
    "Decisions",
    "Demand",
    "Died",
    "Ended",
    "Estimates",
    "Excess",
    "Exchange",
    "Failed",
    "Fault",
    "FirstOutput",
    "Front",
    "HarmonyDecoder",
    "Journal",
    "JournalBatch",
    "JournalEntry",
    "JournalLines",
    "JournalRows",
    "Lease",
    "Limit",
    "Limits",
    "ListenBounds",
    "LoadRoom",
    "LoadShare",
    "MemberEdits",
    "MessagesTarget",
    "Outcome",
    "Pipeline",
    "PriceAsked",
    "Pricing",
    "Rendezvous",
    "Request",
    "RequestRecord",
    "ResponseFold",
    "ResponseNumbering",
    "ResponsesRequest",
    "ResponsesTarget",
    "ResponsesToChat",
    "Route",
    "SSEDecoder",
    "SSESplitter",
    "ServerSentEvent",
    "Tariff",
    "Tls",
    "Unrecorded",
    "Upstream",
    "Usage",
    "UsageMeter",
    "Window",
    "__version__",
    "affinity_of_chat",
    "affinity_of_key",
    "error_message",
    "find_items",
    "first_events",
    "fold_chat",
    "in_progress_event",
    "item_ids",
    "list_items",
    "messages_error_type",
    "queued_response",
    "read_response",
    "repeated_items",
    "skip_events",
    "unfold_chat",
    "unfold_response",
]

_Headers = Sequence[tuple[bytes, bytes]]
_Whole = tuple[int, _Headers, bytes]

@final
class Request:
    """A client's JSON body, read once: what routing needs, and the bytes as they came.

    Raises `sluicegate.errors.InvalidJSON` (with `offset`, in bytes) when the body is not one JSON object.
    """

    def __new__(cls, body: bytes) -> Request: ...
    model: Final[str | None]
    """The `model` member; None where it is absent, null or not a string."""
    stream: Final[bool]
    include_usage: Final[bool]
    """Whether the client asked for a usage chunk."""
    size: Final[int]
    """Bytes."""

@final
class ResponsesRequest:
    """A client's request for a response, read once.

    Raises `sluicegate.errors.InvalidJSON` when the body is not one JSON object, `InvalidRequest` where
    `stream`, `store`, `background` or `previous_response_id` have a type they cannot have, and `TooDeep`.
    """

    def __new__(cls, body: bytes) -> ResponsesRequest: ...
    model: Final[str | None]
    """The `model` member; None where it is absent, null or not a string."""
    stream: Final[bool]
    store: Final[bool]
    """True unless the client says no."""
    background: Final[bool]
    previous_response_id: Final[str | None]
    """As the client sent it, also behind `with_input_prefix`."""
    refers: Final[bool]
    """Whether an item of the input is a reference: an id in place of an item that was made earlier."""
    unstorable: Final[str | None]
    """The first member that names something in a store and cannot be kept as text, since it has a lone
    surrogate or NUL: `previous_response_id` or `input[2].id`. None where all can."""
    body: Final[bytes]
    """The body as it came, or as `with_input_prefix` made it; a copy."""
    size: Final[int]
    """Bytes."""
    input_tokens_estimate: Final[int]
    """As that of `Arrived`."""
    references: Final[list[str]]
    """The ids that items of the input refer to, decoded, in their order; at most 1,001 of them. Empty for an
    id that is no string."""
    def with_items(self, items: Mapping[str, bytes], share: LoadShare | None = None) -> ResponsesRequest:
        """The same request with items, JSON by id, in place of the references to them; others stay. It has
        `share` for as long as any part of its body is there.

        Raises as `with_input_prefix` does.
        """
    def with_input_prefix(self, items: bytes, share: LoadShare | None = None) -> ResponsesRequest:
        """The same request with earlier items, JSON with commas in between, in front of its input and without
        `previous_response_id`. It has `share` for as long as any part of its body is there.

        Raises `sluicegate.errors.DocumentTooLarge` where it would be larger than a request may be, and
        `InvalidJSON` where an item is no JSON.
        """
    def as_run(self) -> bytes:
        """The body as it is run in the background: with `stream`, and without `background`."""

@final
class LoadShare:
    """What one caller has taken of a `LoadRoom`. It is given back when nobody has it any more."""

    def release(self) -> None:
        """Give it back, but for what requests that have it take: twice the size of their bodies.

        Idempotent.
        """

@final
class LoadRoom:
    """Room for so many bytes of what is loaded of stored responses, which callers share. For any thread."""

    def __new__(cls, bytes: int) -> LoadRoom: ...
    taken: Final[int]
    """Bytes."""
    def take(self, caller: str, bytes: int) -> LoadShare | None:
        """Take so much for a caller; None where there is no room. Nobody who has some already takes more than
        is left for others, and what is larger than the room is alone in it.
        """

_Turn = tuple[str, bytes, bytes]
"""A response's id, its request, and its Response object, or nothing in its place; JSON. What is no JSON has
no items."""

@final
class ResponseNumbering:
    """A reply's bytes → its events as they are kept: checked, and numbered without a gap.

    `own` is the Response object as the client knows it: its members take the place of the upstream's, but
    for those that only an upstream knows, and the reply's first events, which the client has been sent, are
    left out. None: a client has seen these very events, so nothing but a number that is wrong or missing is
    changed.
    """

    def __new__(
        cls, following: int, own: bytes | None, *, max_event_bytes: int | None = None
    ) -> ResponseNumbering: ...
    following: Final[int]
    """The number of the next event."""
    ending: Final[tuple[Literal["completed", "incomplete", "failed"], bytes] | None]
    """How the response ended, and the object in its last event, JSON; a copy."""
    has_ended: Final[bool]
    error: Final[str | None]
    """What an `error` event said, or the end of a response that has failed with items that nobody closed,
    which is not among the events; or why an event is malformed."""
    error_code: Final[str | None]
    """The code of that, `server_error` where it has none; None also for a malformed event."""
    malformed: Final[bool]
    """An event came that no client could read, or more than are kept of one response: it and what follows is
    left out."""
    def feed(self, data: bytes) -> bytes:
        """The events that `data` completes, back to back.

        Raises `sluicegate.errors.EventTooLarge`, once the events before it have been returned.
        """
    def finish(self) -> bytes:
        """The event that the reply ended in. Raises what `feed` would have raised next."""

@final
class ResponseFold:
    """A response as its events tell it: what it looks like so far, and the events that close what is open.

    What is not understood changes nothing. Of more than `max_bytes` only the response's own members are kept.
    """

    def __new__(cls, response: bytes, max_bytes: int) -> ResponseFold: ...
    following: Final[int]
    """The number that follows the last event that was taken."""
    held: Final[int]
    """Bytes of what it is made of."""
    def take(self, events: bytes) -> None:
        """Take in whole events, numbered; those that were taken before are passed over."""
    def response(self, status: str) -> bytes:
        """The Response object as it stands, JSON; with this status, unless its last event has come."""
    def end(self, error: tuple[str, str] | None = None) -> tuple[bytes, bytes, int]:
        """The events that end the response here, its object then, and the number that follows.

        What is open is closed, as incomplete. With an `error`, its code and message, the response fails;
        without, it was cancelled.
        """

def unfold_response(response: bytes) -> bytes:
    """The events of a Response object that came whole, with whole deltas and without `[DONE]`.

    Raises `sluicegate.errors.InvalidJSON` and `TooDeep`.
    """

def skip_events(events: bytes, count: int) -> bytes:
    """Whole events without the first `count`."""

def queued_response(request: ResponsesRequest, id: str, created_at: int, model: str) -> bytes:
    """The Response object of a background response that has just been taken on, JSON. `created_at`: Unix
    seconds."""

def first_events(response: bytes) -> bytes:
    """`response.created` and `response.queued`, numbered 0 and 1."""

def in_progress_event(response: bytes, number: int) -> bytes:
    """`response.in_progress`."""

def error_message(body: bytes) -> str | None:
    """What an error body of an upstream says; None for what is no JSON object."""

def messages_error_type(status: int) -> str:
    """The `type` of an error with this status in the Messages API."""

def read_response(
    response: bytes,
) -> tuple[str, Literal["completed", "incomplete", "failed", "cancelled"]] | None:
    """The id and the status of a Response object, JSON; None for what is none, or has not ended. An id that
    is no text is empty here."""

def item_ids(turn: _Turn) -> list[str]:
    """The ids of its items, at most 10,000, none longer than 512 bytes; those without one have one that is
    made of the response's id and their place."""

def find_items(turn: _Turn, ids: list[str]) -> dict[str, bytes]:
    """The items with these ids, as they are listed, JSON; those that are not there are left out."""

def repeated_items(conversation: Sequence[_Turn]) -> bytes:
    """All items, oldest turn first, as they are sent to an upstream: JSON with commas in between."""

def list_items(conversation: Sequence[_Turn], ascending: bool, after: str | None, limit: int) -> bytes | None:
    """A page of all items: OpenAI's list object, JSON. None where `after` is not one of them."""

@final
class Usage:
    """Token counts in one form, whatever the upstream's dialect: input includes cached, output includes
    reasoning. None: not reported.
    """

    input_tokens: Final[int | None]
    cached_input_tokens: Final[int | None]
    cache_write_tokens: Final[int | None]
    cache_write_1h_tokens: Final[int | None]
    output_tokens: Final[int | None]
    reasoning_tokens: Final[int | None]
    input_audio_tokens: Final[int | None]
    output_audio_tokens: Final[int | None]
    input_image_tokens: Final[int | None]
    output_image_tokens: Final[int | None]
    total_tokens: Final[int | None]
    upstream_cost: Final[str | None]
    """The cost that the upstream itself reported, as it wrote the number."""
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
    def as_dict(self) -> dict[str, int | str]:
        """The fields that were reported."""

@final
class Deadlines:
    """Seconds; None: no deadline."""

    def __new__(
        cls,
        *,
        connect: float | None = None,
        first_byte: float | None = None,
        first_token: float | None = None,
        between_tokens: float | None = None,
        total: float | None = None,
    ) -> Deadlines: ...

@final
class ChatTarget:
    """How requests for a response are put to an upstream that serves Chat Completions only.

    `instructions_role`: `system` or `developer`. `reasoning_field`, of earlier turns: `reasoning_content`,
    `reasoning` or `none`. Of clients of Messages, `late_system`: `system` or `user`; `effort_ceiling`: the
    highest effort that is sent; `thinking_off`: `nothing`, `effort` or `template`.
    """

    def __new__(
        cls,
        *,
        instructions_role: str = "system",
        reasoning_field: str = "reasoning_content",
        late_system: str = "system",
        effort_ceiling: str = "high",
        thinking_off: str = "nothing",
    ) -> ChatTarget: ...

@final
class ResponsesTarget:
    """How requests to Chat Completions are put to an upstream that serves Responses only.

    `takes_reasoning`: it takes the reasoning of earlier turns as text.
    """

    def __new__(cls, *, takes_reasoning: bool = False) -> ResponsesTarget: ...

@final
class MessagesTarget:
    """How requests of other clients are put to an upstream that serves Messages only.

    `max_tokens`: for clients that give no bound. `thinking`: how its models are told to think, `adaptive`,
    `budget` or `none`. `signed`: only reasoning that it has signed itself goes back to it. `inline_system`:
    it takes messages of the system's between others. `cache`: how long it is asked to keep prompts, `off`,
    `5m` or `1h`. `rest`: what becomes of members that nobody here knows, `pass` or `drop`.
    """

    def __new__(
        cls,
        *,
        max_tokens: int = 8192,
        thinking: str = "adaptive",
        signed: bool = True,
        inline_system: bool = False,
        cache: str = "off",
        rest: str = "pass",
    ) -> MessagesTarget: ...

@final
class MemberEdits:
    """How the members of requests to one API differ for an upstream, whoever wrote them.

    `omit`: not sent. `rename`: pairs of names; where a request has the second, too, the first is not sent.
    `add`: names, and values as JSON, for requests without a member of that name. Raises ValueError for a
    value that is no JSON.
    """

    def __new__(
        cls,
        *,
        omit: Sequence[str] | None = None,
        rename: Sequence[tuple[str, str]] | None = None,
        add: Sequence[tuple[str, str]] | None = None,
    ) -> MemberEdits: ...

@final
class Upstream:
    """One inference server: where it is, how it is spoken to. Made once, with a connection pool of its own.

    `paths`: pairs of an endpoint's usual path below `base_url` and the one that it has there, with
    `{model}` for the model's name; `stream_paths`: the same for streams; `query`: encoded, on each request.
    `headers` are set on each request. `api_key` goes in `key_header`, as a bearer token in `authorization`;
    None: `x-api-key` to a Messages API, otherwise `authorization`. `edits`: by the API's name. `serves`:
    what it has of `chat`, `responses` and `messages` (default: `chat`); a request to another of them is
    translated to the first. `repair`: its Responses streams are made anew; `harmony`: its content is the
    raw text of gpt-oss. `forward_headers`, `reply_headers`: names that are passed on, up and down, beside
    those that always are. `ask_usage`: send `stream_options.include_usage`. `socket`: the path of a Unix
    socket to connect to, whatever the URL's host. `client_certificate`: paths of a PEM certificate chain
    and its key.
    Raises `sluicegate.errors.ConfigurationError` for a base URL that is not http or https, and for files
    that cannot be used.
    """

    def __new__(
        cls,
        name: str,
        base_url: str,
        *,
        paths: Sequence[tuple[str, str]] | None = None,
        stream_paths: Sequence[tuple[str, str]] | None = None,
        query: str = "",
        headers: _Headers | None = None,
        api_key: bytes | None = None,
        key_header: str | None = None,
        serves: Sequence[str] | None = None,
        chat: ChatTarget | None = None,
        responses: ResponsesTarget | None = None,
        messages: MessagesTarget | None = None,
        edits: Sequence[tuple[str, MemberEdits]] | None = None,
        repair: bool = False,
        harmony: bool = False,
        deadlines: Deadlines | None = None,
        dialect: str | None = None,
        ask_usage: bool = True,
        streaming: str = "auto",
        forward_authorization: bool = False,
        forward_headers: Sequence[str] | None = None,
        reply_headers: Sequence[str] | None = None,
        http2: bool = False,
        socket: str | None = None,
        ca_file: str | None = None,
        client_certificate: tuple[str, str] | None = None,
        pool_idle_seconds: float = 4.0,
        pool_max_idle: int = 256,
    ) -> Upstream: ...
    name: Final[str]

@final
class Route:
    """One way to serve one public model: an upstream, its name for the model, and what the reply shows
    (None: the upstream's own name). `drain`: where the client leaves, the reply is read on for its usage.
    """

    def __new__(
        cls,
        upstream: Upstream,
        model: str,
        *,
        reply_model: str | None = None,
        drain: bool = False,
    ) -> Route: ...
    upstream: Final[Upstream]
    model: Final[str]

@final
class Fault:
    """Why an attempt failed."""

    kind: Final[str]
    """One of `FAULT_KINDS`."""
    upstream: Final[str]
    message: Final[str]
    """For the client: names the upstream and what happened; no address, header, key or body."""
    status: Final[int | None]
    """The upstream's status, where the kind is `status`; for `in_band_error` the one that the error's code or
    type stands for, if any.
    """
    reason: Final[str | None]
    """Why the connection failed, where the kind is `connect` or `reset`: one of `FAULT_REASONS`."""
    param: Final[str | None]
    """The member of the request that is at fault, where the kind is `untranslatable`."""
    spent: Final[bool]
    """The request's body, an upload, is gone with the attempt: no other can follow."""
    headers: Final[list[tuple[bytes, bytes]]]
    """The upstream's headers that may go to the client (`retry-after`, `content-type`, rate limits …)."""
    body: Final[bytes]
    """The upstream's error body, or what a large one says; empty unless the kind is `status`."""

ENDPOINTS: tuple[tuple[str, str, bool], ...]
"""What is forwarded: the path, the name in logs and metrics, and whether errors have the form of Messages."""

FAULT_KINDS: tuple[str, ...]
FAULT_REASONS: tuple[str, ...]

@final
class Outcome:
    """How an exchange ended. Times are seconds since the request was whole."""

    status: Final[int]
    """The status the client got; 499 where it left before one was sent."""
    upstream: Final[str]
    """Empty where no attempt was made, as `upstream_model` is."""
    upstream_model: Final[str]
    attempts: Final[int]
    tries: Final[list[tuple[str, str, str | None, int | None, str | None, float, float]]]
    """Each attempt: upstream, the upstream's name for the model, kind, status and reason of its fault, when
    it began and how long it took.
    """
    code: Final[str | None]
    """Of an error that the front answered with by itself: `invalid_api_key`, `request_too_large`, …"""
    streamed: Final[bool]
    """The client was sent an event stream."""
    usage: Final[Usage | None]
    """What is charged: what the upstream said last, and where that is `estimated`, what stands in place of
    what it has not said.
    """
    finish_reason: Final[str | None]
    fault: Final[Fault | None]
    """Also set where the client got HTTP 200: a stream that broke off, an error event inside it."""
    client_left: Final[bool]
    events: Final[int]
    """Data events from the upstream."""
    malformed: Final[int]
    token_events: Final[int]
    """Events that bore output."""
    estimated: Final[bool]
    """The upstream has not said all of its usage: output is counted from events, or input estimated."""
    cost: Final[str | None]
    """USD, exact, plain decimal text: what the last attempt's `Pricing` says of the usage. None: not known,
    or there was no pricing.
    """
    priced: Final[bool]
    """False: there were tokens, and no known cost."""
    stalled: Final[bool]
    """The client took nothing for `client_stall_seconds`, and was cut; `client_left` is also set."""
    bytes_in: Final[int]
    bytes_out: Final[int]
    left_out: Final[list[str]]
    """Parts of the request (`tools[2]`) that the upstream was not told: no answer depends on them."""
    first_byte: Final[float | None]
    first_token: Final[float | None]
    last_token: Final[float | None]
    longest_gap: Final[float | None]
    """Longest time between two reads that bore tokens, without that in which the client took nothing."""
    client_blocked: Final[float]
    """How long the upstream was not read because the client took nothing."""
    duration: Final[float]
    upstream_request_id: Final[str | None]

_Try = tuple[str, str, str | None, int | None, str | None, float, float]

@final
class RequestRecord:
    """What is known of one request once it is over. Times are seconds; None is "not known", never zero. No
    secret, no prompt.
    """

    def __new__(
        cls, request_id: str, endpoint: str, status: int, result: str, duration: float, *,
        id: str | None = None, caller: str | None = None, key_id: str | None = None, model: str = "",
        requested_model: str | None = None, code: str | None = None, limit: str | None = None,
        path: str | None = None, response_id: str | None = None,
        client_left: bool = False, stalled: bool = False, upstream: str = "",
        upstream_model: str = "", upstream_request_id: str | None = None, attempts: int = 0,
        tries: Sequence[_Try] = ..., fault: str | None = None, left_out: Sequence[str] = ...,
        finish_reason: str | None = None, streamed: bool = False, time_to_first_token: float | None = None,
        inter_token_latency: float | None = None, longest_gap: float | None = None,
        client_blocked: float = 0.0, input_tokens: int | None = None, cached_input_tokens: int | None = None,
        cache_write_tokens: int | None = None, output_tokens: int | None = None,
        reasoning_tokens: int | None = None, estimated: bool = False, implausible: bool = False,
        cost: str | None = None, upstream_cost: str | None = None, priced: bool = True, events: int = 0,
        malformed: int = 0, bytes_in: int = 0, bytes_out: int = 0,
    ) -> RequestRecord: ...  # fmt: skip
    request_id: Final[str]
    endpoint: Final[str]
    status: Final[int]
    result: Final[str]
    """One of `sluicegate.telemetry.Result`."""
    duration: Final[float]
    id: Final[str | None]
    """Of its row in the ledger, where it has one."""
    caller: Final[str | None]
    """The caller's name."""
    key_id: Final[str | None]
    """Of the caller's key, and no secret."""
    model: Final[str]
    """The public name, where it is a configured one; a metric label, so nothing a client can make up."""
    requested_model: Final[str | None]
    """What the client asked for, where that is not `model`: an alias, what a wildcard matched, or unknown."""
    code: Final[str | None]
    """The `code` of the error that the gateway answered with."""
    path: Final[str | None]
    """What was asked for, where there is no such thing; bounded."""
    response_id: Final[str | None]
    """Of a background response, of which this is one run."""
    client_left: Final[bool]
    stalled: Final[bool]
    """The client took nothing for too long, and was cut; `client_left` is also set."""
    upstream: Final[str]
    upstream_model: Final[str]
    attempts: Final[int]
    fault: Final[str | None]
    """The kind of the fault that ended the request, also where its status is 200."""
    last_failed: Final[_Try | None]
    """The attempt whose fault is `fault`."""
    failed_attempts: Final[list[_Try]]
    """The attempts that failed, but for the one whose fault is `fault`."""
    streamed: Final[bool]
    time_to_first_token: Final[float | None]
    inter_token_latency: Final[float | None]
    """Mean gap between events that bore tokens; the upstream's time only."""
    client_blocked: Final[float]
    """How long the upstream was not read because the client took nothing."""
    input_tokens: Final[int | None]
    cached_input_tokens: Final[int | None]
    cache_write_tokens: Final[int | None]
    output_tokens: Final[int | None]
    reasoning_tokens: Final[int | None]
    estimated: Final[bool]
    """The upstream has not said all of its usage: output is counted from events, or input estimated."""
    implausible: Final[bool]
    """The upstream has said counts that no request has: they are not believed."""
    cost: Final[str | None]
    """USD, exact: plain decimal text."""
    priced: Final[bool]
    """False: there was usage, and no price for it."""
    def line(self, time: str, level: str) -> bytes:
        """The request's line in the log: one JSON object and a line feed. Members that are not known are left
        out; times are seconds, to the microsecond.
        """

@final
class Tariff:
    """What a model's tokens cost: `base`, and (input tokens, rates) that replace it above so many, the
    highest first.

    Rates are USD per token as plain decimal text (`0.000001`), None where not known, in this order: `input`,
    `cached_input`, `cache_write`, `cache_write_1h`, `output`, `reasoning`, `input_audio`, `input_image`,
    `output_audio`, `output_image`; and the last is USD for each request. Raises `ValueError` for another
    number of rates, for a text that is no such number, and for rates that 256 bits cannot hold exactly beside
    each other.
    """

    def __new__(
        cls, base: Sequence[str | None], tiers: Sequence[tuple[int, Sequence[str | None]]]
    ) -> Tariff: ...

@final
class Pricing:
    """How a route's replies are priced: by `tariff` (None: every cost is unknown), shown in `style`
    (`openrouter`, `cocoon` or `none`). `id`: what a journal calls the tariff.
    """

    def __new__(cls, tariff: Tariff | None, style: str, id: str | None = None) -> Pricing: ...
    def price(
        self,
        *,
        input_tokens: int | None = None,
        cached_input_tokens: int | None = None,
        cache_write_tokens: int | None = None,
        cache_write_1h_tokens: int | None = None,
        output_tokens: int | None = None,
        reasoning_tokens: int | None = None,
        input_audio_tokens: int | None = None,
        output_audio_tokens: int | None = None,
        input_image_tokens: int | None = None,
        output_image_tokens: int | None = None,
    ) -> tuple[str | None, bytes | None]:
        """The cost in USD as plain decimal text, None where it is not known, and the JSON members that the
        usage object gains, None where it gains none.
        """

_Unit = Literal["minute", "hour", "day", "week", "month", ""]
_Calendar = Literal["day", "week", "month"]

@final
class Clock:
    """The present of all windows of one process.

    `bounds` says when the day, week or month around a moment began, and when it ends; moments are seconds
    since 1970, UTC. It is asked when the one before has ended. What it raises, whoever needs the time raises.
    """

    def __new__(cls, bounds: Callable[[_Calendar, float], tuple[int, float]]) -> Clock: ...
    def hear(self, at: float) -> None:
        """The clock of a server, by which several machines count, shows this: it is this one, too, from now
        on. Raises `ValueError` for what is not finite.
        """
    def hold(self, monotonic: float, wall: float) -> None:
        """Stand still at this moment, whatever is heard: for tests."""

@final
class Window:
    """One count, as of now. For the thread that owns it. Raises `ValueError` for a name that is none."""

    def __new__(cls, clock: Clock, unit: _Unit) -> Window: ...
    used: Final[int]
    reset: Final[float]
    """Seconds until nothing of what is counted by now counts."""
    slice: Final[float | None]
    """How long a slice of a window that slides is, in seconds."""
    span: Final[tuple[int, float] | None]
    """When the window of a calendar began and when it ends, in seconds since 1970, UTC."""
    def add(self, amount: int) -> int:
        """Count `amount`; gives the place where it is counted."""
    def recall(self, at: float) -> int | None:
        """The place of what was counted at the time `at` by another process; None where it counts no more."""
    def raise_to(self, place: int, amount: int) -> None:
        """At least `amount` is counted at `place`, which `recall` gave."""
    def load_slices(self, number: int, amounts: Sequence[tuple[int, int]]) -> None:
        """These slices, by their numbers, are all that counts; the one with this number is in progress."""
    def load_total(self, began: int, used: int) -> None:
        """So much is used of the day, the week or the month that began then."""

@final
class Limit:
    """One limit of one subject, bound to what counts for it. Raises `ValueError` for an unknown resource."""

    def __new__(
        cls,
        resource: Literal["requests", "tokens", "cost", "concurrent"],
        amount: int,
        window: Window,
        key: Any,
        name: str,
    ) -> Limit: ...
    resource: Final[Literal["requests", "tokens", "cost", "concurrent"]]
    amount: Final[int]
    """Of costs in 10**-12 USD."""
    window: Final[Window]
    key: Final[Any]
    """What `window` counts: `sluicegate.admission.CounterKey`."""
    name: Final[str]
    """For people: `600 requests a minute of the caller search`."""

@final
class Estimates:
    """How many tokens requests use, learnt from those that have ended: moving averages by model, and of
    output by caller and model. For the thread that decides.
    """

    def __new__(cls) -> Estimates: ...

@final
class Demand:
    """What a request will use, as far as can be told before it runs."""

    input: Final[int]
    """Tokens."""
    def of(self, limit: Limit) -> int:
        """What it takes of `limit`."""

@final
class Limits:
    """All limits that some requests are held against: those of `caller` to `model`. For the thread that
    decides.

    `by_maximum`: the client's own bound of the output counts, in place of what is likely. `refuses_unpriced`:
    no request passes whose price is not known. `model` empty: nothing is learnt of its requests.
    """

    def __new__(
        cls,
        limits: Sequence[Limit],
        clock: Clock,
        estimates: Estimates,
        *,
        caller: str,
        model: str,
        by_maximum: bool = False,
        refuses_unpriced: bool = False,
    ) -> Limits: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Limit]: ...
    refuses_unpriced: Final[bool]
    wants_price: Final[bool]
    """Whether `demand` has to know what tokens cost."""
    def demand(
        self,
        rough_input: int,
        output_bound: int | None,
        price: Pricing | Callable[[int, int], int | None] | None = None,
        requests: int = 1,
        work: Literal["reply", "count", "none"] = "reply",
        /,
    ) -> Demand | None:
        """What a request will use: of input, at four bytes a token, and at most the client's own bound of
        output. `price`: its prices, or what says what so many tokens of input and output cost, in 10**-12
        USD. `work`: what is done now. `reply`: the model replies; `count`: the tokens of the input are
        counted, which uses none; `none`: it is only taken on, and will run later.

        None: its price is not known, and no such request may pass.
        """
    def admit(
        self, demand: Demand, times: int = 1, tell: Callable[[list[_Change]], object] | None = None
    ) -> Lease | Excess:
        """Hold `demand` against all limits, or none: a refusal counts nothing. `times`: as if so many such
        requests had come at once. `tell` is called with what is settled.
        """
    def excess(self, demand: Demand, times: int = 1) -> Excess | None:
        """The limit that would refuse `demand` longest, if any; nothing is counted."""
    def take(
        self, demand: Demand, times: int = 1, tell: Callable[[list[_Change]], object] | None = None
    ) -> Lease:
        """As `admit`, where no limit refuses anything."""
    def taken(
        self, demand: Demand, held: Sequence[tuple[int, int]], tell: Callable[[list[_Change]], object]
    ) -> Lease:
        """What somebody else has counted: the place and the amount for each limit."""
    def refused(self, demand: Demand, over: Sequence[tuple[int, int]]) -> Excess:
        """Of the limits that refuse, by their positions, each with what is used of it, the one that does so
        longest. Raises `ValueError` where there is none.
        """

_Change = tuple[Limit, int, int]
"""A limit, the place where its window counts something, and how much."""

@final
class Lease:
    """What one request holds of its limits. It is settled once; later calls do nothing. For the thread that
    decides.
    """

    limits: Final[Limits]
    demand: Final[Demand]
    held: Final[list[_Change]]
    """Empty once it is settled."""
    def headers(self, form: Literal["openai", "anthropic"]) -> list[tuple[bytes, bytes]]:
        """What is left, for the client: of requests, and of tokens, of the limit with the least left."""
    def estimate_input(self, rough: int, /) -> int:
        """What is charged for an input of about so many tokens that nobody tells. The request also teaches by
        this number.
        """
    def ended(
        self,
        input: int | None,
        output: int | None,
        cost: int | None,
        *,
        failed: bool,
        estimated_input: bool = False,
    ) -> None:
        """It is over, and has used so many tokens and so much, in 10**-12 USD; None: not known.

        `failed`: it was answered with a 5xx. Where there was no output then, it counts as no request.
        `estimated_input`: nobody has told the input, so nothing is learnt from it.
        """
    def unused(self) -> None:
        """It did not run: nothing counts."""
    def release(self) -> None:
        """Nothing is known of its end: what was estimated counts."""

@final
class Excess:
    """The limit that refuses a request."""

    limit: Final[Limit]
    wait: Final[float]
    """Seconds until the request would be admitted, if nothing else came."""
    never: Final[bool]
    """It is larger than the limit itself."""
    used: Final[int]
    def headers(self, form: Literal["openai", "anthropic"]) -> list[tuple[bytes, bytes]]:
        """As those of a `Lease`."""

@final
class Rendezvous:
    """Weighted rendezvous hashing: an order of places for each key, in which each comes first as often as its
    weight says, and which changes only by the places that are gone. `names` differ; `weights` are above 0.
    """

    def __new__(cls, names: list[str], weights: list[float]) -> Rendezvous: ...
    def ranked(self, key: int, most: int) -> list[int]:
        """The positions of the first `most` places for `key`, 64 bits."""

def affinity_of_chat(body: bytes) -> int | None:
    """`Arrived.affinity` of a request to Chat Completions or Messages. Raises `ParseError`."""

def affinity_of_key(key: bytes) -> int:
    """`Arrived.affinity` of all requests with this `prompt_cache_key`."""

@final
class JournalEntry:
    """The account of one request in the journal. Dropped before an upstream has heard of the request, it is
    nothing.
    """

    id: Final[str]
    """Of its row in the ledger."""

@final
class JournalBatch:
    """What is over and on its way to the ledger."""

    rows: Final[JournalRows]
    """Without those of which no upstream has heard."""

@final
class JournalRows:
    """Records of the journal, as the tables of the ledger take them. For one thread at a time.

    No text has a NUL, which PostgreSQL does not take. A count above 10**11 is not known, and nothing that was
    charged for it, nor is a cost above 10,000 USD: nobody's request has that many tokens.
    """

    def __new__(cls, records: Sequence[Mapping[str, Any]]) -> JournalRows:
        """Of what `record` gives; what is missing is not known. Raises ValueError where one has no id."""
    def __len__(self) -> int: ...
    ids: Final[list[str]]
    unfinished: Final[list[int]]
    """The indices of those of which nobody saw the end."""
    def record(self, index: int) -> dict[str, Any]:
        """By the names that `Journal.open` gives, and those of `rust/journal/src/record.rs`. Beside those:
        `id`, `interrupted` (nobody saw its end), `usage_source` (`upstream`, `estimated` or `none`) and
        `tries`, each of several attempts: upstream, upstream_model, fault, status, began, took. Times are
        microseconds, costs 10**-12 USD. Raises IndexError.
        """
    def charge(self, index: int, price_id: str, costs: Sequence[int] | None) -> None:
        """Say by which price it is charged, and what it costs, in the order of `ledger.schema.COSTS`. Raises
        IndexError.
        """
    def without(self, ids: Sequence[str]) -> JournalRows:
        """Those with other ids."""
    def halves(self) -> tuple[JournalRows, JournalRows]: ...
    def dated(self, day: Callable[[int], object]) -> DatedRows:
        """`day`: what a row has for its day, by the seconds since 1970 of a whole minute; it is asked in the
        order of time, and not for each row. What it raises is raised.
        """
    def attempts(self) -> list[tuple[Any, ...]]:
        """The attempts of those that had several, by the columns of `ledger_attempts`."""
    def prices(self) -> dict[str, dict[str, Any]]:
        """By the ids of the prices that they were charged by, of the first such row: price_id, model,
        upstream_model, upstream, started_at.
        """

@final
class DatedRows:
    """Rows whose days are known, as lines of tables. For one thread at a time."""

    def table(
        self, *, gateway: str, version: str, flags: bool, values: int = 0
    ) -> tuple[tuple[str, ...], int, list[JournalLines]]:
        """The columns of the ledger for which some row has a value; how many of these, from the first on,
        have one value in all rows; and the rows' values in the columns' order.

        A tuple is one row, and no column counts as shared; or, with `values`, it is the shared values and
        then those that each of several rows has in the other columns, at most so many values in all. What is
        left over comes by single rows. `flags`: what is yes or no is a bool, and not 0 or 1.
        """
    def daily(self) -> list[tuple[Any, ...]]:
        """What they add to `usage_daily`, by its columns, in the order of its keys."""
    def users(self) -> list[tuple[Any, ...]]:
        """What they add to `usage_users`, by its columns, in the order of its keys."""

@final
class JournalLines:
    """Rows as tuples, each made when it is asked for. For one thread at a time."""

    together: Final[int]
    """Rows a tuple."""
    def __iter__(self) -> JournalLines: ...
    def __next__(self) -> tuple[Any, ...]: ...

@final
class AbandonedSegment:
    """What a dead process has left of its journal; locked for this process."""

    def __len__(self) -> int:
        """Rows."""
    def rows(self, first: int, most: int) -> JournalRows: ...
    def finish(self) -> None:
        """All of it is in the ledger: the segment is deleted. Raises OSError."""

@final
class Journal:
    """The journal of this process: a folder of mapped files, which outlive it. Any thread.

    `max_bytes`: of all segments in the folder, whoever's they are. `sync`: when what is stored is written to
    the disk: `never` by us, every `second` (by `sync`), or `always`, before it counts. Raises OSError.
    """

    def __new__(cls, folder: str | PathLike[str], *, max_bytes: int, sync: str) -> Journal: ...
    def open(
        self,
        arrived: Arrived,
        route: Route,
        model: str,
        requested_model: str | None,
        caller_id: str | None,
        caller: str | None,
        key_id: str | None,
        team: str | None,
        user_id: str | None,
        estimated_input: int | None,
        response_id: str | None = None,
        run: int | None = None,
        /,
    ) -> JournalEntry | None:
        """A new entry; None where there is no room. Never waits, unless `sync` is `always`. `run`: of the
        background response that `response_id` names, counted from 1. `estimated_input`: what is charged for
        an input that nobody tells. Raises OSError where it has to be on the disk, and is not.
        """
    def take(self, most: int) -> JournalBatch:
        """What is over, in the order in which it ended."""
    def shipped(self, batch: JournalBatch) -> None:
        """It is in the ledger."""
    def give_back(self, batch: JournalBatch) -> None:
        """It is not: it comes again."""
    def live(self, after: str | None, most: int) -> list[dict[str, Any]]:
        """What is open now, oldest first, as `JournalRows.record`, with what was seen by now; without that of
        which no upstream has heard. Those with an id above `after`. Raises ValueError where that is no id.
        """
    def prepare(self) -> bool:
        """Make the next segment, so that `open` need not. False where as much waits as may.

        Raises OSError.
        """
    def sync(self) -> None:
        """Write what was stored to the disk, where `sync` is `second`. With `always` that is done; where it
        fails, find out whether it works again. Raises OSError where it fails, or has failed since the last
        call.
        """
    def abandoned(self) -> AbandonedSegment | None:
        """The oldest segment that a dead process has left in the folder. Raises OSError."""
    is_failing: Final[bool]
    """The last attempt to write to the disk failed."""
    waiting: Final[int]
    """Entries that are over."""
    opened: Final[int]
    """Entries that are not."""
    bytes: Final[int]
    """Of all segments in the folder."""
    def close(self) -> None:
        """Delete the segments that hold nothing."""

@final
class Arrived:
    """A request has come, and is whole. It is answered once, by `forward` or `reply`: now, or later from any
    thread. Both return False where it is too late: the client has left, the time for the decision is over, or
    it has been answered.
    """

    ticket: Final[int]
    """The request's number in this process; `Failed`, `PriceAsked` and `Ended` name it again."""
    tag: Final[int | None]
    """What `Front.submit` was given."""
    endpoint: Final[str]
    """A name of `ENDPOINTS`, or of `Front.passthrough`."""
    upstream: Final[str | None]
    """The upstream that an operator's own path leads to, whatever model is asked for."""
    anthropic: Final[bool]
    """Its errors are written in Anthropic's form."""
    request_id: Final[str]
    key: Final[bytes | None]
    """SHA-256 of the key that was presented: the bearer token, or else what `x-api-key` holds."""
    model: Final[str | None]
    stream: Final[bool]
    size: Final[int]
    """Bytes of the body."""
    max_output_tokens: Final[int | None]
    """The client's own bound."""
    user: Final[str | None]
    """The end user that the client names; bounded."""
    input_tokens_estimate: Final[int | None]
    """About how many tokens the input has, at least 1; None unless `Front.facts` or the client asks it."""
    affinity: Final[int | None]
    """64 bits, the same for all turns of a conversation; None unless `Front.facts` asks for it, or where the
    request belongs to none.
    """
    headers: Final[dict[str, str]]
    """Those that `Front.facts` names and the request has, names in lower case, values read as ISO 8859-1."""
    request: Final[Request | ResponsesRequest | None]
    """None where it cannot be read; `error` says why."""
    error: Final[ParseError | None]
    def forward(
        self,
        route: Route,
        pricing: Pricing | None,
        last: bool,
        trial: bool,
        after: float,
        headers: _Headers,
        lease: Lease | None,
        entry: JournalEntry | None,
        estimated_input: int | None,
        /,
        request: ResponsesRequest | None = None,
        response_id: str | None = None,
        keep: int | None = None,
    ) -> bool:
        """Send it to `route`, `after` so many seconds. `last`: nothing could follow, so nothing is held back.
        `trial`: `FirstOutput` comes with its first output. `headers` are the gateway's own on the reply, in
        place of the upstream's, and so is what is left of the limits of `lease`.

        `pricing` None: `PriceAsked` comes for each usage object. `request` takes the place of the client's; a
        response that is made here has the id `response_id`. `keep`: the bytes that `Ended.kept` may have.
        `entry`: where its account is kept; it can be given to one request only. `estimated_input`: the tokens
        that are charged for its input where nobody tells them.
        """
    def affinity_of(self, request: ResponsesRequest) -> int | None:
        """`affinity`, with `request` in place of the client's: with the conversation in front."""
    def reply(self, status: int, headers: _Headers, body: bytes) -> bool:
        """Answer with this. `x-request-id` and the length are added."""

@final
class Failed:
    """An attempt failed with nothing sent to the client. It is answered once, as `Arrived` is."""

    ticket: Final[int]
    fault: Final[Fault]
    attempts: Final[int]
    """So far."""
    def attempt(
        self,
        route: Route,
        pricing: Pricing | None,
        last: bool,
        trial: bool,
        after: float,
        headers: _Headers,
        /,
    ) -> bool:
        """Try `route` next; see `Arrived.forward`."""
    def reply(self, status: int, headers: _Headers, body: bytes) -> bool:
        """Answer with this. `x-request-id` and the length are added."""

@final
class FirstOutput:
    """An attempt with `trial` has had its first output: text, reasoning, a tool call, or any bytes of a reply
    that is none of these. At most once an attempt, and before what tells of its end.
    """

    ticket: Final[int]

@final
class PriceAsked:
    """What does this usage cost? Only of attempts without a `Pricing`; it is answered once."""

    ticket: Final[int]
    usage: Final[Usage]
    def answer(self, members: bytes | None) -> bool:
        """JSON members to add to the usage object (no braces, no leading comma), or None."""

@final
class Ended:
    """An exchange is over. Exactly once for each ticket, last; also for what the front refused by itself, of
    which there was no `Arrived`.
    """

    ticket: Final[int]
    tag: Final[int | None]
    endpoint: Final[str]
    """Empty where it is none of the four."""
    request_id: Final[str]
    key: Final[bytes | None]
    """SHA-256 of the bearer token that was presented."""
    model: Final[str | None]
    """As the client wrote it; None where it was not read."""
    outcome: Final[Outcome]
    kept: Final[bytes | None]
    """The reply's body, where `keep` asked for it, and all of it fitted and reached the client."""
    not_kept: Final[Literal["too_large", "no_room"] | None]
    """Why it did not fit: it was larger than `keep`, or all that is kept took `copies_bytes`."""
    request: Final[Request | ResponsesRequest | None]
    """The client's request, where `keep` was given."""
    def settle(self, lease: Lease) -> None:
        """Settle what it holds of limits with what the ledger says that it has used."""
    def charge(self, costs: tuple[int, int, int, int, int, int] | None) -> None:
        """What it cost, where that had to be asked for: all of it, then uncached input, cached input, what
        was written to a cache, output, and reasoning, in 10**-12 USD. None: that is not known. This closes
        its entry.
        """
    def record(
        self,
        result: str,
        *,
        id: str | None = None,
        caller: str | None = None,
        key_id: str | None = None,
        model: str = "",
        requested_model: str | None = None,
        code: str | None = None,
        limit: str | None = None,
        response_id: str | None = None,
        price: tuple[str | None, bool] | None = None,
    ) -> RequestRecord:
        """The record of this request. `id`: of its entry in the journal, if it has one; `code`: in place of
        the outcome's; `limit`: the one that refused it; `price`: what it cost and whether that is known, in
        place of the outcome's. With a `response_id` no client can have left.
        """

@final
class Unrecorded:
    """Requests that were refused or left before anybody decided about them, while too many events waited."""

    requests: Final[int]

@final
class Died:
    """An engine thread has ended, or panicked outside of an exchange: the process must end with an error."""

    message: Final[str]

_Event = Arrived | Failed | FirstOutput | PriceAsked | Ended | Unrecorded | Died

@final
class Decisions:
    """The queue between the engine threads and the one that decides.

    `patience`: a decision that has not come after so many seconds is answered with 503, `undecided`.
    """

    def __new__(cls, *, patience: float = 15.0) -> Decisions: ...
    def wait(self, seconds: float) -> list[_Event]:
        """All there is, in order; waits without the GIL for the first. Empty after `seconds`, or where `wake`
        was called since the last call.
        """
    def wake(self) -> None:
        """End the `wait` under way, or else the next one. Any thread."""
    def fileno(self) -> int:
        """For an event loop in place of `wait`: readable while there is something to `take`."""
    def take(self) -> list[_Event]:
        """All there is, in order, without waiting."""

@final
class Tls:
    """TLS towards clients; files are PEM. Raises `sluicegate.errors.ConfigurationError`.

    `min_version`: `1.2` or `1.3`. `client_ca_file`: clients must show a certificate that these signed.
    """

    def __new__(
        cls,
        cert_file: str,
        key_file: str,
        *,
        key_password: str | None = None,
        min_version: str = "1.2",
        client_ca_file: str | None = None,
    ) -> Tls: ...

@final
class ListenBounds:
    """What one listening front takes from its clients. Times are seconds."""

    def __new__(
        cls,
        *,
        head_bytes: int,
        url_bytes: int,
        headers: int,
        head_seconds: float,
        body_pause_seconds: float,
        body_bytes_per_second: int,
        idle_seconds: float,
        connections: int,
        http2_streams: int,
        http2_resets: int,
        stall_seconds: float | None,
    ) -> ListenBounds: ...

@final
class Exchange:
    """One request of `Front.submit` on its way."""

    ticket: Final[int]
    def take(self) -> tuple[tuple[int, list[tuple[bytes, bytes]]] | None, bytes, bool, bool]:
        """What there is for the client: status and headers (once), bytes of the body, whether that is all,
        whether the reply stays incomplete, so that the connection must be cut.
        """
    def leave(self) -> None:
        """The client is gone. Idempotent; nothing happens once the exchange has ended."""

@final
class Front:
    """The engine threads: they accept, forward and deliver. They start here, so make it where they shall run.

    `client_buffer_bytes`: all that waits for one slow client. `drain_…` bound the replies that are read on
    after their client has left: seconds and bytes of each, and how many at once. `max_requests` in flight;
    more are answered with 503. `all_bodies_bytes`: of the bodies of all requests together, small ones not
    counted; likewise. `hold_upload_bytes`: of an upload, before it is sent on. `copies_bytes`: of all
    replies under way, and their requests, that `Arrived.forward` is asked to `keep`.
    """

    def __new__(
        cls,
        decisions: Decisions,
        *,
        threads: int = 1,
        max_body_bytes: int,
        all_bodies_bytes: int,
        hold_upload_bytes: int,
        max_event_bytes: int,
        max_reply_bytes: int,
        client_buffer_bytes: int,
        keepalive_seconds: float | None,
        client_stall_seconds: float | None,
        drain_seconds: float,
        drain_bytes: int,
        drain_replies: int,
        max_requests: int,
        copies_bytes: int,
    ) -> Front: ...
    def callers(
        self,
        digests: bytes | None,
        missing: tuple[_Whole, _Whole],
        unknown: tuple[_Whole, _Whole],
    ) -> None:
        """SHA-256 of the keys that may call, one after the other; None: anyone. A request without a key is
        answered with `missing` at its head, one with another key with `unknown`: in the form of OpenAI's API,
        and in that of Anthropic's without `request_id`, which is added. In one step; any thread, any time.
        """
    def facts(
        self, *, headers: list[str], affinity: bool, affinity_header: str | None, input_tokens: bool
    ) -> None:
        """What `Arrived` shows from now on: these headers, none of more than 1 KiB; the conversation, by the
        value of `affinity_header`, by `prompt_cache_key`, or by its beginning; and about how many tokens the
        input has. Any thread, any time.

        Raises `ValueError` for what is no header's name.
        """
    def listen(
        self,
        host: str,
        port: int,
        application: str,
        *,
        http2: bool,
        tls: Tls | None,
        bounds: ListenBounds,
    ) -> None:
        """Accept at `host`, an IP address, and `port`: each thread on a socket of its own (SO_REUSEPORT).
        What is not answered here goes to the Unix socket at the path `application`. Raises `OSError`.
        """
    def passthrough(self, paths: Sequence[tuple[str, str, Sequence[str], str | None, str | None]]) -> None:
        """The operator's own paths from now on: of each its name, path, methods, where the model is named
        (json, form or path), and the upstream where no model is. A path may end in `/*`, and has a `{model}`
        where the model is named there. Raises `ValueError`.
        """
    def passthrough_methods(self, path: str) -> list[tuple[str, str]]:
        """The methods that those have at `path`, as it stands in a URL, each with the endpoint's name."""
    def submit(
        self,
        method: str,
        path: str,
        headers: _Headers,
        body: bytes,
        request_id: str,
        *,
        query: str | None = None,
        tag: int | None = None,
    ) -> Exchange:
        """The same exchange without a socket, of the endpoint at `path`. With a `tag` no key is checked.
        `query`: of the URL. Raises `ValueError` where nothing at `path` takes the method.

        Raises `sluicegate.errors.RelayClosed` after `close`.
        """
    def fileno(self) -> int:
        """Readable while `ready` has something."""
    def ready(self) -> list[int]:
        """The tickets of `submit` that have got something to `take` since they were last named here."""
    def drain(self) -> None:
        """Accept no more; connections end after the reply under way. Idempotent."""
    def close(self) -> None:
        """End every exchange, each with its `Ended`, and then the threads. Idempotent; blocks for up to about
        two seconds, without the GIL.
        """
    active: Final[int]
    """Exchanges under way."""
    connections: Final[int]
    """Clients' connections."""

@final
class SSESplitter:
    """Splits an event stream into raw events, whatever its line endings and however it is cut into reads.

    The concatenation of what `feed` returns, and of `finish`, is the stream, but for a byte-order mark and
    a terminator that the stream left out. An event whose last byte so far is a CR comes with the next read,
    since that may begin with the LF of a CRLF.

    >>> splitter = SSESplitter()
    >>> splitter.feed(b"data: a\\n\\ndata:")
    [b'data: a\\n\\n']
    >>> splitter.feed(b" b\\n\\n: ping\\n\\n")
    [b'data: b\\n\\n', b': ping\\n\\n']
    >>> splitter.finish()
    b''
    """

    def __new__(cls, *, max_event_bytes: int | None = None) -> SSESplitter: ...
    def feed(self, data: bytes) -> list[bytes]:
        """The events that `data` completes.

        Raises `EventTooLarge`, with the offset of the first byte too many, once the events before it have
        been returned; each further call raises it again.
        """
    def finish(self) -> bytes:
        """The event that the stream ended in, with its terminator; empty where it ended between events.

        Raises what `feed` would have raised next.
        """

@final
class ServerSentEvent:
    """One event, as a browser would dispatch it (WHATWG HTML, section 9.2)."""

    event: Final[str]
    """`message` where the stream names none."""
    data: Final[str]
    """Bytes that are not UTF-8 are replaced by U+FFFD."""
    id: Final[str]
    """The last id that the stream set."""

@final
class SSEDecoder:
    """Decodes an event stream. Comments, and events without data, are left out.

    >>> decoder = SSEDecoder()
    >>> [event.data for event in decoder.feed(b"data: a\\ndata: b\\n\\n: ping\\n\\ndata: [DONE]")]
    ['a\\nb']
    >>> decoder.finish().data
    '[DONE]'
    """

    def __new__(cls, *, max_event_bytes: int | None = None) -> SSEDecoder: ...
    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """The events that `data` completes, each as soon as its last byte is there.

        Raises `EventTooLarge`, with the offset of the first byte too many, once the events before it have
        been returned; each further call raises it again.
        """
    def finish(self) -> ServerSentEvent | None:
        """The event that the stream ended in, without its blank line.

        Raises what `feed` would have raised next.
        """

@final
class UsageMeter:
    """Counts the tokens of a reply, streamed or not, of any protocol, by feeding it the bytes.

    `dialect` names how the upstream counts (`xai`, `anthropic`, …) where the numbers alone do not tell.

    >>> meter = UsageMeter()
    >>> meter.feed(b'data: {"choices":[],"usage":{"prompt_tokens":14,"completion_tokens":7}}\\n\\n')
    >>> meter.finish()
    >>> meter.usage.input_tokens, meter.usage.output_tokens
    (14, 7)
    """

    def __new__(cls, dialect: str | None = None, *, max_event_bytes: int | None = None) -> UsageMeter: ...
    def feed(self, data: bytes) -> None:
        """Raises `EventTooLarge` or `DocumentTooLarge`; each further call raises it again, and `usage` stays
        what it was.
        """
    def finish(self) -> None:
        """The reply has ended: a last event without its blank line counts."""
    usage: Final[Usage | None]
    """None where nothing was reported."""

@final
class ChatToResponses:
    """A chat completion, streamed or not, as the reply to `request`, the body of one to `/v1/responses`.

    Whether the reply is a stream of events or one response is what `request` asks for. `response_id` is made
    up, and `created_at` (seconds since 1970) is now, unless they are given. A reply that breaks off becomes
    a response that failed.

    >>> translation = ChatToResponses(b'{"model":"m","input":"Hi","stream":true}')
    >>> events = translation.feed(b'data: {"choices":[{"index":0,"delta":{"content":"Hello"}}]}\\n\\n')
    >>> events += translation.feed(b"data: [DONE]\\n\\n") + translation.finish()
    >>> [line for line in events.decode().splitlines() if line.startswith("event: response.output_text")]
    ['event: response.output_text.delta', 'event: response.output_text.done']
    """

    def __new__(
        cls, request: bytes, *, response_id: str | None = None, created_at: int | None = None
    ) -> ChatToResponses:
        """Raises `InvalidRequest` or `InvalidJSON`."""
    def feed(self, data: bytes) -> bytes:
        """Raises `EventTooLarge`, `DocumentTooLarge` or `ParseError`; each further call raises it again."""
    def finish(self) -> bytes:
        """The completion has ended: what the client is still to get."""

@final
class ResponsesToChat:
    """A reply of the Responses interface, streamed or not, as a chat completion.

    `stream`: a stream of chunks is made, whatever comes; otherwise one completion, when the reply has ended.
    `include_usage`: the stream ends in a chunk with the usage.

    What chat has no form for is left out: items of hosted tools, citations other than links. Text that stands
    in several events comes once, whatever the events call their items. A reply that breaks off or fails
    becomes an error.

    >>> translation = ResponsesToChat()
    >>> chunks = translation.feed(
    ...     b'data: {"type":"response.created","response":{"id":"r","status":"in_progress"}}\\n\\n'
    ...     b'data: {"type":"response.output_text.delta","item_id":"m","delta":"Hel"}\\n\\n'
    ...     b'data: {"type":"response.output_text.done","item_id":"m","text":"Hello"}\\n\\n'
    ...     b'data: {"type":"response.completed","response":{"id":"r","status":"completed"}}\\n\\n'
    ... )
    >>> chunks += translation.finish()
    >>> import json
    >>> completion = json.loads(fold_chat(chunks))
    >>> completion["id"], completion["choices"][0]["message"]["content"]
    ('r', 'Hello')
    """

    def __new__(cls, *, stream: bool = True, include_usage: bool = False) -> ResponsesToChat: ...
    def feed(self, data: bytes) -> bytes:
        """Raises `EventTooLarge`, `DocumentTooLarge` or `ParseError`; each further call raises it again."""
    def finish(self) -> bytes:
        """The reply has ended: what the client is still to get."""

@final
class HarmonyDecoder:
    """The text of a gpt-oss model, tokens of OpenAI's Harmony format included, as a streamed chat completion.

    `feed` takes UTF-8, cut anywhere, and gives chunks: `analysis` becomes `reasoning_content`, `final` and
    `commentary` become `content`, and what has a recipient becomes a tool call. A text without tokens is
    content. The id is made up, and `created` (seconds since 1970) is now, unless they are given.

    >>> decoder = HarmonyDecoder(model="gpt-oss-20b")
    >>> chunks = decoder.feed(b"<|channel|>analysis<|message|>Greet.<|end|><|start|>assistant<|chan")
    >>> chunks += decoder.feed(b"nel|>final<|message|>Hello!<|return|>") + decoder.finish()
    >>> import json
    >>> message = json.loads(fold_chat(chunks))["choices"][0]["message"]
    >>> message["reasoning_content"], message["content"]
    ('Greet.', 'Hello!')
    """

    def __new__(
        cls, *, id: str | None = None, model: str = "", created: int | None = None
    ) -> HarmonyDecoder: ...
    def feed(self, data: bytes) -> bytes:
        """The chunks that `data` completes; what may be the beginning of a token waits for the next call."""
    def finish(self) -> bytes:
        """The text has ended: the rest of it, the chunk with the finish reason, and `[DONE]`."""

@final
class Pipeline:
    """A reply's whole way through the core, as the gateway takes it: bytes in, the client's bytes out.

    `api` is `chat`, `completions`, `embeddings`, `responses`, `messages` or `other`. `price` is called with
    each usage object and returns members to add to it (no braces, no leading comma), or None; or it is the
    members themselves, the same for any usage (`ValueError` where they are none). It must not use the
    pipeline.

    >>> pipeline = Pipeline(price=lambda usage: b'"cost":%d' % usage.total_tokens)
    >>> pipeline.feed(b'data: {"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":1}}\\n\\n')
    b'data: {"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":1,"cost":3}}\\n\\n'
    """

    def __new__(
        cls,
        api: str = "chat",
        *,
        streams: bool = True,
        hide_usage_chunk: bool = False,
        include_usage: bool = True,
        dialect: str | None = None,
        price: Callable[[Usage], bytes | None] | bytes | None = None,
    ) -> Pipeline: ...
    def feed(self, data: bytes) -> bytes:
        """What the client gets now; `data` itself where nothing changes.

        Raises a `ParseError` once what came before it has been returned; each further call raises it again.
        What `price` raises is raised here: that usage object and the read's others then stay as they were,
        and the next call returns what this one would have.
        """
    def finish(self) -> bytes: ...
    usage: Final[Usage | None]
    truncated: Final[bool]
    """Whether the reply ended without its protocol's end; known after `finish`."""

def fold_chat(stream: bytes) -> bytes:
    """The chunks of a streamed chat completion, an event stream, folded into one `chat.completion`, JSON.

    Text, reasoning, refusals, tool calls, log probabilities of all choices, unknown fields. Raises
    `ParseError`.

    >>> fold_chat(
    ...     b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"}}]}\\n\\n'
    ...     b'data: {"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}\\n\\n'
    ...     b"data: [DONE]\\n\\n"
    ... )
    b'{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}]}'
    """

def unfold_chat(completion: bytes, *, include_usage: bool) -> bytes:
    """A `chat.completion` as an event stream that ends with `[DONE]`; `fold_chat` is its inverse. Raises
    `ParseError`.

    >>> message = {"role": "assistant", "content": "Hello"}
    >>> completion = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    >>> import json
    >>> stream = unfold_chat(json.dumps(completion).encode(), include_usage=False)
    >>> stream.endswith(b"data: [DONE]\\n\\n")
    True
    >>> json.loads(fold_chat(stream))["choices"] == completion["choices"]
    True
    """
