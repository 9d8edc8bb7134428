"""One request, from its arrival to its record, as the thread that decides knows it."""

from collections.abc import Mapping, Sequence
from typing import Literal

from sluicegate._core import Arrived, Lease, ResponsesRequest, Route, Usage
from sluicegate.admission import Caller
from sluicegate.gateway.errors import Form
from sluicegate.gateway.state import Serving
from sluicegate.pricing import Cost
from sluicegate.routing import Model, Plan


class Run:
    """One run of a background response, which is a request of the gateway's own."""

    __slots__ = ("caller", "number", "request", "response_id", "serving", "stopped")

    def __init__(self, serving: Serving, caller: Caller, response_id: str, number: int) -> None:
        self.serving = serving
        self.caller = caller
        self.response_id = response_id
        self.number = number
        """Of the response's runs, counted from 1."""
        self.request: ResponsesRequest | None = None
        """In place of what is submitted: with the conversation in front."""
        self.stopped: Literal["cancelled", "interrupted", "failed"] | None = None
        """Why the store did not wait for its end. Set before the exchange is left."""


class TakenOn:
    """The facts of a background response when it is taken on: it runs later, as a request of its own."""

    endpoint = "responses"
    stream = True
    size = 0
    max_output_tokens = input_tokens_estimate = user = affinity = None

    def __init__(self, headers: Mapping[bytes, bytes]) -> None:
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}


class Continued:
    """The facts of a request that another one, with the conversation in front, has taken the place of."""

    __slots__ = ("_arrived", "affinity", "input_tokens_estimate", "size")

    def __init__(self, arrived: Arrived, request: ResponsesRequest) -> None:
        # Not the request: it may have megabytes, and its facts are known until its reply has ended.
        self._arrived = arrived
        self.size = request.size
        self.affinity = arrived.affinity_of(request)
        self.input_tokens_estimate = arrived.input_tokens_estimate and request.input_tokens_estimate

    endpoint = property(lambda self: self._arrived.endpoint)
    stream = property(lambda self: self._arrived.stream)
    max_output_tokens = property(lambda self: self._arrived.max_output_tokens)
    user = property(lambda self: self._arrived.user)
    headers = property(lambda self: self._arrived.headers)


class Call:
    """Everything that is known of a request by now."""

    __slots__ = (
        "anthropic",
        "arrived",
        "body",
        "caller",
        "code",
        "cost",
        "counts",
        "lease",
        "limit",
        "model",
        "owner",
        "plan",
        "priced_usage",
        "route",
        "row",
        "run",
        "serving",
        "streams",
        "tried",
    )  # fmt: skip

    def __init__(self, arrived: Arrived, serving: Serving, run: Run | None) -> None:
        self.arrived: Arrived | None = arrived
        """Until it is answered: it holds the body."""
        self.lease: Lease | None = None
        """What it holds of the caller's limits."""
        self.anthropic: str | None = None
        """The request's id, where the client is one of the Messages API: its errors say it."""
        self.counts = False
        """It asks how many tokens its input has, and for no reply of the model."""
        self.serving = serving
        """As the configuration was when the request came: another one may hold before it ends."""
        self.run = run
        self.caller: Caller | None = None
        self.owner = ""
        """To whom the stored responses belong that it makes or continues."""
        self.model: Model | None = None
        self.plan: Plan | None = None
        self.route: Route | None = None
        """The one that serves, or was tried last."""
        self.row: str | None = None
        """The id of its row in the ledger."""
        self.tried: Sequence[tuple[bytes, bytes]] = ()
        """What a reply says of that."""
        self.streams = False
        """It counts as a stream under way."""
        self.code: str | None = None
        """Of the error that the client was answered with."""
        self.limit: str | None = None
        """The one that refused it."""
        self.body: bytes | None = None
        """What shall be kept as the request, in place of what came."""
        self.priced_usage: Usage | None = None
        self.cost: Cost | None = None
        """Of `priced_usage`."""

    @property
    def form(self) -> Form:
        """How its errors, and what is left of its limits, are written."""
        return "openai" if self.anthropic is None else "anthropic"

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """What is left of the caller's limits, for whatever the request is answered with."""
        return () if self.lease is None else self.lease.headers(self.form)
