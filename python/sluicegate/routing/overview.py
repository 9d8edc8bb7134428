"""All deployments of one configuration as they are now, for people."""

from collections.abc import Iterable
from dataclasses import dataclass

from sluicegate.routing.deployment import Deployment, Load
from sluicegate.routing.health import State
from sluicegate.routing.table import ModelTable


@dataclass(frozen=True, slots=True)
class Seen:
    """One deployment. Times are seconds."""

    name: str
    upstream: str
    model: str
    """The upstream's name of it."""
    models: tuple[str, ...]
    """The public models that it serves."""
    state: State
    back_in: float | None
    """Where it is left alone for a time: until it may be tried."""
    streams: int
    tokens: int
    """Of the inputs of its requests under way, estimated."""
    max_streams: int | None
    first_token: tuple[float | None, ...]
    """The average time to it, of short, middling and long inputs."""
    recent: tuple[int, int]
    """Of the attempts within the window of `health`: how many have ended, and failed."""
    faults: tuple[tuple[float, str], ...]
    """The last ones, the newest first: when, since 1970, and why."""


def deployments_of(table: ModelTable) -> dict[str, list[tuple[str, Deployment]]]:
    """By the name of each deployment, in the order of the names: the models that it serves. Any thread."""
    found: dict[str, list[tuple[str, Deployment]]] = {}
    for group in table.groups:
        for deployment in group.deployments:
            found.setdefault(deployment.name, []).append((group.name, deployment))
    return dict(sorted(found.items()))


def look_at(table: ModelTable, serving: Iterable[list[tuple[str, Deployment]]]) -> list[Seen]:
    """Some of `deployments_of`. For the thread that decides."""
    now = table.fleet.clock()
    return [_seen(models, now) for models in serving]


def load_of(table: ModelTable, name: str) -> Load | None:
    """What the deployment of that name has to do; None where there is no such deployment. Any thread."""
    for group in table.groups:
        for deployment in group.deployments:
            if deployment.name == name:
                return deployment.load
    return None


def _seen(models: list[tuple[str, Deployment]], now: float) -> Seen:
    deployment = models[0][1]
    load = deployment.load
    state = deployment.state(now)
    usable = load.health.usable(now)
    waits = state in (State.EJECTED, State.RESTING, State.REFUSING)
    bounds = [each.max_streams for _, each in models if each.max_streams is not None]
    if state is State.USABLE and len(bounds) == len(models) and load.streams >= max(bounds):
        state = State.FULL
    return Seen(
        name=load.name,
        upstream=deployment.upstream,
        model=deployment.model,
        models=tuple(dict.fromkeys(name for name, _ in models if name)),
        state=state,
        back_in=usable.until - now if waits and not usable.yes else None,
        streams=load.streams,
        tokens=load.tokens,
        max_streams=max(bounds) if bounds else None,
        first_token=tuple(None if each is None else each.value for each in load.first_token),
        recent=load.health.own.recent(),
        faults=tuple(reversed(load.faults)),
    )
