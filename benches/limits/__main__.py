"""What limits of several machines add to the time of the first chunk: `python -m benches.limits [SECONDS]`.

It uses the tests' own way to start gateways, so `PYTHONPATH=tests` is needed.

Two gateways with the same limits stand before one scripted upstream: one counts for itself, the other in a
Redis server on this machine. Requests go to both in turn, so what else the machine does slows both alike;
the gateways' own processor time says more than the clock where the machine is not idle.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx

from harness.gateway_process import GatewayProcess
from harness.redis_server import redis_server
from sluicegate._core import BUILD
from sluicegate.testing import Script, ScriptedUpstream

CLIENTS = (1, 16)
BODY = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 16}
HEADERS = {"authorization": "Bearer sk-a"}


def configuration(upstream: str, **storage: Any) -> dict[str, Any]:
    """Six windows, as a caller may have them."""
    limits = {
        "requests": ["1M/minute", "50M/hour"],
        "tokens": ["100M/minute", "10G/day"],
        "concurrent": 1000,
        "cost": "1M/month",
    }
    return {
        "upstreams": {"local": {"base_url": upstream}},
        "models": {"m": "local"},
        "prices": {"m": {"input": 1, "cached_input": 1, "output": 5}},
        "limits": {"six": limits},
        "keys": [{"name": "a", "key": "sk-a", "limits": "six"}],
        "storage": storage,
    }


async def first_chunk(client: httpx.AsyncClient) -> float:
    began = time.perf_counter()
    async with client.stream("POST", "/v1/chat/completions", json=BODY, headers=HEADERS) as reply:
        reply.raise_for_status()
        chunks = reply.aiter_raw()
        await anext(chunks)
        took = time.perf_counter() - began
        async for _ in chunks:
            pass
    return took


async def measured(gateways: Sequence[GatewayProcess], clients: int, seconds: float) -> list[list[float]]:
    """Times to the first chunk, in seconds, by the gateway."""
    times: list[list[float]] = [[] for _ in gateways]
    end = time.monotonic() + seconds

    async def ask() -> None:
        while time.monotonic() < end:
            for gateway, own in zip(gateways, times, strict=True):
                own.append(await first_chunk(gateway.client))

    await asyncio.gather(*(ask() for _ in range(clients)))
    return times


def processor_time(gateway: GatewayProcess) -> float:
    """Seconds of all threads (proc(5): `utime` and `stime`)."""
    fields = Path(f"/proc/{gateway.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def quantile(times: Sequence[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * share))] * 1000


async def main(seconds: float) -> None:
    folder = Path(tempfile.mkdtemp(prefix="sluicegate-bench-"))
    async with AsyncExitStack() as stack:
        redis = stack.enter_context(redis_server(folder))
        upstream = await stack.enter_async_context(ScriptedUpstream(Script(tokens=3)))
        gateways = []
        for name, storage in (("memory", {}), ("redis", {"counters": redis.url})):
            own = folder / name
            own.mkdir()
            gateway = await GatewayProcess.start(configuration(upstream.base_url, **storage), own)
            stack.push_async_callback(gateway.stop)
            gateways.append(gateway)
        await measured(gateways, 4, 1.0)
        print(f"build: {BUILD}")
        print("clients  requests  memory p50   p99 ms  redis p50     p99 ms  added p50     p99 ms  CPU, us")
        for clients in CLIENTS:
            before = [processor_time(gateway) for gateway in gateways]
            memory, shared = await measured(gateways, clients, seconds)
            spent = [processor_time(gateway) - began for gateway, began in zip(gateways, before, strict=True)]
            cpu = (spent[1] / len(shared) - spent[0] / len(memory)) * 1e6
            shown = [quantile(times, share) for times in (memory, shared) for share in (0.5, 0.99)]
            added = (shown[2] - shown[0], shown[3] - shown[1])
            cells = "  ".join(f"{value:9.2f}" for value in (*shown, *added))
            print(f"{clients:7}  {len(shared):8}  {cells}  {cpu:7.0f}")


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0))
