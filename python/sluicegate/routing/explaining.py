"""What would become of a request, without sending anything: who may serve it, in which order, and why."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sluicegate._core import affinity_of_chat, affinity_of_key
from sluicegate.config import Config
from sluicegate.routing.deployment import Deployment, tokens_of
from sluicegate.routing.model import Model, lowest_tier
from sluicegate.routing.policy import Facts

ASKED = 1_000
"""How often a policy is asked for the first choice: some leave it to chance."""


@dataclass(frozen=True, slots=True)
class GivenFacts:
    """Facts as somebody states them."""

    endpoint: str = "chat_completions"
    stream: bool = False
    size: int = 0
    max_output_tokens: int | None = None
    input_tokens_estimate: int | None = None
    user: str | None = None
    affinity: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def facts_of_prompt(config: Config, model: str, prompt: str, headers: Mapping[str, str]) -> GivenFacts:
    """The facts of a chat request with this one message of a user's, as the engines would see it."""
    lower = {name.lower(): value for name, value in headers.items()}
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": prompt}]}).encode()
    affinity: int | None = None
    if config.wants_affinity:
        named = lower.get((config.routing.affinity_header or "").lower())
        affinity = affinity_of_key(named.encode("latin-1", "replace")) if named else affinity_of_chat(body)
    shown = {name: lower[name] for name in config.shown_headers if name in lower}
    return GivenFacts(size=len(body), affinity=affinity, headers=shown)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One deployment, in the order in which a request whose attempts all fail would come to it."""

    deployment: Deployment
    rank: int | None
    """From 1; None: it would not be tried."""
    first: float
    """The share of requests like this one that it would be the first for."""
    why: str


def explain(model: Model, facts: Facts) -> list[Candidate]:
    """What a request's plan would do, one attempt after the other, each as if the one before had failed."""
    group = model.group
    now = group.fleet.clock()
    firsts = Counter(_first(model, facts, group.ready(now)) for _ in range(ASKED))
    order = _order(model, facts, group.usable(now))
    found = [
        Candidate(deployment, rank, firsts[deployment] / ASKED, _why(model, deployment, order[: rank - 1]))
        for rank, deployment in enumerate(order, 1)
    ]
    for deployment in group.deployments:
        if deployment not in order:
            found.append(Candidate(deployment, None, 0.0, deployment.usable(now).why))
    return found


def _order(model: Model, facts: Facts, usable: Sequence[Deployment]) -> list[Deployment]:
    left, order = [*usable], []
    while left:
        chosen = _first(model, facts, lowest_tier(tuple(left)))
        order.append(chosen)
        left.remove(chosen)
    return order


def _first(model: Model, facts: Facts, candidates: Sequence[Deployment]) -> Deployment:
    return candidates[0] if len(candidates) == 1 else model.group.policy.rank(facts, candidates)[0]


def _why(model: Model, deployment: Deployment, before: Sequence[Deployment]) -> str:
    lower = [other for other in model.deployments if other.tier < deployment.tier]
    if lower:
        return f"only where none in a tier below {deployment.tier} can serve"
    rivals = [other for other in model.deployments if other.tier == deployment.tier and other not in before]
    return "the policy's choice" if len(rivals) > 1 else "the only one left in its tier"


def describe(model: Model, facts: Facts, policy: str) -> dict[str, Any]:
    """The same for programs and for the command line: plain values."""
    now = model.group.fleet.clock()
    return {
        "asked": model.asked,
        "model": model.group.name,
        "stands_for": model.name,
        "policy": policy,
        "facts": {
            "endpoint": facts.endpoint,
            "size": facts.size,
            "tokens": tokens_of(facts.size),
            "affinity": None if facts.affinity is None else f"{facts.affinity:016x}",
            "headers": dict(facts.headers),
        },
        "candidates": [
            {
                "rank": candidate.rank,
                "deployment": candidate.deployment.name.replace("*", model.star),
                "tier": candidate.deployment.tier,
                "weight": candidate.deployment.full_weight,
                "max_streams": candidate.deployment.max_streams,
                "state": str(candidate.deployment.usable(now).why),
                "first": candidate.first,
                "why": candidate.why,
            }
            for candidate in explain(model, facts)
        ],
    }
