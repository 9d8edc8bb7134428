"""Honest streams for a while, beside hostile clients and upstreams that are played one after the other."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hostile.case import Case
from hostile.catalogue import CASES
from hostile.honest import STREAMS, Honest
from hostile.stand import MIB, HostileStand, hostile_stand, wrong_with

CONTROL_SECONDS = 5.0
LANES = 4
"""Hostile peers at once. The first plays what meets the hostile upstream, which plays a case at a time."""


@dataclass(frozen=True, slots=True)
class Second:
    """About a second of it. `at`: seconds since the start; `memory`: the gateway's (PSS), bytes."""

    at: float
    memory: int
    honest: Honest

    def drawn(self) -> dict[str, float]:
        """What the picture shows of it. `wait_ms`: the longest beyond the pace, less our own lateness."""
        return {
            "at": round(self.at, 2),
            "memory_mib": round(self.memory / MIB, 1),
            "chunks": self.honest.chunks,
            "wait_ms": round(self.honest.delay * 1000, 1),
        }


@dataclass
class HostileSoak:
    """What happened."""

    seconds: float
    samples: list[Second] = field(default_factory=list)
    played: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    memory_after: int = 0
    memory_bound: int = 0

    def summary(self) -> dict[str, Any]:
        """For people, and for the picture."""
        honest = [sample.honest for sample in self.samples]
        return {
            "seconds": self.seconds,
            "honest_streams_at_once": STREAMS,
            "honest_streams_whole": sum(one.whole for one in honest),
            "honest_chunks": sum(one.chunks for one in honest),
            "honest_seconds_with_a_gap_above_100_ms": sum(one.delay > 0.1 for one in honest),
            "hostile_cases_played": self.played.total(),
            "hostile_outcomes": dict(self.played.most_common()),
            "memory_mib": {
                "first": round(self.samples[0].memory / MIB, 1),
                "largest": round(max(sample.memory for sample in self.samples) / MIB, 1),
                "settled": round(self.memory_after / MIB, 1),
                "settled_may_be": round(self.memory_bound / MIB, 1),
            },
            "problems": len(self.problems),
            "first_problems": self.problems[:30],
            "samples": [sample.drawn() for sample in self.samples],
        }


async def soak(seconds: float, directory: Path, *, lanes: int = LANES, seed: int = 1) -> HostileSoak:
    """Play cases in a random order for `seconds`, `lanes` at once."""
    record = HostileSoak(seconds)
    async with hostile_stand(directory, lanes=lanes) as stand:
        await stand.control(min(CONTROL_SECONDS, seconds))
        watching = asyncio.create_task(_watch(stand, record))
        try:
            await _play_all(stand, record, random.Random(seed))
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        record.memory_after, record.memory_bound = await stand.settle()
        record.problems += [problem for sample in record.samples for problem in sample.honest.problems]
        record.problems += stand.said_secrets()
        if record.memory_after > record.memory_bound:
            record.problems.append("the memory did not come back")
        if not stand.gateway.running:
            record.problems.append("the gateway ended")
    return record


async def _play_all(stand: HostileStand, record: HostileSoak, chance: random.Random) -> None:
    ends = time.monotonic() + record.seconds
    meets: list[Case] = []
    others: list[Case] = []
    for case in CASES:
        (meets if case.side == "upstream" or case.meets_upstream else others).append(case)

    async def lane(number: int) -> None:
        attacker = stand.attackers[number]
        for case in _shuffled(others if number else meets, chance):
            if time.monotonic() >= ends:
                return
            seen = await attacker.play(case, stand.gateway.address)
            record.played[seen.label] += 1
            # Bodies of the other attackers may take all the room that there is for bodies.
            if seen.code != "overloaded":
                record.problems += [f"{case.id}: {problem}" for problem in wrong_with(case, seen)]

    async with asyncio.TaskGroup() as lanes:
        for number in range(len(stand.attackers)):
            lanes.create_task(lane(number))


def _shuffled(cases: list[Case], chance: random.Random) -> Iterator[Case]:
    while True:
        yield from chance.sample(cases, len(cases))


async def _watch(stand: HostileStand, record: HostileSoak) -> None:
    started = time.monotonic()
    while True:
        stand.honest.begin()
        await asyncio.sleep(1.0)
        sample = await stand.honest.settle()
        record.samples.append(Second(time.monotonic() - started, stand.gateway.proportional_memory, sample))
