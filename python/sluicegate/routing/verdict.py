"""What an ended attempt says of its deployment, and whether the request may be tried again.

One row for each way to end. A client can cause some of them (a wrong request, a model's name, its own
account, its own deadline): those tell nothing bad of the deployment, or anybody could have it ejected for
everybody.
"""

import enum
import json
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from sluicegate.routing.stated import seconds_stated


class Effect(enum.Enum):
    """What it does to the deployment's health."""

    SUCCESS = "success"
    """The server works: also where it refuses what the client asks."""
    FAILURE = "failure"
    UNREACHABLE = "unreachable"
    """A failure of the whole upstream, whatever the model."""
    BUSY = "busy"
    """It wants to be left alone: for `Verdict.wait` where it says so, else for a second, doubling. No failure
    in a row, but one of the share.
    """
    REFUSED = "refused"
    """It will not serve us before somebody changes something: our key, our account, the model's name."""
    NOTHING = "nothing"
    """Nothing was learned of it."""


class Verdict(NamedTuple):
    """How an attempt ended, for whoever decides what follows."""

    effect: Effect
    elsewhere: bool
    """Another deployment may be tried, where nothing has reached the client."""
    again: bool
    """So may the same one, after a pause."""
    reason: str
    """For logs and metrics: the kind of fault, or the status; one of a bounded number."""
    wait: float | None = None
    """Seconds that the upstream asks for."""


class Failure(Protocol):
    """What of a `_core.Fault` counts."""

    @property
    def kind(self) -> str: ...
    @property
    def status(self) -> int | None: ...
    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]: ...
    @property
    def body(self) -> bytes: ...


class Ending(Protocol):
    """What of a `_core.Outcome` counts."""

    @property
    def fault(self) -> Failure | None: ...
    @property
    def client_left(self) -> bool: ...
    @property
    def finish_reason(self) -> str | None: ...


_KINDS = {
    "connect": Verdict(Effect.UNREACHABLE, elsewhere=True, again=True, reason="connect"),
    "connect_timeout": Verdict(Effect.UNREACHABLE, elsewhere=True, again=True, reason="connect_timeout"),
    "reset": Verdict(Effect.UNREACHABLE, elsewhere=True, again=True, reason="reset"),
    # Its model is the upstream's business, and its own time the client's; `too_large` is by our own bound,
    # and another's reply would be, too. Nothing was sent of what could not be translated.
    "total_timeout": Verdict(Effect.NOTHING, elsewhere=False, again=False, reason="total_timeout"),
    "client_timeout": Verdict(Effect.NOTHING, elsewhere=False, again=False, reason="client_timeout"),
    "too_large": Verdict(Effect.NOTHING, elsewhere=False, again=False, reason="too_large"),
    "untranslatable": Verdict(Effect.NOTHING, elsewhere=True, again=False, reason="untranslatable"),
    "shutdown": Verdict(Effect.NOTHING, elsewhere=False, again=False, reason="shutdown"),
    "internal": Verdict(Effect.NOTHING, elsewhere=False, again=False, reason="internal"),
} | {
    kind: Verdict(Effect.FAILURE, elsewhere=True, again=False, reason=kind)
    for kind in (
        "protocol",
        "first_byte_timeout",
        "first_token_timeout",
        "between_tokens_timeout",
        "empty",
        "truncated",
        "in_band_error",
        "decode",
    )
}

TIMEOUTS = frozenset(
    {"connect_timeout", "first_byte_timeout", "first_token_timeout", "between_tokens_timeout", "504"}
)
"""The reasons of failures that a client has waited for."""

SERVED = Verdict(Effect.SUCCESS, elsewhere=False, again=False, reason="")
LEFT = Verdict(Effect.NOTHING, elsewhere=False, again=False, reason="client_left")
ABORTED = Verdict(Effect.FAILURE, elsewhere=False, again=False, reason="abort")

# About the state of one server, and no failure: 409 and 425, and 408 from one that did not get the request in
# time. 404 and 501 are what a server answers that lacks the endpoint.
_MAY_DIFFER = frozenset({404, 408, 409, 425, 501})
# The statuses that name a reason each; of others only the class is told.
_NAMED = frozenset({401, 402, 403, 404, 408, 429, 500, 502, 503, 504, 529})
# Many answer 403 to what a client has sent (OpenRouter's moderation and guardrails), and no client may have a
# deployment left alone for minutes: where each request is refused so, it is ejected.
_OF_ACCOUNT = {401: Effect.REFUSED, 402: Effect.REFUSED, 403: Effect.FAILURE}
_MAY_STATE_A_WAIT = frozenset({429, 503, 529})

