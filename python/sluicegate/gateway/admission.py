"""Who may have how much, beside what `rights` says that they may do. Refusals are data."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from sluicegate._core import Lease, Limit
from sluicegate.admission import LONGEST_USER, Answer, Caller, Keyring, Later, Limiter
from sluicegate.gateway.prices import Prices
from sluicegate.gateway.rights import Refusal, Rights
from sluicegate.routing import Facts, Model, ModelTable

Work = Literal["reply", "count", "none"]
"""What is done with a request now, as `Limits.demand` has it."""

LIMITS_UNAVAILABLE = Refusal("limits_unavailable")


def told(answer: Answer) -> Lease | Refusal:
    """What counters answer, as the gateway has it."""
    if isinstance(answer, Lease):
        return answer
    return LIMITS_UNAVAILABLE if answer == "unavailable" else Refusal("limit", excess=answer)


class Admission:
    """What one configuration says of who may call. Any thread, but for `admit`."""

    __slots__ = ("_keys", "_limiter", "_prices", "rights")

    def __init__(
        self,
        keys: Keyring,
        models: ModelTable,
        limiter: Limiter,
        prices: Prices,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.rights = Rights(keys, models, wall)
        self._keys = keys
        self._limiter = limiter
        self._prices = prices

    @property
    def user_header(self) -> str | None:
        """The header that tells the people behind a caller apart, in lower case; None: none does."""
        return self._limiter.user_header

    def user(self, facts: Facts) -> str | None:
        """Who of the people behind a caller asks, by the header that tells them apart."""
        header = self._limiter.user_header
        user = None if header is None else facts.headers.get(header)
        return user and user[:LONGEST_USER]

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
        user = self.user(facts) if tells_users else None
        limits = limiter.limits(caller, model.label, user, model.name)
        price = None
        if limits.wants_price:
            price = self._prices.likely(model, by_any=limits.refuses_unpriced)
        rough = facts.input_tokens_estimate or 0
        demand = limits.demand(rough, facts.max_output_tokens, price, requests, work)
        if demand is None:
            return Refusal("unpriced", model.name)
        if not limits:
            return None
        answer = limiter.admit(limits, demand, caller, user)
        return answer if isinstance(answer, (Lease, Later)) else told(answer)

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

    def when_seeded(self, limits: Iterable[Limit], then: Callable[[], None]) -> None:
        """As `Counters.when_seeded`. For the thread that decides."""
        self._limiter.counters.when_seeded(limits, then)

    @property
    def limiter(self) -> Limiter:
        return self._limiter
