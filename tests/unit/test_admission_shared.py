"""Scripts at a real server decide as the counters of one process would, and give back what was taken."""

import random
from collections.abc import Iterator
from datetime import UTC
from typing import Any

import pytest
import redis

from harness.holding import held
from harness.redis_server import redis_server
from sluicegate._core import Estimates, Excess, Lease
from sluicegate.admission import (
    SESSIONS,
    SETTLE,
    TAKE,
    Ask,
    Changes,
    Counters,
    Keyring,
    Limiter,
    Place,
    SharedCounters,
)
from sluicegate.config import load_data

# A minute before a day, a week and a month end at once: Sunday, 31 January 2027, 23:59.
START = 1_801_439_940.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator["redis.Redis"]:
    with redis_server(tmp_path_factory.mktemp("redis")) as running, running.client() as client:
        yield client


@pytest.fixture
def empty(server: "redis.Redis") -> "redis.Redis":
    server.flushall()
    return server


class Clock:
    """What everybody takes for the time, the server included."""

    def __init__(self) -> None:
        self.at = START
        self._counters: list[Counters] = []

    def show(self, counters: Counters) -> None:
        """`counters` go by this one."""
        self._counters.append(counters)
        counters.clock.hold(self.at, self.at)

    def move(self, at: float) -> None:
        self.at = at
        for counters in self._counters:
            counters.clock.hold(at, at)


class Gateway:
    """One of several with the same counters. Each call is answered before anything else is done."""

    def __init__(self, server: "redis.Redis", clock: Clock, name: str) -> None:
        self.name = name
        self._server = server
        self._clock = clock
        # A script's only look at a clock.
        assert TAKE.count("redis.call('TIME')") == SETTLE.count("redis.call('TIME')") == 1
        self._take, self._settle = (
            server.register_script(source.replace("redis.call('TIME')", "{redis.call('GET', 'now'), 0}"))
            for source in (TAKE, SETTLE)
        )
        self.counters = SharedCounters(UTC, "local")
        clock.show(self.counters)
        self.counters.ask, self.counters.tell = self.ask, self.tell
        self.calls = 0
        self.settle({}, follows="-")

    def ask(self, ask: Ask) -> None:
        verdict, *rest = self.take(ask)
        if verdict == b"missing":
            self.settle(
                {
                    Place(name, "raise", int(total.ends) + 3600): total.known
                    for name, total in ask.totals.items()
                }
            )
            verdict, *rest = self.take(ask)
        ask.answered(verdict.decode(), float(rest[0]), rest[1:])

    def take(self, ask: Ask) -> list[Any]:
        self._tick()
        keys = [SESSIONS, *ask.keys]
        answer: list[Any] = self._take(keys, [self.name, self.calls, *ask.arguments])
        return answer

    def tell(self, changes: Changes) -> None:
        self.settle({Place.of(held): held.amount for held in changes})

    def settle(self, changes: dict[Place, int], follows: str = "") -> list[Any]:
        self._tick()
        arguments = [part for place, amount in changes.items() for part in (place.kind, place.place, amount)]
        keys = [SESSIONS, *(place.name for place in changes)]
        answer: list[Any] = self._settle(keys, [self.name, self.calls, follows, *arguments])
        return answer

    def _tick(self) -> None:
        self.calls += 1
        self._server.set("now", repr(self._clock.at))


def plain_counters(clock: Clock) -> Counters:
    counters = Counters(UTC)
    clock.show(counters)
    return counters


LIMITS = {
    "requests": ["12/minute", "90/hour"],
    "tokens": ["1500/minute", "12000/day"],
    "concurrent": 4,
    "cost": ["0.008/week", "0.012/month"],
    "models": {"m": {"tokens": "900/minute"}},
}


def limiter_of(
    counters: Counters, limits: dict[str, Any] = LIMITS, estimates: Estimates | None = None
) -> tuple[Limiter, Any]:
    data = {
        "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1"}},
        "models": {"m": "local", "n": "local"},
        "limits": {"team": limits, "own": {"requests": "8/minute"}},
        "teams": {"t": {"limits": "team"}},
        "callers": [{"name": "a", "team": "t"}],
        "keys": [{"name": "a", "key": "sk-1", "limits": "own"}],
    }
    config = load_data(data, {})
    [caller] = Keyring(config).callers
    return Limiter(config, counters, estimates or Estimates()), caller


def asked(limiter: Limiter, caller: Any, model: str, input: int, output: int) -> Lease | Excess:
    return held(limiter, caller, input, output, model=model)


def end(lease: Lease, used: tuple[int, int, int | None] | None) -> None:
    """It has used so much of input and output, and cost so much; None: it did not run."""
    if used is None:
        lease.unused()
    else:
        lease.ended(*used, failed=False)


