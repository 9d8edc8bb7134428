"""Our own policies: the classes, the plan and the health of the gateway, by the simulation's clock."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from benches.routing.simulation import Simulation
from benches.routing.traffic import Request

from sluicegate.config import load_data
from sluicegate.routing import Attempt, Fleet, ModelTable, Plan


@dataclass(slots=True)
class Facts:
    """What the engines would have found out."""

    size: int
    affinity: int
    endpoint: str = "chat_completions"
    stream: bool = True
    max_output_tokens: int | None = None
    input_tokens_estimate: int | None = None
    user: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Fault:
    """Of an attempt, as the engines tell it."""

    kind: str
    status: int | None
    upstream: str = ""
    message: str = ""
    reason: str | None = None
    param: str | None = None
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""


@dataclass(slots=True)
class Outcome:
    """Of a request, as far as a plan looks at it."""

    fault: Fault | None
    first_token: float | None
    attempts: int
    tries: list[tuple[str, str, str | None, int | None, str | None, float, float]]
    status: int = 200
    streamed: bool = True
    client_left: bool = False
    finish_reason: str | None = "stop"


class Ours:
    """`policy`: as a configuration says it."""

    def __init__(self, policy: Any, simulation: Simulation, servers: int, seed: int) -> None:
        self._simulation = simulation
        config = load_data(
            {
                "upstreams": {str(place): {"base_url": "http://127.0.0.1:1/v1"} for place in range(servers)},
                "models": {"m": {"routes": [str(place) for place in range(servers)], "policy": policy}},
            }
        )
        random = Random(seed)
        fleet = Fleet(simulation.clock, wall=simulation.clock, random=random)
        self._model = ModelTable(config, fleet=fleet, random=random).get("m")

    @property
    def in_flight(self) -> int:
        """Requests that some deployment still has."""
        if self._model is None:
            raise LookupError("m")
        return sum(deployment.load.streams for deployment in self._model.deployments)

    def begin(self, request: Request) -> "Tries":
        if self._model is None:
            raise LookupError("m")
        facts: Any = Facts(request.tokens * 4, request.conversation.affinity)
        return Tries(Plan(self._model, facts), self._simulation)


class Tries:
    """One request's."""

    def __init__(self, plan: Plan, simulation: Simulation) -> None:
        self._plan = plan
        self._simulation = simulation
        self._began = simulation.now
        self._tries: list[tuple[str, str, str | None, int | None, str | None, float, float]] = []
        self._first_token: float | None = None

    def next(self, failed: str | None) -> tuple[int, float] | None:
        fault: Any = None if failed is None else _fault(failed)
        step = self._plan.next(fault)
        if not isinstance(step, Attempt):
            return None
        began = self._simulation.now - self._began
        self._tries.append((step.deployment.upstream, "m", None, None, None, began, 0.0))
        return int(step.deployment.upstream), step.after

    def first_token(self) -> None:
        self._first_token = self._simulation.now - self._began
        self._plan.first_output()

    def ended(self, failed: str | None) -> None:
        fault = None if failed is None else _fault(failed)
        outcome: Any = Outcome(fault, self._first_token, len(self._tries), self._tries)
        self._plan.ended(outcome)


def _fault(kind: str) -> Fault:
    return Fault(kind, 500 if kind == "status" else None)
