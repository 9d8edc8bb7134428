"""The simulation of routing: it is what it says it is, and comes out the same each time."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benches.routing import picture
from benches.routing.others import OTHERS, Others
from benches.routing.ours import Ours
from benches.routing.run import Make, Run, Scenario, Tries
from benches.routing.servers import BLOCK, Job, Server
from benches.routing.simulation import Simulation
from benches.routing.traffic import Request

SMALL = Scenario("small", 4, 0.3, disturbed=False)
DISTURBED = Scenario("small, disturbed", 8, 0.3, disturbed=True)


class Caller:
    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.heard: list[tuple[str, float]] = []

    def first_token(self) -> None:
        self.heard.append(("first token", self.simulation.now))

    def failed(self, kind: str) -> None:
        self.heard.append((kind, self.simulation.now))

    def served(self) -> None:
        self.heard.append(("served", self.simulation.now))


def job(simulation: Simulation, first_block: int, blocks: int = 50) -> tuple[Job, Caller]:
    caller = Caller(simulation)
    named = [*range(first_block, first_block + blocks)]
    return Job(named, blocks * BLOCK, 100, caller), caller


def test_what_is_cached_is_not_read_again() -> None:
    simulation = Simulation()
    server = Server(simulation, 1.0)
    first, caller = job(simulation, 0)
    server.submit(first)
    simulation.run()
    again, caller_again = job(simulation, 0)
    began = simulation.now
    server.submit(again)
    simulation.run()
    assert (first.cached, again.cached) == (0, 50 * BLOCK - 1)
    assert [what for what, _ in caller.heard] == ["first token", "served"]
    assert caller_again.heard[0][1] - began < caller.heard[0][1] / 5


def test_who_goes_down_loses_what_it_does_and_what_it_had_cached() -> None:
    simulation = Simulation()
    server = Server(simulation, 1.0)
    running, caller = job(simulation, 0)
    waiting, other = job(simulation, 1_000)
    server.submit(running)
    server.submit(waiting)
    simulation.after(1.0, lambda: server.become(down=True))
    simulation.after(2.0, server.become)
    simulation.run()
    assert caller.heard[-1] == ("truncated", 1.0)
    assert other.heard[-1] == ("reset", 1.0)
    fresh, _ = job(simulation, 0)
    server.submit(fresh)
    simulation.run()
    assert fresh.cached == 0
    assert server.jobs == 0


@pytest.mark.parametrize("scenario", [SMALL, DISTURBED], ids=lambda scenario: scenario.name)
def test_a_run_comes_out_the_same_each_time(scenario: Scenario) -> None:
    for make in (partial(Ours, "affinity"), partial(Others, OTHERS["smg cache-aware"])):
        one, other = (Run(scenario, make, 5, 90.0).result() for _ in range(2))
        assert one == other
        assert one.requests > 50


def test_nothing_is_left_in_flight() -> None:
    for policy in ("least_busy", "latency", "affinity", "weighted", "round_robin"):
        run = Run(DISTURBED, partial(Ours, policy), 3, 90.0)
        run.result()
        gateway = run.gateway
        assert isinstance(gateway, Ours)
        assert gateway.in_flight == 0
        assert all(server.jobs == 0 for server in run.servers)


def test_a_conversation_that_stays_finds_its_beginning() -> None:
    stays = Run(SMALL, partial(Ours, "affinity"), 1, 200.0).result()
    moves = Run(SMALL, partial(Ours, "round_robin"), 1, 200.0).result()
    assert stays.cached > moves.cached + 0.1
    assert stays.p50 < moves.p50


def test_the_picture_is_of_these_results() -> None:
    row = {"requests": 10, "failed": 0, "p50": 0.1, "p99": 2.0, "cached": 0.5, "imbalance": 1.1}
    found = {"8 servers": {"affinity": row, "random": {**row, "p99": 4.0, "cached": 0.25}}}
    drawn = picture.svg(found)
    assert "8 servers" in drawn
    assert "affinity" in drawn
    assert "25 %" in drawn


class Watching:
    """A gateway that notes what it is asked."""

    def __init__(self, make: Make, *given: Any) -> None:
        self.gateway = make(*given)
        self.inputs: dict[int, list[int]] = {}

    def begin(self, request: Request) -> Tries:
        self.inputs.setdefault(request.conversation.number, []).append(request.tokens)
        return self.gateway.begin(request)


def test_conversations_do_not_depend_on_who_answers() -> None:
    def asked(make: Make) -> dict[int, list[int]]:
        run = Run(SMALL, partial(Watching, make), 4, 60.0)
        run.result()
        gateway = run.gateway
        assert isinstance(gateway, Watching)
        return gateway.inputs

    one, other = asked(partial(Others, OTHERS["random"])), asked(partial(Ours, "least_busy"))
    assert one.keys() == other.keys()
    # One of them may have come further by the end.
    for number, inputs in one.items():
        both = min(len(inputs), len(other[number]))
        assert inputs[:both] == other[number][:both]
