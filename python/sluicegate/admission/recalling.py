"""What the ledger says was used, as counters have it."""

from collections.abc import Iterable
from typing import Literal, Protocol

from sluicegate.admission.windows import CounterKey, Resource, Unit


class Spending(Protocol):
    """What was used by one caller with one key, or by one user of a caller, as the ledger has it."""

    @property
    def window(self) -> Literal["lately", "day", "week", "month"]: ...
    @property
    def at(self) -> float: ...
    @property
    def caller_id(self) -> str: ...
    @property
    def key_id(self) -> str: ...
    @property
    def team(self) -> str: ...
    @property
    def user_id(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def requests(self) -> int: ...
    @property
    def tokens(self) -> int: ...
    @property
    def cost(self) -> int: ...


def used_by(spent: Spending) -> Iterable[tuple[CounterKey, int]]:
    """What it adds to which counters, whether there is a limit of them or not."""
    units: tuple[Unit, ...] = ("minute", "hour") if spent.window == "lately" else (spent.window,)
    amounts: tuple[tuple[Resource, int], ...] = (
        ("requests", spent.requests),
        ("tokens", spent.tokens),
        ("cost", spent.cost),
    )
    subjects: list[str] = []
    # The sums of users have a user and no key. A background response may have no key, either.
    if spent.key_id or not spent.user_id:
        subjects += [f"caller:{spent.caller_id}", f"team:{spent.team}"]
    if spent.key_id:
        subjects.append(f"key:{spent.key_id}")
    if spent.user_id:
        subjects.append(f"user:{spent.caller_id}:{spent.user_id}")
    for unit in units:
        for resource, amount in amounts:
            if amount:
                for model in {"", spent.model}:
                    for subject in subjects:
                        yield CounterKey(subject, resource, model, unit), amount