@pytest.mark.parametrize("seed", range(8))
def test_the_scripts_decide_as_the_counters_of_one_process(empty: "redis.Redis", seed: int) -> None:
    chance = random.Random(seed)
    clock = Clock()
    gateways = [Gateway(empty, clock, name) for name in ("one", "two")]
    # What one of the two has learnt, the other expects; so does the one process, which learns the same.
    estimates = Estimates()
    shared = [limiter_of(gateway.counters, estimates=estimates) for gateway in gateways]
    plain = limiter_of(plain_counters(clock), estimates=Estimates())
    running: list[tuple[Lease, Lease]] = []
    refusals = 0
    for _ in range(250):
        # Servers tell the time in whole microseconds.
        clock.move(round(clock.at + chance.choice([0, 0, 0.4, 3, 3, 9, 61 * (chance.random() < 0.1)]), 6))
        for gateway in gateways:
            # Else what it holds would stop to count.
            gateway.settle({})
        if running and chance.random() < 0.5:
            one, other = running.pop(chance.randrange(len(running)))
            used = chance.choice([(80, 10, 10**8), (100, 300, 4 * 10**8), None, (0, 0, None)])
            for lease in (one, other):
                end(lease, used)
            continue
        model, input, output = (
            chance.choice("mn"),
            chance.choice([5, 20, 300, 600]),
            chance.choice([1, 60, 400]),
        )
        found = asked(*chance.choice(shared), model, input, output)
        expected = asked(*plain, model, input, output)
        assert type(found) is type(expected)
        if isinstance(found, Lease) and isinstance(expected, Lease):
            running.append((found, expected))
            assert found.headers("openai") == expected.headers("openai")
        elif isinstance(found, Excess) and isinstance(expected, Excess):
            refusals += 1
            assert (found.limit.name, found.never, found.used) == (
                expected.limit.name,
                expected.never,
                expected.used,
            )
            assert found.wait == pytest.approx(expected.wait, abs=0.001)
    assert 20 < refusals < 200
    for one, other in running:
        end(one, (5, 5, 10))
        end(other, (5, 5, 10))
    # Nothing is held any more, and nothing that does not count is kept for good.
    for key in empty.keys("{sluicegate}:*"):
        assert b":concurrent:" not in key
        assert key == SESSIONS.encode() or empty.ttl(key) > 0


def test_a_gateway_that_is_not_heard_of_holds_nothing(empty: "redis.Redis") -> None:
    clock = Clock()
    dead, living = Gateway(empty, clock, "dead"), Gateway(empty, clock, "living")
    one, other = (limiter_of(gateway.counters, {"concurrent": 2}) for gateway in (dead, living))
    for _ in range(2):
        assert isinstance(asked(*one, "m", 1, 1), Lease)
    assert isinstance(asked(*other, "m", 1, 1), Excess)
    clock.move(clock.at + 14)
    assert living.settle({})[2] == 2
    assert isinstance(asked(*other, "m", 1, 1), Excess)
    clock.move(clock.at + 2)
    assert living.settle({})[2] == 1
    assert isinstance(asked(*other, "m", 1, 1), Lease)


def test_a_session_that_another_follows_does_nothing_any_more(empty: "redis.Redis") -> None:
    clock = Clock()
    gateway = Gateway(empty, clock, "first")
    limiter, caller = limiter_of(gateway.counters, {"concurrent": 9, "cost": "1/month"})
    asked(limiter, caller, "m", 1, 1)
    last = gateway.calls
    gateway.name = "second"
    [*_, before] = gateway.settle({}, follows="first")
    beat, number, marks = before.decode().split(" ")
    assert (float(beat), int(number), marks) == (clock.at, last, "t")
    # Opening it again, where the answer was lost, says so again.
    assert gateway.settle({}, follows="first")[3].decode() == f"closed {before.decode()}"
    gateway.name = "first"
    wanted = limiter.limits(caller, "m", None)
    demand = wanted.demand(1, 1, lambda input, output: 1)
    assert demand is not None
    ask = Ask(gateway.counters, wanted, demand)
    assert gateway.take(ask) == [b"gone"]
    assert gateway.settle({Place(ask.keys[0], "held", 0): 5}) == [b"gone"]


def test_a_session_that_is_opened_late_once_more_forgets_nothing(empty: "redis.Redis") -> None:
    """A first call to open it was given up, and has come to the server after the second one all the same."""
    clock = Clock()
    gateway = Gateway(empty, clock, "first")
    limiter, caller = limiter_of(gateway.counters, {"concurrent": 9, "cost": "1/month"})
    asked(limiter, caller, "m", 1, 1)
    known = empty.hgetall(SESSIONS)
    gateway.settle({}, follows="-")
    assert empty.hgetall(SESSIONS) == known
    gateway.name = "second"
    gateway.settle({}, follows="first")
    known = empty.hgetall(SESSIONS)
    gateway.name = "first"
    gateway.settle({}, follows="-")
    assert empty.hgetall(SESSIONS) == known, "it is closed for good"


def test_large_sums_are_exact(empty: "redis.Redis") -> None:
    """Costs are in 10⁻¹² USD: those of a large budget are beyond what a Lua number holds exactly."""
    clock = Clock()
    gateway = Gateway(empty, clock, "one")
    limits = limiter_of(gateway.counters, {"cost": "900000/month"})
    name = b""
    for _ in range(4):
        admitted = asked(*limits, "m", 1, 1)
        assert isinstance(admitted, Lease)
        name = max(key for key in empty.keys("*:cost:*") if isinstance(key, bytes))
        end(admitted, (1, 1, 10**15 + 1))
    assert empty.get(name) == str(4 * (10**15 + 1)).encode()
    empty.set(name, str(8 * 10**17 + 1), keepttl=True)
    admitted = asked(*limits, "m", 1, 1)
    assert isinstance(admitted, Lease)
    end(admitted, (1, 1, 3))
    assert empty.get(name) == str(8 * 10**17 + 4).encode()


def test_no_more_is_given_back_than_is_there(empty: "redis.Redis") -> None:
    clock = Clock()
    gateway = Gateway(empty, clock, "one")
    limits = limiter_of(gateway.counters, {"tokens": ["1000/minute", "1000/day"]})
    admitted = asked(*limits, "m", 100, 400)
    assert isinstance(admitted, Lease)
    for key in empty.keys("*:tokens:*"):
        # The server was started again meanwhile, and has lost what was taken.
        empty.delete(key)
    end(admitted, None)
    again = asked(*limits, "m", 500, 500)
    assert isinstance(again, Lease)
    assert isinstance(asked(*limits, "m", 1, 1), Excess)
