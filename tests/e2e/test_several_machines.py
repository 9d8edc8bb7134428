"""Gateways that count limits together, with a real Redis server, and without it when it is gone."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from harness import postgres
from harness.gateway_process import GatewayProcess
from harness.redis_server import RedisServer, redis_server
from sluicegate.testing import Script, ScriptedUpstream, UsageScript

ANSWER = Script(tokens=3, usage=UsageScript(input_tokens=100, output_tokens=20))
# Of one request, however busy the machine is. One that hangs takes 15 s, for which engines wait.
SOON = 12.0
NEVER = {"head_delay": 600.0}
# How long these gateways wait for the server.
PATIENCE = 1.0

LIMITS = {
    "sixty": {"requests": "60/hour"},
    "tokens": {"tokens": "3000/hour"},
    "budget": {"cost": "0.004/month"},
    "two": {"concurrent": 2},
    "many": {"requests": "100000/hour"},
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as running:
        yield running


@pytest_asyncio.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream(ANSWER) as running:
        yield running


def configuration(server: RedisServer, upstream: ScriptedUpstream, **storage: Any) -> dict[str, Any]:
    return {
        "upstreams": {"local": {"base_url": upstream.base_url}},
        "models": {"m": "local"},
        "prices": {"m": {"input": "1", "cached_input": "1", "output": "5"}},
        "limits": LIMITS,
        "keys": [{"name": name, "key": f"sk-{name}", "limits": name} for name in LIMITS]
        + [{"name": "free", "key": "sk-free"}],
        "storage": {"counters": server.url, **storage},
    }


async def start(config: dict[str, Any], directory: Path) -> GatewayProcess:
    launcher = ("harness.patient_launcher", str(PATIENCE))
    return await GatewayProcess.start(config, directory, launcher=launcher)


@contextlib.asynccontextmanager
async def running(
    config: dict[str, Any], directory: Path, count: int = 2
) -> AsyncIterator[list[GatewayProcess]]:
    async with contextlib.AsyncExitStack() as stack:
        gateways = []
        for number in range(count):
            own = directory / str(number)
            own.mkdir(exist_ok=True)
            gateway = await start(config, own)
            stack.push_async_callback(gateway.stop)
            gateways.append(gateway)
        for gateway in gateways:
            await gateway.wait_metrics(lambda samples: samples.value("sluicegate_counters_gateways") == count)
        yield gateways


async def ask(gateway: GatewayProcess, name: str, **body: Any) -> httpx.Response:
    # About as many tokens as the upstream says that it has.
    asking = {
        "model": "m",
        "messages": [{"role": "user", "content": "hello " * 70}],
        "max_tokens": 20,
        **body,
    }
    headers = {"authorization": f"Bearer sk-{name}"}
    began = time.monotonic()
    response = await gateway.client.post("/v1/chat/completions", json=asking, headers=headers)
    assert time.monotonic() - began < SOON
    return response


async def many(gateways: Sequence[GatewayProcess], name: str, count: int, **body: Any) -> Counter[int]:
    """The statuses of `count` requests that are sent at once, to all gateways in turn."""
    asking = (ask(gateways[number % len(gateways)], name, **body) for number in range(count))
    return Counter(reply.status_code for reply in await asyncio.gather(*asking))


async def at_once(gateways: Sequence[GatewayProcess], name: str, count: int) -> int:
    """How many of `count` requests run at the same time, while the others have been refused."""
    tasks = [
        asyncio.create_task(ask(gateways[number % len(gateways)], name, mock=NEVER))
        for number in range(count)
    ]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SOON / 2):
            while tasks:
                done, running = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                assert all(task.result().status_code == 429 for task in done)
                tasks = [*running]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return len(tasks)


def assert_spent(requests: int) -> None:
    """So many requests use the budget up: one more where the last one reserved only what was left, and
    another was let in before it had said what it really cost.
    """
    assert requests in (20, 21)


def used(server: RedisServer, resource: str) -> dict[str, int]:
    """What the server counts of a resource, by the window."""
    found: Counter[str] = Counter()
    with server.client() as client:
        for key in client.keys(f"*:{resource}:*"):
            window = key.decode().split(":")[3]
            amounts = client.hvals(key) if client.type(key) == b"hash" else [client.get(key)]
            # It may be gone by now.
            found[window] += sum(int(amount) for amount in amounts if amount is not None)
    return {window: amount for window, amount in found.items() if amount}


async def settles(server: RedisServer, resource: str, expected: dict[str, int]) -> None:
    """Wait until so much is counted: the last bytes of a reply come before it is settled."""
    found: dict[str, int] = {}
    try:
        async with asyncio.timeout(30):
            while (found := used(server, resource)) != expected:  # noqa: ASYNC110 - another process counts
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{resource}: {found}") from None


async def test_limits_hold_across_gateways(
    server: RedisServer, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    async with running(configuration(server, upstream), tmp_path) as gateways:
        assert await many(gateways, "sixty", 200) == {200: 60, 429: 140}
        reply = await ask(gateways[0], "sixty")
        assert reply.headers["x-ratelimit-remaining-requests"] == "0"
        assert 3000 < int(reply.headers["retry-after"]) <= 3900
        assert reply.json()["error"]["code"] == "limit_exceeded"

        # Each uses 120 and reserves more.
        found = await many(gateways, "tokens", 200)
        assert 0 < found[200] <= 25
        assert found[200] + found[429] == 200
        await settles(server, "tokens", {"hour": 120 * found[200]})

        # Each costs 0.0002 USD and reserves more, but never more than is left: what those before it give back
        # lets in others, of which each may cost more than it reserved.
        found = await many(gateways, "budget", 200)
        assert 0 < found[200] <= 35
        while (reply := await ask(gateways[1], "budget")).status_code == 200:
            found[200] += 1
        assert 20 <= found[200] <= 35
        assert reply.json()["error"]["code"] == "budget_exceeded"
        assert reply.headers["x-should-retry"] == "false"
        await settles(server, "cost", {"month": found[200] * 200_000_000})

        assert await at_once(gateways, "two", 20) == 2
        await settles(server, "concurrent", {})
        assert await many(gateways, "two", 2) == {200: 2}

        # A budget in Anthropic's words.
        headers = {"x-api-key": "sk-budget", "anthropic-version": "2023-06-01"}
        asking = {"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 30}
        reply = await gateways[0].client.post("/v1/messages", json=asking, headers=headers)
        assert (reply.status_code, reply.json()["error"]["type"]) == (402, "billing_error")


async def test_callers_without_limits_ask_nobody(
    server: RedisServer, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    async with running(configuration(server, upstream), tmp_path) as gateways:
        server.hang()
        began = time.monotonic()
        assert await many(gateways, "free", 20) == {200: 20}
        assert time.monotonic() - began < SOON
        server.go_on()


async def test_clients_that_leave_give_everything_back(
    server: RedisServer, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    async with running(configuration(server, upstream), tmp_path) as gateways:
        for _ in range(5):
            server.hang()
            leaving = [asyncio.create_task(ask(gateway, "two")) for gateway in gateways]
            await asyncio.sleep(0.03)  # Within the deadline: they are being asked for.
            for task in leaving:
                task.cancel()
            await asyncio.gather(*leaving, return_exceptions=True)
            server.go_on()
        await settles(server, "concurrent", {})
        for gateway in gateways:
            await gateway.wait_metrics(lambda samples: samples.value("sluicegate_counters_lost") == 0)
        assert await many(gateways, "two", 2) == {200: 2}


@pytest.mark.parametrize("how", ["killed", "hanging"])
async def test_a_lost_server_leaves_each_gateway_its_share(
    server: RedisServer, upstream: ScriptedUpstream, tmp_path: Path, how: str
) -> None:
    async with running(configuration(server, upstream), tmp_path) as gateways:
        assert await many(gateways, "sixty", 20) == {200: 20}
        await settles(server, "requests", {"hour": 20})
        # Both have heard of all twenty.
        for gateway in gateways:
            await ask(gateway, "sixty")
        if how == "killed":
            server.kill()
        else:
            server.hang()
        # A batch on its way to the server that will not answer.
        for gateway in gateways:
            assert (await ask(gateway, "many")).status_code == 200
            assert await many([gateway], "many", 20) == {200: 20}
        for gateway in gateways:
            await gateway.wait_line(event="counters_lost")
            assert (await gateway.metrics()).value("sluicegate_counters_lost") == 1
            ready = await gateway.client.get("/readyz")
            assert (ready.status_code, ready.json()) == (200, {"status": "ready", "counters": "lost"})
        # 22 of 60 were used, or 21 as the first of the two gateways knows: each has half of what is left.
        one, other = [await many([gateway], "sixty", 60) for gateway in gateways]
        assert one[200] + other[200] in (38, 39)
        assert abs(one[200] - other[200]) <= 1
        assert await at_once(gateways[:1], "two", 2) == 1

        if how == "killed":
            server.start()
        else:
            server.go_on()
        for gateway in gateways:
            await gateway.wait_line(event="counters_found")
            assert (await gateway.client.get("/readyz")).json() == {"status": "ready"}
        await settles(server, "concurrent", {})
        assert await at_once(gateways, "two", 10) == 2
        await settles(server, "concurrent", {})
        if how == "hanging":
            # It has all that was used meanwhile, and nothing twice.
            assert (await many(gateways, "sixty", 10))[429] >= 9
            admitted = 22 + one[200] + other[200]
            assert used(server, "requests")["hour"] in range(admitted + 42, admitted + 44)


async def test_a_gateway_starts_without_its_server(
    server: RedisServer, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """It is there, and takes connections, but nobody answers on them."""
    server.hang()
    gateway = await start(configuration(server, upstream), tmp_path)
    try:
        found = await many([gateway], "sixty", 70)
        assert found == {200: 60, 429: 10}
        line = await gateway.wait_line(event="counters_lost")
        assert line["limits"] == "local"
        server.go_on()
        await gateway.wait_line(event="counters_found")
        # The server has been told.
        await settles(server, "requests", {"hour": 60})
        assert (await ask(gateway, "sixty")).status_code == 429
    finally:
        await gateway.stop()


@pytest.mark.parametrize(("lost", "status"), [("allow", 200), ("refuse", 503)])
async def test_what_else_a_lost_server_may_mean(
    server: RedisServer, upstream: ScriptedUpstream, tmp_path: Path, lost: str, status: int
) -> None:
    async with running(configuration(server, upstream, counters_lost=lost), tmp_path) as gateways:
        server.hang()
        assert await many(gateways, "sixty", 200) == {status: 200}
        for gateway in gateways:
            await gateway.wait_line(event="counters_lost")
        assert await many(gateways, "sixty", 20) == {status: 20}
        assert await many(gateways, "free", 4) == {200: 4}
        if lost == "refuse":
            reply = await ask(gateways[0], "sixty")
            assert reply.json()["error"]["code"] == "limits_unavailable"
            assert reply.headers["retry-after"]
        server.go_on()
        for gateway in gateways:
            await gateway.wait_line(event="counters_found")
        # What was let in counts, and what was refused does not.
        found = await many(gateways, "sixty", 20)
        assert found == ({429: 20} if lost == "allow" else {200: 20})


async def test_a_gateway_that_dies_holds_nothing_for_long(
    server: RedisServer, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    async with running(configuration(server, upstream), tmp_path) as gateways:
        dying = asyncio.create_task(many(gateways[:1], "two", 2, mock=NEVER))
        await settles(server, "concurrent", {"": 2})
        assert (await ask(gateways[1], "two")).status_code == 429
        await gateways[0].kill()
        await asyncio.gather(dying, return_exceptions=True)
        async with asyncio.timeout(40):
            while (await ask(gateways[1], "two")).status_code != 200:  # noqa: ASYNC110 - time is what it takes
                await asyncio.sleep(0.2)
        await gateways[1].wait_metrics(lambda samples: samples.value("sluicegate_counters_gateways") == 1)


async def test_a_server_that_has_lost_its_memory_learns_budgets_from_the_ledger(
    server: RedisServer, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    with postgres.server() as url, postgres.database(url) as database:
        config = configuration(server, upstream, database=database, directory=str(tmp_path / "state"))
        config |= {"ledger": {}}
        async with running(config, tmp_path) as gateways:
            assert await many(gateways, "budget", 10) == {200: 10}
            for gateway in gateways:
                await gateway.wait_metrics(lambda samples: samples.value("sluicegate_ledger_rows_total") == 5)
            with server.client() as client:
                client.flushall()
            # What each has seen itself is not all: the ledger has the other's rows, too.
            found: Counter[int] = Counter()
            for number in range(15):
                found[(await ask(gateways[number % 2], "budget")).status_code] += 1
            assert_spent(10 + found[200])
            spent = (10 + found[200]) * 200_000_000
            await settles(server, "cost", {"month": spent})

            # What the ledger has from elsewhere raises the counter.
            with server.client() as client:
                [key] = client.keys("*:cost:*")
                client.set(key, 5, keepttl=True)
            assert (await ask(gateways[0], "budget")).status_code == 200
            await settles(server, "cost", {"month": spent + 200_000_000})
