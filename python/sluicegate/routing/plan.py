"""One request's attempts: which deployment is next, and when there is none any more."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from sluicegate._core import Fault, Outcome, Route
from sluicegate.routing.deployment import Deployment, tokens_of
from sluicegate.routing.health import Health, State, Usable
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
    """Where all rest: seconds until the first one is back, which is the shortest wait."""
    reason: str = ""
    """Where all rest: the status by which that one asked for it."""


class Plan:
    """The attempts of one request. For the thread that decides.

    A deployment has the request in flight from the moment that it is handed out until the next attempt, or
    the request's end, whatever ends it: `ended` must be called."""

    __slots__ = (
        "_again", "_asked", "_deployment", "_facts", "_handed_out", "_health", "_model", "_only", "_stated",
        "_tokens", "_trial", "_tried",
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
        self._stated: dict[Deployment, tuple[float, str]] = {}
        """Of those that have asked to be left alone: until when, by the clock, and why."""

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
        if not candidates:
            usable = candidates = self._doubtful(now)
        first = self._try(self._choose(candidates), usable, now) if candidates else None
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
        deployment = self._deployment
        if deployment is None:
            return NoRoute(self._asked or fault)
        verdict = deployment.verdict(fault, group.fleet.wall())
        self._give_back(verdict, now)
        if verdict.wait:
            self._stated[deployment] = now + verdict.wait, verdict.reason
        if self._handed_out >= group.attempts or not (verdict.elsewhere or verdict.again):
            return self._over(fault, verdict, now)
        # What was sent nowhere costs no upstream anything.
        free = fault.kind == "untranslatable"
        usable = self._left(group.usable(now)) if verdict.elsewhere else ()
        candidates, sound = lowest_tier(usable), bool(usable)
        if not usable and verdict.elsewhere:
            usable = candidates = self._doubtful(now)
        if not usable:
            pause = self._pause(deployment, verdict, now)
            if pause is None or not (free or group.budget.withdraw(now, verdict.reason)):
                return self._over(fault, verdict, now)
            self._again += 1
            return self._hand_out(deployment, True, pause, now)
        chosen = self._choose(candidates)
        # One that serves is what a request is to come to: whatever has failed, its load is but this request.
        # What says nothing bad of a deployment may be the client's doing, and the next would say the same.
        if sound and not free and verdict.effect not in _NO_FAULT and not chosen.load.health.fails:
            free = True
            group.budget.count(verdict.reason)
        if not free and not group.budget.withdraw(now, verdict.reason):
            return self._over(fault, verdict, now)
        return self._try(chosen, usable, now)

    def _over(self, fault: Fault, verdict: Verdict, now: float) -> NoRoute:
        """Nothing follows an attempt that failed with `fault`. Where that one states a wait, and another is
        back before it is over, the client is told of the shortest wait."""
        told, only = NoRoute(self._asked or fault), self._only
        if not verdict.wait or len(self._model.deployments) == 1:
            return told
        asked = [each for each in self._model.deployments if only is None or each.upstream in only]
        until, reason = min(self._rests(asked, now), default=(math.inf, ""))
        return told if until >= now + verdict.wait else NoRoute(None, "resting", until - now, reason)

    def _rests(self, deployments: Iterable[Deployment], now: float) -> Iterator[tuple[float, str]]:
        """Of those that rest, or have asked this request for it: until when, and why."""
        for deployment in deployments:
            usable = deployment.usable(now)
            if usable.why is State.RESTING:
                yield usable.until, deployment.load.health.rest_reason
            elif deployment in self._stated:
                yield self._stated[deployment]

    def _choose(self, candidates: Sequence[Deployment]) -> Deployment:
        group, facts = self._model.group, self._facts
        if len(candidates) > 1 and facts is not None:
            try:
                rank = group.rank_again if self._tried else group.policy.rank
                return rank(facts, candidates)[0]
            except Exception as error:  # It may be the user's own: its faults must not end a request.
                group.complain(group.name, error)
        return candidates[0]

    def _try(self, chosen: Deployment, usable: Sequence[Deployment], now: float) -> Attempt:
        """Hand out `chosen`, which is one of `usable`."""
        group = self._model.group
        self._tried.append(chosen)
        others = len(usable) > 1
        if not others and len(self._tried) < len(group.deployments):
            others = bool(self._left(usable) or self._doubtful(now))
        last = not others or self._handed_out + 1 >= group.attempts
        if not last and not group.budget.affords(now):
            last = all(deployment.load.health.fails for deployment in self._left(usable))
        return self._hand_out(chosen, last, 0.0, now)

    def _doubtful(self, now: float) -> tuple[Deployment, ...]:
        """Where nothing may be handed the request: what was left alone without having asked for that, the one
        that is due back first. Sending to a doubtful server beats refusing."""
        doubtful = []
        for deployment in self._left(self._model.deployments):
            usable = deployment.usable(now)
            if usable.why in _DOUBTFUL or _only_rests(deployment, usable, now):
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
        if not (usable.yes or _only_rests(deployment, usable, now)):
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
        left = self._left(self._model.deployments)
        until, reason = min(self._rests(left, now), default=(math.inf, ""))
        if reason:
            return NoRoute(None, "resting", until - now, reason)
        if left and all(deployment.usable(now).why is not State.FULL for deployment in left):
            return NoRoute(None, "taken_off")
        return NoRoute(None, "full" if left else "none")


def _only_rests(deployment: Deployment, usable: Usable, now: float) -> bool:
    """Whether it is left alone as too busy, without having asked for that: it may be tried where there is
    nothing else."""
    return usable.why is State.RESTING and not deployment.load.health.asks_for_rest(now)


def _first_two(doubtful: tuple[bool, float, Deployment]) -> tuple[bool, float]:
    return doubtful[:2]
