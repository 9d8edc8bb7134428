"""Which deployment a request takes, of those that may be used now."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from sluicegate.routing.deployment import Deployment


class Facts(Protocol):
    """What is known of a request before it goes anywhere. Its body is not read for this."""

    @property
    def endpoint(self) -> str:
        """As logs and metrics name it: `chat_completions`, `responses`, `speech`, …"""
        ...

    @property
    def stream(self) -> bool: ...

    @property
    def size(self) -> int:
        """Bytes of the body."""
        ...

    @property
    def max_output_tokens(self) -> int | None:
        """The client's own bound."""
        ...

    @property
    def input_tokens_estimate(self) -> int | None:
        """About how many tokens the input has; None where nothing depends on it."""
        ...

    @property
    def user(self) -> str | None:
        """The end user that the client names."""
        ...

    @property
    def affinity(self) -> int | None:
        """64 bits, the same for all turns of a conversation and on all machines; None unless the
        configuration has a policy that uses it, or says `routing.affinity`, or where the request belongs to
        no conversation."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The client's headers that `routing.headers` names, names in lower case."""
        ...


class KeptFacts:
    """What is known of a request, without the request itself: a stream that is held must not hold a body."""

    __slots__ = (
        "affinity", "endpoint", "headers", "input_tokens_estimate", "max_output_tokens", "size", "stream",
        "user",
    )  # fmt: skip

    def __init__(self, facts: Facts) -> None:
        self.endpoint = facts.endpoint
        self.stream = facts.stream
        self.size = facts.size
        self.max_output_tokens = facts.max_output_tokens
        self.input_tokens_estimate = facts.input_tokens_estimate
        self.user = facts.user
        self.affinity = facts.affinity
        self.headers = facts.headers


class Policy(Protocol):
    """One way to choose. Named in the configuration, or `package.module:Class` with its options.

    Called on the thread that decides, one request at a time: microseconds, no I/O. Tiers, health, retries and
    `max_streams` are not its business: it is only shown what may be used.
    """

    def rank(self, facts: Facts, candidates: Sequence[Deployment]) -> Sequence[Deployment]:
        """`candidates`, the best first. They are at least two, in the order of the configuration.

        It is asked anew for each attempt, so only the first counts, and the rest may be left out. The same
        sequence comes again, the very object, for as long as the same deployments may be used.

        A policy may have a second method of the same form, `rank_again`: it is asked in place of this one
        where an attempt of the request has failed, and `candidates` are those that are left.
        """
        ...


def ranking_again(policy: Policy) -> Callable[[Facts, Sequence[Deployment]], Sequence[Deployment]]:
    """What `policy` is asked where an attempt has failed."""
    again: Callable[[Facts, Sequence[Deployment]], Sequence[Deployment]]
    again = getattr(policy, "rank_again", policy.rank)
    return again
