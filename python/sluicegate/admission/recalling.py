"""What the ledger says was used, as counters have it."""

from collections.abc import Iterable
from typing import Literal, Protocol

from sluicegate.admission.windows import CounterKey, Resource, Unit, user_subject
from sluicegate.config import wildcard_matches


def holds_for(name: str, model: str) -> bool:
    """Whether what is said of models called `name`, which may have a `*`, holds for `model`."""
    return name == model or ("*" in name and wildcard_matches(name, model))


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


def used_by(spent: Spending, models: Iterable[str]) -> Iterable[tuple[CounterKey, int]]:
    """What it adds to which counters, whether there is a limit of them or not. `models`: the names and
    patterns of models that counters go by; empty: all models.
    """
    names = [name for name in models if not name or holds_for(name, spent.model)]
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
        subjects.append(user_subject(spent.caller_id, spent.user_id))
    for unit in units:
        for resource, amount in amounts:
            if amount:
                for model in names:
                    for subject in subjects:
                        yield CounterKey(subject, resource, model, unit), amount
