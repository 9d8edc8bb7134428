"""Two deployments of one upstream, on a clock of the test's own, and who remembers what became of them."""

from dataclasses import dataclass, field
from random import Random

from sluicegate.config import HealthConfig
from sluicegate.routing.health import Breaker, Health, State
from sluicegate.routing.verdict import Effect, Verdict


class Midway(Random):
    """In the middle of each range: no jitter."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


@dataclass
class Notes:
    """A watcher that remembers."""

    moves: int = 0
    changes: list[tuple[str, State, str, float]] = field(default_factory=list)

    def moved(self) -> None:
        self.moves += 1

    def changed(self, name: str, state: State, reason: str, seconds: float) -> None:
        self.changes.append((name, state, reason, seconds))


def verdict(effect: Effect, reason: str = "why", wait: float | None = None) -> Verdict:
    return Verdict(effect, elsewhere=True, again=True, reason=reason, wait=wait)


GOOD = verdict(Effect.SUCCESS)
BAD = verdict(Effect.FAILURE)
LOST = verdict(Effect.UNREACHABLE)
LEFT = verdict(Effect.NOTHING)
REFUSED = verdict(Effect.REFUSED, "401")


def busy(wait: float | None = None) -> Verdict:
    return verdict(Effect.BUSY, "429", wait)


class Stand:
    """Two deployments of one upstream, on a clock of their own."""

    def __init__(self, settings: HealthConfig | None = None) -> None:
        self.notes = Notes()
        self.now = 1000.0
        settings = settings or HealthConfig()
        random = Midway()
        self.reach = Breaker("up", settings, random, self.notes)
        self.one = Health(Breaker("up/one", settings, random, self.notes), self.reach, self.notes)
        self.two = Health(Breaker("up/two", settings, random, self.notes), self.reach, self.notes)

    def end(self, verdict: Verdict, times: int = 1, of: Health | None = None) -> None:
        health = of or self.one
        for _ in range(times):
            health.ended(verdict, self.now, health.begin(self.now))

    def may(self, health: Health | None = None) -> bool:
        return (health or self.one).usable(self.now).yes

    def state(self, health: Health | None = None) -> State:
        return (health or self.one).state(self.now)
