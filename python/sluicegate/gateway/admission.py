"""Who may have what: the caller of a request, the model that it asks for, and how much. Refusals are data."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from sluicegate._core import Excess, Lease, Limit
from sluicegate.admission import LONGEST_USER, Answer, Caller, Keyring, Later, Limiter, Spending
from sluicegate.gateway.prices import Prices
from sluicegate.routing import Facts, Model, ModelTable

Work = Literal["reply", "count", "none"]
"""What is done with a request now, as `Limits.demand` has it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why not. `gateway.errors.refused` words it."""

    reason: Literal[
        "missing_key", "unknown_key", "keys_unavailable", "expired_key", "caller_disabled",
        "endpoint_not_allowed", "missing_model", "unknown_model", "model_not_allowed", "unpriced", "limit",
        "limits_unavailable",
    ]  # fmt: skip
    name: str = ""
    """The model, or the endpoint, that was asked for, where that is the reason."""
    excess: Excess | None = None
    """The limit, where that is the reason."""


MISSING_KEY = Refusal("missing_key")
UNKNOWN_KEY = Refusal("unknown_key")
KEYS_UNAVAILABLE = Refusal("keys_unavailable")
MISSING_MODEL = Refusal("missing_model")
LIMITS_UNAVAILABLE = Refusal("limits_unavailable")


def told(answer: Answer) -> Lease | Refusal:
    """What counters answer, as the gateway has it."""
    if isinstance(answer, Lease):
        return answer
    return LIMITS_UNAVAILABLE if answer == "unavailable" else Refusal("limit", excess=answer)


class Admission:
    """What one configuration says of who may call. Any thread, but for `admit`."""

    __slots__ = ("_keys", "_limiter", "_models", "_prices", "_wall")

    def __init__(
        self,
        keys: Keyring,
        models: ModelTable,
        limiter: Limiter,
        prices: Prices,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._keys = keys
        self._models = models
        self._limiter = limiter
        self._prices = prices
        self._wall = wall

    @property
    def user_header(self) -> str | None:
        """The header that tells the people behind a caller apart, in lower case; None: none does."""
        return self._limiter.user_header

    @property
    def unknown_key(self) -> Refusal:
        """What a key is refused with that nobody knows: it may be good where not all keys could be read."""
        return UNKNOWN_KEY if self._keys.is_whole else KEYS_UNAVAILABLE

    def user(self, facts: Facts) -> str | None:
        """Who of the people behind a caller asks, by the header that tells them apart."""
        header = self._limiter.user_header
        user = None if header is None else facts.headers.get(header)
        return user and user[:LONGEST_USER]

    def identify(
        self, key_digest: bytes | None, presented: bool, endpoint: str | None = None
    ) -> Caller | Refusal:
        """The caller whose key has the SHA-256 `key_digest`, and who may call `endpoint`. `presented`: there
        was one, of whatever form.
        """
        caller = self._keys.caller(key_digest)
        if caller is None:
            return self.unknown_key if presented else MISSING_KEY
        if caller.expires is not None and self._wall() >= caller.expires:
            return Refusal("expired_key")
        if caller.disabled:
            return Refusal("caller_disabled")
        if endpoint is not None and caller.endpoints and not caller.may_call(endpoint):
            return Refusal("endpoint_not_allowed", endpoint)
        return caller

    def model(self, caller: Caller, name: str | None) -> Model | Refusal:
        """The model that `caller` asks for by `name`."""
        if not name:
            return MISSING_MODEL
        model = self._models.find(name)
        if model is None:
            return Refusal("unknown_model", name)
        if caller.models and not caller.may_use(model.name):
            return Refusal("model_not_allowed", name)
        return model

    def upstream(self, caller: Caller, name: str, endpoint: str) -> Model | Refusal | None:
        """What stands for the upstream `name`, to which `endpoint` leads whatever model is asked for; None
        where the configuration has none.

        Whoever may use certain models only could use any there: their rights must name the endpoint.
        """
        if caller.models and not caller.endpoints:
            return Refusal("endpoint_not_allowed", endpoint)
        return self._models.upstream(name)

    def admit(
        self, caller: Caller, model: Model, facts: Facts, *, requests: int = 1, work: Work = "reply"
    ) -> Lease | Refusal | Later | None:
        """Hold a request against the limits of its caller; None where there are none. For the thread that
        decides. What comes later, where other machines have to be asked, is for `told`.

        `requests`: 0 for what was counted when it was taken on. `work`: what is done now, as `Limits.demand`
        has it.
        """
        limiter = self._limiter
        tells_users = limiter.user_header is not None
        if not (caller.limits or tells_users):
            return None
        limits = limiter.limits(caller, model.label, self.user(facts) if tells_users else None)
        price = self._prices.likely(model) if limits.wants_price else None
        rough = facts.input_tokens_estimate or 0
        demand = limits.demand(rough, facts.max_output_tokens, price, requests, work)
        if demand is None:
            return Refusal("unpriced", model.name)
        if not limits:
            return None
        answer = limiter.counters.admit(limits, demand)
        return answer if isinstance(answer, (Lease, Later)) else told(answer)

    def owner(self, owner: str, key_id: str | None = None) -> Caller:
        """The caller whose stored responses are `owner`'s, with the key that it came with where that is still
        there; without a name where no key is that any more.
        """
        return self._keys.owner(owner, key_id)

    @property
    def missing(self) -> set[str]:
        """Limits and teams of callers of the database that the configuration does not have."""
        return self._keys.missing

    @property
    def owners(self) -> Mapping[str, str]:
        """The owner of stored responses that the name of each key of the configuration stands for now."""
        return self._keys.owners

    @property
    def keys(self) -> Keyring:
        """Any thread."""
        return self._keys

    @property
    def digests(self) -> bytes | None:
        """SHA-256 of the keys that may call, one after the other, for the front to refuse others by; None:
        anyone may.
        """
        return self._keys.digests

    def limits(self, callers: Iterable[Caller], user: str | None) -> list[Limit]:
        """The limits of these callers, or else those of one of the people behind them. For the thread that
        decides.
        """
        if user is None:
            return self._limiter.limits_of(callers)
        owners = {caller.owner for caller in callers}
        return [limit for owner in owners for limit in self._limiter.limits_of_user(owner, user)]

    def recall(self, spent: Iterable[Spending]) -> None:
        """Count what other processes have used. For the thread that decides."""
        self._limiter.recall(self._keys.callers, spent)

    @property
    def limiter(self) -> Limiter:
        return self._limiter
