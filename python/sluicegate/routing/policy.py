"""Which routes of a model a request takes, and in which order."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from sluicegate._core import Outcome, Route
from sluicegate.routing.model import Model


class Facts(Protocol):
    """What is known of a request before it goes anywhere. Its body is not read for this."""

    @property
    def endpoint(self) -> str:
        """`chat_completions`, `completions`, `embeddings`, `responses`, `messages` or `count_tokens`."""
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
    def user(self) -> str | None:
        """The end user that the client names."""
        ...

    @property
    def affinity(self) -> int | None:
        """64 bits, the same for all turns of a conversation and on all machines; None unless the
        configuration's `routing.affinity` asks for it, or where the request belongs to no conversation.
        """
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The client's headers that `routing.headers` names, names in lower case."""
        ...


class Policy(Protocol):
    """One way to choose. Called on the thread that decides, one request at a time: it must not block."""

    def order(self, model: Model, facts: Facts) -> Sequence[Route]:
        """The routes to try, first to last; at least one. Asked once a request."""
        ...

    def ended(self, model: Model, outcome: Outcome) -> None:
        """How a request that was given an order has ended. Once a request."""
        ...
