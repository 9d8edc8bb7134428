"""What gateways count together is exact, whatever becomes of the calls by which they do it."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import UTC
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import pytest_asyncio
from pydantic import SecretStr

from harness.holding import hold
from harness.redis_server import RedisServer, redis_server
from sluicegate._core import Decisions, Estimates, Lease
from sluicegate.admission import Keyring, Later, Limiter, SharedCounters, Total
from sluicegate.config import load_data
from sluicegate.gateway import counting
from sluicegate.gateway.counting import Counting
from sluicegate.gateway.deciding import DecidingOnLoop
from sluicegate.gateway.totals import Sums
from sluicegate.storage import RedisConnection, RedisConnector, RedisFailed, ScriptCall
from sluicegate.storage import redis as storage_redis
from sluicegate.telemetry import Log, Metrics

WAIT_SECONDS = 60.0
SETTLE_SECONDS = 10.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as running:
        yield running


class Unreliable(RedisConnection):
    """Some calls fail before they are done, some afterwards, and some are done or answered in part."""

    def __init__(self, inner: RedisConnection, owner: "UnreliableConnector") -> None:
        self._inner = inner
        self._owner = owner
        self._left: int | None = None
        """Answers until it breaks; None: it does not."""
        self._waiting = 0

    def fileno(self) -> int:
        return self._inner.fileno()

    @property
    def is_sending(self) -> bool:
        return self._inner.is_sending

    def send(self, calls: Sequence[ScriptCall]) -> None:
        chance = self._owner.chance
        if self._left is not None:
            calls = []
        elif chance.random() < self._owner.share:
            calls = calls[: chance.randint(0, len(calls))]
            self._left = chance.randint(0, self._waiting + len(calls))
        self._waiting += len(calls)
        if calls:
            self._inner.send(calls)
        self._break()

    def receive(self) -> list[Any]:
        answers = self._inner.receive()
        if self._left is not None:
            answers = answers[: self._left]
            self._left -= len(answers)
            if not answers:
                self._break()
            # What is broken off next is not announced by the descriptor.
            asyncio.get_running_loop().call_soon(self._owner.wake)
        self._waiting -= len(answers)
        return answers

    def close(self) -> None:
        self._inner.close()

    def _break(self) -> None:
        if self._left == 0:
            raise RedisFailed("on purpose")


class UnreliableConnector(RedisConnector):
    def __init__(self, url: SecretStr, chance: random.Random, wake: Callable[[], None]) -> None:
        super().__init__(url)
        self.chance = chance
        self.wake = wake
        self.share = 0.0

    def connect(self, key: str) -> RedisConnection:
        return Unreliable(super().connect(key), self)


class Decider:
    """It has nothing to decide."""

    wake: Callable[[], None]

    def handle(self, events: Sequence[Any]) -> None:
        assert not events

    def run_posted(self) -> None:
        pass


class Gateway:
    """The thread that decides is the event loop here."""

    def __init__(
        self, server: RedisServer, chance: random.Random, log: Log, totals: Any = None, **config: Any
    ) -> None:
        decisions = Decisions()
        self.wake = decisions.wake
        self.connector = UnreliableConnector(SecretStr(server.url), chance, decisions.wake)
        self.counters = SharedCounters(UTC, "allow")
        self.counting = Counting(self.counters, self.connector, totals, log, Metrics().counters)
        self.deciding = DecidingOnLoop(cast(Any, Decider()), decisions, self.counting)
        rates = {"requests": "100000/hour", "tokens": "1G/hour", "concurrent": 1000, "cost": "100000/month"}
        loaded = load_data(
            {
                "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1"}},
                "models": {"m": "local"},
                "limits": {"all": rates},
                "keys": [{"name": "a", "key": "sk-1", "limits": "all"}],
                **config,
            },
            {},
        )
        self._limiter = Limiter(loaded, self.counters, Estimates())
        [self._caller] = Keyring(loaded).callers

    async def close(self) -> None:
        await self.deciding.stop(0)
        await asyncio.to_thread(self.counting.close)

    async def admitted(self, input: int, user: str | None = None) -> Lease:
        found: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer = hold(self._limiter, self._caller, input, 50, user=user)
        if isinstance(answer, Later):
            answer.then(found.set_result)
        else:
            found.set_result(answer)
        self.wake()
        async with asyncio.timeout(WAIT_SECONDS):
            answer = await found
        assert isinstance(answer, Lease)
        return answer


@pytest_asyncio.fixture
async def gateways(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[list[Gateway]]:
    # A busy machine is not what is looked at here.
    monkeypatch.setattr(storage_redis, "DEADLINE_SECONDS", WAIT_SECONDS)
    monkeypatch.setattr(counting, "PROBE_SECONDS", 0.01)
    with server.client() as client:
        client.flushall()
    chance = random.Random(request.param)
    log = Log(level="error")
    running = [Gateway(server, chance, log) for _ in range(2)]
    for gateway in running:
        gateway.deciding.start()
    try:
        yield running
    finally:
        for gateway in running:
            await gateway.close()
        log.close()


def counted(server: RedisServer) -> dict[str, int]:
    """What is counted of each resource."""
    found: dict[str, int] = {}
    with server.client() as client:
        for key in client.keys("{sluicegate}:1:*:*"):
            resource = key.decode().split(":")[2]
            amounts = client.hvals(key) if client.type(key) == b"hash" else [client.get(key)]
            found[resource] = sum(int(amount) for amount in amounts if amount is not None)
    return {resource: amount for resource, amount in found.items() if amount}


@pytest.mark.parametrize("gateways", range(6), indirect=True)
async def test_calls_that_fail_count_nothing_twice_and_hold_nothing(
    gateways: list[Gateway], server: RedisServer
) -> None:
    chance = random.Random(1)
    expected = {"requests": 0, "tokens": 0, "cost": 0}

    async def one(gateway: Gateway) -> None:
        admitted = await gateway.admitted(chance.randint(1, 100))
        await asyncio.sleep(chance.choice([0, 0, 0.002, 0.01]))
        tokens = chance.choice([7, 900, 0])
        if tokens:
            admitted.ended(tokens, 0, tokens * 10**6, failed=False)
        else:
            admitted.unused()
        gateway.wake()
        expected["requests"] += tokens > 0
        expected["tokens"] += tokens
        expected["cost"] += tokens * 10**6

    # Before anything fails, so that the totals are there.
    await asyncio.gather(*(one(gateway) for gateway in gateways))
    for gateway in gateways:
        gateway.connector.share = 0.4
    for _ in range(30):
        await asyncio.gather(*(one(chance.choice(gateways)) for _ in range(chance.randint(1, 20))))
    for gateway in gateways:
        gateway.connector.share = 0.0
        # What is left of sessions that are over counts for nobody, and goes when somebody looks.
        async with asyncio.timeout(WAIT_SECONDS):
            while gateway.counters.lost:  # noqa: ASYNC110 - it is being found
                await asyncio.sleep(0.01)
        await one(gateway)
    found: dict[str, int] = {}
    try:
        async with asyncio.timeout(SETTLE_SECONDS):
            while (found := counted(server)) != expected:  # noqa: ASYNC110 - another process counts
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{found}, not {expected}") from None


class Refusing(RedisConnector):
    """No server is there until `there` is set."""

    there = False

    def connect(self, key: str) -> RedisConnection:
        if not self.there:
            raise RedisFailed("on purpose")
        return super().connect(key)


async def test_an_outage_at_the_start_lasts_from_the_start(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A clock of the system may begin anywhere: when the machine was started, for one."""
    monkeypatch.setattr(storage_redis, "DEADLINE_SECONDS", WAIT_SECONDS)
    passed, began = 0.0, time.monotonic()
    clock = SimpleNamespace(monotonic=lambda: 1e6 + passed + time.monotonic() - began)
    monkeypatch.setattr(counting, "time", clock)
    with (tmp_path / "log").open("w+") as file:
        log = Log(file.fileno())
        connector = Refusing(SecretStr(server.url))
        counters = SharedCounters(UTC, "allow")
        gateway = Counting(counters, connector, None, log, Metrics().counters)

        async def until(lost: bool) -> None:
            nonlocal passed
            async with asyncio.timeout(WAIT_SECONDS):
                while counters.lost is not lost:
                    passed += 1.0
                    gateway.receive()
                    gateway.send()
                    await asyncio.sleep(0.001)

        await until(True)
        connector.there = True
        await until(False)
        log.close()
        file.seek(0)
        [found] = [line for line in map(json.loads, file) if line["event"] == "counters_found"]
    gateway.close()
    # It is told in tenths.
    assert 0 < found["seconds"] <= passed + time.monotonic() - began + 0.1


