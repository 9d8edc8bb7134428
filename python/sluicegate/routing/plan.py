"""One request's attempts: which deployment is next, and when there is none any more."""

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from sluicegate._core import Fault, Outcome, Route
from sluicegate.routing.deployment import Deployment, tokens_of
from sluicegate.routing.health import Health, State
from sluicegate.routing.model import Model, lowest_tier
from sluicegate.routing.policy import Facts, KeptFacts
from sluicegate.routing.retry import backoff
from sluicegate.routing.verdict import LEFT, Effect, Verdict

Why = Literal["failed", "none", "full", "resting", "taken_off"]


_DOUBTFUL = frozenset({State.EJECTED, State.HALF_OPEN, State.REFUSING})
_NO_FAULT = frozenset({Effect.SUCCESS, Effect.NOTHING})


class Attempt(NamedTuple):
    """What to try."""

    route: Route
    last: bool
    """Nothing else could follow, as things stand now that this is handed out: nothing need be held back."""
    after: float
    """Seconds to wait first."""
    deployment: Deployment
    trial: bool = False
    """It finds out whether its deployment is back: its first output is to be told (`Plan.first_output`)."""


class NoRoute(NamedTuple):
    """There is nothing more to try."""

    fault: Fault | None
    """What the client is told of; None where nothing was tried."""
    why: Why = "failed"
    """Without a fault: `none`: there is no deployment at all; `full`: each has as many streams as it may
    have; `resting`: each wants to be left alone; `taken_off`: an operator has taken each off."""
    wait: float = 0.0
    """Where all rest: seconds until the first one is back."""
    reason: str = ""
    """Where all rest: the status by which that one asked for it."""


