"""A gateway between honest and hostile peers, and what is measured of a case."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.gateway_process import GatewayProcess
from harness.shared_gateway import shared_gateway
from hostile.case import KEY, NO_BODY, SECRETS, UPSTREAM_KEY, Case, Seen, asking, post, talk
from hostile.honest import SCRIPT, Honest, one, streams
from sluicegate.testing import ScriptedUpstream

MIB = 1 << 20
MEMORY_SHARE = 0.1
MEMORY_SLACK = 32 * MIB
"""What allocators and pools of connections keep, beside a tenth of what the gateway had."""
SETTLE_SECONDS = 20.0
"""More than the 10 s after which a thread that has nothing to do ends, and gives back what it kept."""
CASE_SECONDS = 180.0

_DEADLINES = {"connect": 2, "first_byte": 2, "first_token": 3, "between_tokens": 2, "total": 30}
_BOUNDS = {
    "head_seconds": 1.5,
    "body_pause_seconds": 1.5,
    "body_bytes_per_second": 100,
    "idle_seconds": 3,
    "client_stall_seconds": 2,
}
_TESTS = Path(__file__).parents[1]


@dataclass
class Outcome:
    """One case, played. `memory`: bytes that the gateway had once it had settled."""

    case: Case
    seen: Seen
    honest: Honest
    memory: int = 0
    problems: list[str] = field(default_factory=list)


class HostileStand:
    """Plays cases while honest streams flow."""

    def __init__(
        self, gateway: GatewayProcess, attacker: asyncio.subprocess.Process, expected: bytes
    ) -> None:
        self.gateway = gateway
        self._attacker = attacker
        self._expected = expected
        self._memory = gateway.private_memory

    async def control(self, seconds: float) -> Honest:
        """The honest streams alone."""
        async with streams(self.gateway.address, self._expected) as honest:
            await asyncio.sleep(seconds)
        self._memory = max(self._memory, self.gateway.private_memory)
        return honest

    async def play(self, case: Case) -> Outcome:
        """One case; what is wrong is in `problems`. The honest streams' times are not judged here."""
        async with streams(self.gateway.address, self._expected) as honest:
            seen = await self._attack(case)
        outcome = Outcome(case, seen, honest, problems=list(dict.fromkeys(honest.problems)))
        if not honest.whole:
            outcome.problems.append("no honest stream came to its end")
        if seen.label not in case.expected:
            outcome.problems.append(f"seen {seen.label} ({seen.code}), and not {sorted(case.expected)}")
        answered = seen.status is not None and seen.status >= 400 and seen.ended == "whole"
        if answered and (seen.code is None or (seen.code == NO_BODY and case.side == "upstream")):
            outcome.problems.append(f"the error {seen.status} has no code")
        after = await talk(self.gateway.address, post(body=asking(stream=False)))
        if not self.gateway.running or after.label != "served":
            outcome.problems.append(f"a new request was {after.label}")
        outcome.problems += self._said_secrets()
        return outcome

    async def settle(self) -> tuple[int, int]:
        """The memory, as soon as it is within its bound, or after `SETTLE_SECONDS`; and the bound."""
        bound = int(self._memory * (1 + MEMORY_SHARE)) + MEMORY_SLACK
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                while self.gateway.private_memory > bound:
                    # Allocators give back when they are used.
                    await talk(self.gateway.address, post(body=asking("unknown")))
                    await asyncio.sleep(0.1)
        return self.gateway.private_memory, bound

    async def _attack(self, case: Case) -> Seen:
        stdin, stdout = self._attacker.stdin, self._attacker.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps([case.id, self.gateway.address[1]]).encode() + b"\n")
        await stdin.drain()
        async with asyncio.timeout(CASE_SECONDS):
            return Seen.load(json.loads(await stdout.readline()))

    def _said_secrets(self) -> list[str]:
        said = self.gateway.transcript()
        return [f"the log has {secret}" for secret in SECRETS if secret in said]


@contextlib.asynccontextmanager
async def hostile_stand(directory: Path) -> AsyncIterator[HostileStand]:
    """A stand with a gateway of its own, ended within bounds."""
    async with ScriptedUpstream(SCRIPT) as upstream, _attacker() as (attacker, port):
        bad = {
            "base_url": f"http://127.0.0.1:{port}/v1",
            "api_key": UPSTREAM_KEY,
            "deadlines": _DEADLINES,
        }
        config: dict[str, Any] = {
            "server": {"http": "auto", "bounds": _BOUNDS, "threads": 2},
            "keys": [{"name": "one", "key": KEY}],
            "upstreams": {
                "local": {"base_url": upstream.base_url, "api_key": UPSTREAM_KEY},
                "chat": bad,
                "responses": {**bad, "api": "responses"},
                "repaired": {**bad, "api": "both", "repair": True},
                "harmony": {**bad, "format": "harmony"},
                "http2": {**bad, "http2": True},
            },
            "models": {
                "small": "local",
                **{f"bad-{name}": name for name in ("chat", "responses", "repaired", "harmony", "http2")},
            },
            "prices": {"small": {"input": 1, "cached_input": 0.1, "output": 4}},
            "cost": {"genai_prices": False},
        }
        async with shared_gateway(config, directory) as gateway:
            expected = await one(gateway.address, Honest(), None)
            assert b"[DONE]" in expected
            yield HostileStand(gateway, attacker, expected)


@contextlib.asynccontextmanager
async def _attacker() -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    path = os.pathsep.join(filter(None, (str(_TESTS), os.environ.get("PYTHONPATH"))))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hostile.attacker",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            port = int(await process.stdout.readline())
        yield process, port
    finally:
        process.kill()
        await process.wait()