class Forgetful:
    """A ledger that has no sums."""

    def ask(self, totals: Mapping[str, Total], then: Callable[[Sums | None], None]) -> None:
        then({})


async def test_what_the_ledger_cannot_say_is_what_the_gateway_knows(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of users the ledger has no sums by model."""
    monkeypatch.setattr(storage_redis, "DEADLINE_SECONDS", WAIT_SECONDS)
    log = Log(level="error")
    person = {"tokens": "900000/month", "models": {"m": {"tokens": "800000/month"}}}
    users = {"header": "x-user-id", "limits": "person"}
    gateway = Gateway(
        server,
        random.Random(0),
        log,
        Forgetful(),
        limits={"all": {"tokens": "1M/month"}, "person": person},
        users=users,
    )
    gateway.deciding.start()
    try:
        with server.client() as client:
            client.flushall()
            (await gateway.admitted(10, "ada")).ended(500, 0, 0, failed=False)
            gateway.wake()
            # Whoever asks after it hears of it.
            (await gateway.admitted(10, "ada")).unused()
            client.flushall()
            await gateway.admitted(100, "ada")
            found = {
                (key.decode().split(":")[6], key.decode().split(":")[7]): int(client.get(key) or 0)
                for key in client.keys("{sluicegate}:1:tokens:month:*")
            }
        wanted = found["", "caller"]
        assert found["", "user"] == wanted
        assert found["m", "user"] >= 500 + wanted
    finally:
        await gateway.close()
        log.close()


class Deaf(random.Random):
    """All calls are done, and none is answered."""

    def random(self) -> float:
        return 0.0

    # How many are sent is asked first, and then how many are answered.
    def randint(self, a: int, b: int) -> int:
        self._asked = not getattr(self, "_asked", False)
        return b if self._asked else a


async def test_a_lost_answer_at_the_end_of_a_budget_gives_back_no_more_than_was_taken(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_redis, "DEADLINE_SECONDS", WAIT_SECONDS)
    monkeypatch.setattr(counting, "PROBE_SECONDS", 0.01)
    with server.client() as client:
        client.flushall()
    log = Log(level="error")
    budget, left = 10**10, 10**6
    gateway = Gateway(server, random.Random(0), log, limits={"all": {"cost": "0.01/month"}})
    gateway.deciding.start()
    try:
        (await gateway.admitted(10)).ended(1, 1, budget - left, failed=False)
        gateway.wake()
        (await gateway.admitted(0)).unused()
        gateway.connector.chance, gateway.connector.share = Deaf(), 1.0
        # It would cost a thousand times what is left.
        unheard = await gateway.admitted(1000)
        gateway.connector.share = 0.0
        async with asyncio.timeout(WAIT_SECONDS):
            while gateway.counters.lost:  # noqa: ASYNC110 - it is being found
                await asyncio.sleep(0.01)
        unheard.ended(1, 1, 5 * left, failed=False)
        gateway.wake()
        used = budget - left + 5 * left
        async with asyncio.timeout(SETTLE_SECONDS):
            while not used <= counted(server)["cost"] <= used + left:  # noqa: ASYNC110 - another process counts
                await asyncio.sleep(0.05)
    finally:
        await gateway.close()
        log.close()