class Plan:
    """The attempts of one request. For the thread that decides.

    A deployment has the request in flight from the moment that it is handed out until the next attempt, or
    the request's end, whatever ends it: `ended` must be called."""

    __slots__ = (
        "_again", "_asked", "_deployment", "_facts", "_handed_out", "_health", "_model", "_only", "_tokens",
        "_trial", "_tried",
    )  # fmt: skip

    def __init__(self, model: Model, facts: Facts, only: Collection[str] | None = None) -> None:
        """`only`: the upstreams that can be asked to count the tokens of the input; None: all may be asked,
        for a reply of the model.
        """
        self._model = model
        self._facts: Facts | None = facts
        """None where nobody will rank by them."""
        self._only = only
        self._tokens = tokens_of(facts.size)
        self._tried: list[Deployment] = []
        self._handed_out = 0
        """Attempts so far."""
        self._again = 0
        """Of them, those at a deployment that had been tried before."""
        self._deployment: Deployment | None = None
        """That has the request in flight."""
        self._health: Health | None = None
        """Of that deployment, as it was when the attempt began."""
        self._trial = 0
        self._asked: Fault | None = None

    def next(self, fault: Fault | None = None) -> Attempt | NoRoute:
        """The next attempt, the one before it having failed with `fault`."""
        group = self._model.group
        now = group.fleet.clock()
        if fault is not None:
            return self._after(fault, now)
        group.budget.deposit(now)
        if self._only is None:
            usable, candidates = group.usable(now), group.ready(now)
        else:
            usable = self._left(group.usable(now))
            candidates = lowest_tier(usable)
        first = self._choose(usable, candidates, now)
        facts = self._facts
        # The request itself goes on with the attempt, and nobody ranks one deployment.
        self._facts = None if facts is None or len(group.deployments) == 1 else KeptFacts(facts)
        return first or self._none(now)

    def first_output(self) -> None:
        """The attempt under way has had its first output: its deployment is back, however long the reply will
        last."""
        health, trial = self._health, self._trial
        if health is not None and trial:
            self._trial = 0
            health.first_output(self._model.group.fleet.clock(), trial)

    def ended(self, outcome: Outcome) -> None:
        """The request is over. Once."""
        deployment = self._deployment
        if deployment is None:
            return
        fleet = self._model.group.fleet
        now = fleet.clock()
        if outcome.attempts < self._handed_out:
            # It ended in the pause before the attempt.
            self._give_back(LEFT, now)
            return
        self._give_back(deployment.verdict_at_end(outcome, fleet.wall()), now)
        first_token = outcome.first_token
        if first_token is None or not outcome.streamed or outcome.fault is not None:
            return
        if outcome.attempts > 1:
            first_token -= outcome.tries[-1][5]
        deployment.load.served(self._tokens, first_token, now)

    def _after(self, fault: Fault, now: float) -> Attempt | NoRoute:
        """What follows an attempt that failed with `fault`."""
        group = self._model.group
        # An upstream that the request was sent to has more to say than one that it could not be put to.
        if fault.kind != "untranslatable":
            self._asked = fault
        told = NoRoute(self._asked or fault)
        deployment = self._deployment
        if deployment is None:
            return told
        verdict = deployment.verdict(fault, group.fleet.wall())
        self._give_back(verdict, now)
        if self._handed_out >= group.attempts or not (verdict.elsewhere or verdict.again):
            return told
        usable = self._left(group.usable(now)) if verdict.elsewhere else ()
        pause = None
        if not usable:
            usable = self._doubtful(now) if verdict.elsewhere else ()
        if not usable:
            pause = self._pause(deployment, verdict, now)
            if pause is None:
                return told
        # What was sent nowhere costs no upstream anything.
        if fault.kind != "untranslatable" and not group.budget.withdraw(now, verdict.reason):
            return told
        if pause is not None:
            self._again += 1
            return self._hand_out(deployment, True, pause, now)
        return self._choose(usable, lowest_tier(usable), now) or told

    def _choose(
        self, usable: Sequence[Deployment], candidates: Sequence[Deployment], now: float
    ) -> Attempt | None:
        """One of `candidates`, which are those of `usable` that come first."""
        group = self._model.group
        others = len(usable) > 1
        if not candidates:
            usable = candidates = self._doubtful(now)
            if not candidates:
                return None
            chosen = candidates[0]
        elif len(candidates) == 1:
            chosen = candidates[0]
        else:
            chosen = candidates[0]
            facts = self._facts
            try:
                if facts is not None:
                    chosen = group.policy.rank(facts, candidates)[0]
            except Exception as error:  # It may be the user's own: its faults must not end a request.
                group.complain(group.name, error)
        self._tried.append(chosen)
        if not others and len(self._tried) < len(group.deployments):
            others = bool(self._left(usable) or self._doubtful(now))
        last = not others or self._handed_out + 1 >= group.attempts or not group.budget.affords(now)
        return self._hand_out(chosen, last, 0.0, now)

    def _doubtful(self, now: float) -> tuple[Deployment, ...]:
        """Where nothing may be handed the request: what was left alone because it failed, the one that is due
        back first. Sending to a doubtful server beats refusing."""
        doubtful = []
        for deployment in self._left(self._model.deployments):
            usable = deployment.usable(now)
            if usable.why in _DOUBTFUL:
                doubtful.append((usable.why is not State.HALF_OPEN, usable.until, deployment))
        return () if not doubtful else (min(doubtful, key=_first_two)[2],)

    def _pause(self, deployment: Deployment, verdict: Verdict, now: float) -> float | None:
        """Seconds before the same deployment is tried again; None where it is not."""
        if not verdict.again:
            return None
        group = self._model.group
        shortest, longest = group.pauses
        usable = deployment.usable(now)
        stated = verdict.wait or 0.0
        if not usable.yes:
            stated = max(stated, usable.until - now)
        if stated > longest:
            return None
        return backoff(self._again, stated, group.fleet.random, shortest, longest)

    def _hand_out(self, deployment: Deployment, last: bool, after: float, now: float) -> Attempt:
        route = deployment.route(self._model.asked, self._model.star)
        self._handed_out += 1
        self._take(deployment, now)
        return Attempt(route, last, after, deployment, bool(self._trial))

    def _take(self, deployment: Deployment, now: float) -> None:
        load = deployment.load
        self._health = load.health
        self._trial = load.health.begin(now)
        load.streams += 1
        load.tokens += self._tokens
        if load.streams in load.bounds:
            self._model.group.fleet.changes += 1
        self._deployment = deployment

    def _give_back(self, verdict: Verdict, now: float) -> None:
        deployment, self._deployment = self._deployment, None
        health, self._health = self._health, None
        if deployment is None or health is None:
            return
        if self._only is not None and verdict.effect is Effect.BUSY:
            # Whoever counts no more tokens for now may still generate.
            verdict = verdict._replace(effect=Effect.NOTHING)
        health.ended(verdict, now, self._trial)
        load = deployment.load
        if verdict.effect not in _NO_FAULT:
            load.faults.append((self._model.group.fleet.wall(), verdict.reason))
        if load.streams in load.bounds:
            self._model.group.fleet.changes += 1
        load.streams -= 1
        load.tokens -= self._tokens

    def _left(self, usable: Sequence[Deployment]) -> tuple[Deployment, ...]:
        only, tried = self._only, self._tried
        return tuple(
            deployment
            for deployment in usable
            if deployment not in tried and (only is None or deployment.upstream in only)
        )

    def _none(self, now: float) -> NoRoute:
        resting: list[tuple[float, str]] = []
        left = self._left(self._model.deployments)
        full = False
        for deployment in left:
            usable = deployment.usable(now)
            if usable.why is State.RESTING:
                resting.append((usable.until - now, deployment.load.health.rest_reason))
            full = full or usable.why is State.FULL
        if resting:
            wait, reason = min(resting)
            return NoRoute(None, "resting", wait, reason)
        if left and not full:
            return NoRoute(None, "taken_off")
        return NoRoute(None, "full" if left else "none")


def _first_two(doubtful: tuple[bool, float, Deployment]) -> tuple[bool, float]:
    return doubtful[:2]
