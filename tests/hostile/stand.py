"""A gateway between honest and hostile peers, and what is measured of a case."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.gateway_process import GatewayProcess
from harness.shared_gateway import shared_gateway
from hostile.case import (
    KEY,
    NO_BODY,
    RESPONSES,
    RUDE_KEY,
    SECRETS,
    UPSTREAM_KEY,
    Case,
    Seen,
    asking,
    post,
    talk,
)
from hostile.honest import SCRIPT, Honest, HonestStreams, whole_reply
from hostile.lane import Attacker, attacker
from sluicegate.testing import ScriptedUpstream

MIB = 1 << 20
MEMORY_SHARE = 0.1
MEMORY_SLACK = 64 * MIB
"""What allocators and pools of connections keep, beside a tenth of what the gateway had: 43 MiB after a
minute of all cases, 51 after seven, 53 after ten."""
ALL_BODIES = 256 * MIB
MAX_RESPONSE = 8 * MIB
MAX_PEAK = 5 * ALL_BODIES
"""Beside bodies there is what is made of them for the upstream, and what is being read of a reply."""
STORED = 8
"""Responses at once: as many as the store has connections."""
SETTLE_SECONDS = 20.0
"""More than the 10 s after which a thread that has nothing to do ends, and gives back what it kept."""

_PRICE = {"input": 1, "cached_input": 0.1, "output": 4}
_DEADLINES = {"connect": 2, "first_byte": 2, "first_token": 3, "between_tokens": 2, "total": 30}
_BOUNDS = {
    "head_seconds": 1.5,
    "body_pause_seconds": 1.5,
    "body_bytes_per_second": 100,
    "idle_seconds": 3,
    "client_stall_seconds": 2,
    "all_bodies_bytes": ALL_BODIES,
}


@dataclass
class Outcome:
    """One case, played. Bytes of the gateway's memory: `peak` at most, `memory` once it had settled."""

    case: Case
    seen: Seen
    honest: Honest
    peak: int = 0
    memory: int = 0
    problems: list[str] = field(default_factory=list)


class HostileStand:
    """Plays cases while honest streams flow."""

    def __init__(self, gateway: GatewayProcess, attackers: list[Attacker], honest: HonestStreams) -> None:
        self.gateway = gateway
        self.attackers = attackers
        self.honest = honest
        self._memory = gateway.private_memory
        self._read_lines = 0

    async def control(self, seconds: float) -> Honest:
        """The honest streams alone, and responses that are stored: the store has memory once it is used."""
        self.honest.begin()
        for background in (False, True):
            body = asking("honest", path=RESPONSES, store=True, background=background, input="a" * MIB)
            kept = [talk(self.gateway.address, post(body=body, path=RESPONSES)) for _ in range(STORED)]
            assert {seen.label for seen in await asyncio.gather(*kept)} == {"served"}
        await asyncio.sleep(seconds)
        self._memory = max(self._memory, self.gateway.private_memory)
        return await self.honest.settle()

    async def play(self, case: Case) -> Outcome:
        """One case; what is wrong is in `problems`. The honest streams' times are not judged here."""
        self.honest.begin()
        self.gateway.restart_peak()
        seen = await self.attackers[0].play(case, self.gateway.address)
        honest = await self.honest.settle()
        outcome = Outcome(
            case, seen, honest, peak=self.gateway.peak_memory, problems=list(dict.fromkeys(honest.problems))
        )
        outcome.problems += wrong_with(case, seen)
        if outcome.peak > MAX_PEAK:
            outcome.problems.append(f"memory rose to {outcome.peak // MIB} MiB")
        after = await talk(self.gateway.address, post(body=asking("honest", stream=False)))
        if not self.gateway.running or after.label != "served":
            outcome.problems.append(f"a new request was {after.label}")
        outcome.problems += self.said_secrets()
        return outcome

    async def settle(self) -> tuple[int, int]:
        """The memory, as soon as it is within its bound, or after `SETTLE_SECONDS`; and the bound."""
        bound = int(self._memory * (1 + MEMORY_SHARE)) + MEMORY_SLACK
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                while self.gateway.private_memory > bound:
                    # Allocators give back when they are used, the store what it wrote with its next write.
                    await talk(self.gateway.address, post(body=asking("unknown")))
                    small = asking("honest", path=RESPONSES, store=True, background=True, input="a")
                    await talk(self.gateway.address, post(body=small, path=RESPONSES))
                    await asyncio.sleep(0.1)
        return self.gateway.private_memory, bound

    def said_secrets(self) -> list[str]:
        """Secrets in what the gateway has logged since the last call."""
        lines = self.gateway.lines[self._read_lines :]
        self._read_lines += len(lines)
        said = "".join(map(json.dumps, lines)) + self.gateway.stderr
        return [f"the log has {secret}" for secret in SECRETS if secret in said]


def wrong_with(case: Case, seen: Seen) -> list[str]:
    """What is wrong with what the client of a case saw."""
    problems = []
    if seen.label not in case.expected:
        problems.append(f"seen {seen.label} ({seen.code}), and not {sorted(case.expected)}")
    answered = seen.status is not None and seen.status >= 400 and seen.ended == "whole"
    if answered and (seen.code is None or (seen.code == NO_BODY and case.side == "upstream")):
        problems.append(f"the error {seen.status} has no code")
    return problems


@contextlib.asynccontextmanager
async def hostile_stand(
    directory: Path, *, lanes: int = 1, store: Mapping[str, Any] | None = None
) -> AsyncIterator[HostileStand]:
    """A stand with a gateway of its own, ended within bounds.

    `lanes`: attackers, of which only the first is an upstream of the gateway's. `store`: settings of the
    store of responses.
    """
    async with contextlib.AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(ScriptedUpstream(SCRIPT))
        attackers = [await stack.enter_async_context(attacker()) for _ in range(lanes)]
        bad = {
            "base_url": f"http://127.0.0.1:{attackers[0].port}/v1",
            "api_key": UPSTREAM_KEY,
            "deadlines": _DEADLINES,
        }
        config: dict[str, Any] = {
            "server": {"http": "auto", "bounds": _BOUNDS, "threads": 2},
            "keys": [{"name": "one", "key": KEY}, {"name": "rude", "key": RUDE_KEY}],
            "upstreams": {
                "honest": {"base_url": upstream.base_url, "api_key": UPSTREAM_KEY},
                "fair": {"base_url": attackers[0].fair_url, "api_key": UPSTREAM_KEY},
                "chat": bad,
                "responses": {**bad, "api": "responses"},
                "repaired": {**bad, "api": "both", "repair": True},
                "harmony": {**bad, "format": "harmony"},
                "http2": {**bad, "http2": True},
            },
            "models": {
                "honest": "honest",
                "small": "fair",
                **{f"bad-{name}": name for name in ("chat", "responses", "repaired", "harmony", "http2")},
            },
            "prices": dict.fromkeys(("honest", "small"), _PRICE),
            "cost": {"genai_prices": False},
            "responses": {"max_response_bytes": MAX_RESPONSE, **(store or {})},
        }
        gateway = await stack.enter_async_context(shared_gateway(config, directory))
        expected = await whole_reply(gateway.address)
        honest = await stack.enter_async_context(HonestStreams(gateway.address, expected))
        stand = HostileStand(gateway, attackers, honest)
        yield stand
        assert not honest.record.problems