# An error inside a reply says which status it would have had.
_WITH_STATUS = frozenset({"status", "in_band_error"})

# A body that says more than that is no short word about a model or an account.
_LONGEST_REFUSAL = 16 * 1024


def verdict_of(fault: Failure, wall: float, *, own_account: bool = True, own_model: bool = True) -> Verdict:
    """The verdict on an attempt that failed before anything reached the client.

    `wall`: the time of day, for an upstream that states one. `own_account`: the gateway's own credentials
    were sent; with a client's own, what its account may do says nothing of the deployment. `own_model`: the
    upstream's name of the model is the configuration's, and not made of the client's.
    """
    status = fault.status
    if status is None or fault.kind not in _WITH_STATUS:
        return _KINDS.get(fault.kind, _KINDS["internal"])
    if fault.kind == "in_band_error" and status >= 500:
        return _KINDS["in_band_error"]
    reason = str(status) if status in _NAMED else f"{status // 100}xx"
    if status in _OF_ACCOUNT:
        effect = _OF_ACCOUNT[status] if own_account else Effect.NOTHING
        return Verdict(effect, elsewhere=True, again=False, reason=reason)
    if status in _MAY_STATE_A_WAIT:
        wait = seconds_stated(fault.headers, wall)
        if status == 429 and wait is None and _is_too_large(fault.body):
            return Verdict(Effect.NOTHING, elsewhere=True, again=False, reason=reason)
        if status == 429 or wait is not None:
            mine = own_account or status != 429
            return Verdict(Effect.BUSY if mine else Effect.NOTHING, True, True, reason, wait)
    if status == 404 and lacks_model(fault.body):
        effect = Effect.REFUSED if own_model else Effect.SUCCESS
        return Verdict(effect, elsewhere=True, again=False, reason="model_not_found")
    if status in _MAY_DIFFER:
        return Verdict(Effect.SUCCESS, elsewhere=True, again=False, reason=reason)
    if status >= 500:
        return Verdict(Effect.FAILURE, elsewhere=True, again=status == 503, reason=reason)
    return Verdict(Effect.SUCCESS, elsewhere=False, again=False, reason=reason)


def verdict_at_end(
    outcome: Ending, wall: float, *, own_account: bool = True, own_model: bool = True
) -> Verdict:
    """The verdict on an attempt that its request ended with. Nothing is tried after it."""
    if outcome.client_left:
        return LEFT
    fault = outcome.fault
    if fault is not None:
        return verdict_of(fault, wall, own_account=own_account, own_model=own_model)._replace(
            elsewhere=False, again=False
        )
    # vLLM ends a request that its engine gave up with this, under status 200 (vllm#57082).
    return ABORTED if outcome.finish_reason == "abort" else SERVED


def may_succeed_elsewhere(fault: Failure) -> bool:
    """Whether another deployment is worth a try."""
    return verdict_of(fault, 0.0).elsewhere


def lacks_model(body: bytes) -> bool:
    """Whether the body of a 404 says that there is no such model.

    Other things can be missing that a client names: an endpoint, a file, a conversation. OpenAI says so in
    `code`, vLLM and SGLang in `param`, Ollama and Anthropic in a `message` that begins with the word.
    """
    error = _error_in(body)
    if isinstance(error, str):
        return _begins_with_model(error)
    if error is None:
        return False
    if error.get("code") == "model_not_found" or error.get("param") == "model":
        return True
    message = error.get("message")
    return isinstance(message, str) and _begins_with_model(message)


def _is_too_large(body: bytes) -> bool:
    """Whether the body of a 429 says that the request alone is more than what the account has in a minute.

    Then it says nothing of the deployment: others are served. OpenAI and Azure: "Request too large for gpt-4o
    in organization … on tokens per min (TPM): Limit 30000, Requested 36000."
    """
    error = _error_in(body)
    message = error.get("message") if isinstance(error, dict) else error
    return isinstance(message, str) and message.lower().startswith("request too large")


def _error_in(body: bytes) -> dict[str, Any] | str | None:
    if not 0 < len(body) <= _LONGEST_REFUSAL:
        return None
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    error = document.get("error", document) if isinstance(document, dict) else None
    return error if isinstance(error, dict | str) else None


def _begins_with_model(message: str) -> bool:
    return message[:10].lower().removeprefix("the ").startswith("model")
