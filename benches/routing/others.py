"""How others choose, written after what their sources say they do.

All of them are given Envoy's outlier detection and three attempts, so that only the choosing differs.
"""

from bisect import bisect
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random

from benches.routing.servers import CACHED_BLOCKS
from benches.routing.simulation import Simulation
from benches.routing.traffic import Request

ATTEMPTS = 3

# Envoy: docs/root/intro/arch_overview/upstream/outlier.rst,
# api/envoy/config/cluster/v3/outlier_detection.proto
CONSECUTIVE = 5
EJECTION = 30.0
LONGEST_EJECTION = 300.0
MOST_EJECTED = 0.10


@dataclass(slots=True)
class Seen:
    """What a gateway knows of one server."""

    in_flight: int = 0
    in_a_row: int = 0
    ejections: int = 0
    until: float = 0.0
    times: list[float] = field(default_factory=list)
    asked: deque[float] = field(default_factory=deque)
    """When, within the last seconds."""


class Chooser:
    """One way to choose. `usable` are positions in `seen`."""

    def __init__(self, seen: list[Seen], random: Random, simulation: Simulation) -> None:
        self.seen = seen
        self.random = random
        self.simulation = simulation

    def choose(self, usable: Sequence[int], request: Request) -> int:
        raise NotImplementedError

    def ended(self, server: int, request: Request, first_token: float | None, failed: bool) -> None:
        """What came of it."""


class RandomChoice(Chooser):
    """Nothing is known."""

    def choose(self, usable: Sequence[int], request: Request) -> int:
        return self.random.choice(usable)


class EnvoyLeastRequest(Chooser):
    """Of two taken by chance the one with fewer requests (`choice_count: 2`).

    envoyproxy/envoy: source/extensions/load_balancing_policies/least_request
    """

    def choose(self, usable: Sequence[int], request: Request) -> int:
        one, other = self.random.choice(usable), self.random.choice(usable)
        return other if self.seen[other].in_flight < self.seen[one].in_flight else one


class LiteLLMLeastBusy(Chooser):
    """The first with the fewest requests. BerriAI/litellm: litellm/router_strategy/least_busy.py"""

    def choose(self, usable: Sequence[int], request: Request) -> int:
        return min(usable, key=lambda server: self.seen[server].in_flight)


class LiteLLMLowestLatency(Chooser):
    """The lowest mean of up to ten times to the first token, each divided by the tokens of the reply; none
    yet counts as 0. Once there are ten, the last one is replaced.

    BerriAI/litellm: litellm/router_strategy/lowest_latency.py
    """

    def choose(self, usable: Sequence[int], request: Request) -> int:
        means = [_mean(self.seen[server].times) for server in usable]
        lowest = min(means)
        return self.random.choice(
            [server for server, mean in zip(usable, means, strict=True) if mean == lowest]
        )

    def ended(self, server: int, request: Request, first_token: float | None, failed: bool) -> None:
        if first_token is None or failed:
            return
        times = self.seen[server].times
        del times[9:]
        times.append(first_token / request.output)


def _mean(times: Sequence[float]) -> float:
    return sum(times) / len(times) if times else 0.0


class SmgCacheAware(Chooser):
    """The server that was sent the longest beginning, where that is more than `cache_threshold` of the input;
    else the one with the smallest tree; and the one with the least to do where loads differ too much.

    lightseekorg/smg: model_gateway/src/policies/cache_aware.rs, defaults of mod.rs. The tree is of blocks,
    and as large as a server's cache."""

    THRESHOLD = 0.5
    ABSOLUTE = 32
    RELATIVE = 1.1

    def __init__(self, seen: list[Seen], random: Random, simulation: Simulation) -> None:
        super().__init__(seen, random, simulation)
        self._trees: list[OrderedDict[int, None]] = [OrderedDict() for _ in seen]

    def choose(self, usable: Sequence[int], request: Request) -> int:
        loads = [self.seen[server].in_flight for server in usable]
        if max(loads) - min(loads) > self.ABSOLUTE and max(loads) > self.RELATIVE * min(loads):
            chosen = usable[loads.index(min(loads))]
        else:
            known = [_known(self._trees[server], request.blocks) for server in usable]
            longest = max(known)
            if request.blocks and longest / len(request.blocks) > self.THRESHOLD:
                chosen = usable[known.index(longest)]
            else:
                chosen = min(usable, key=lambda server: len(self._trees[server]))
        tree = self._trees[chosen]
        for block in request.blocks:
            tree[block] = None
            tree.move_to_end(block)
        while len(tree) > CACHED_BLOCKS:
            tree.popitem(last=False)
        return chosen


def _known(tree: OrderedDict[int, None], blocks: Sequence[int]) -> int:
    for count, block in enumerate(blocks):
        if block not in tree:
            return count
    return len(blocks)


class StackSession(Chooser):
    """A ring of hashes, by the session. vllm-project/production-stack:
    src/vllm_router/routers/routing_logic.py"""

    def choose(self, usable: Sequence[int], request: Request) -> int:
        points = _ring(tuple(usable))
        place = bisect(points, (request.conversation.affinity, -1)) % len(points)
        return points[place][1]


_rings: dict[tuple[int, ...], list[tuple[int, int]]] = {}


def _ring(servers: tuple[int, ...]) -> list[tuple[int, int]]:
    if servers not in _rings:
        _rings[servers] = sorted(
            (int.from_bytes(blake2b(b"%d-%d" % (server, point), digest_size=8).digest()), server)
            for server in servers
            for point in range(160)
        )
    return _rings[servers]


class StackPrefix(Chooser):
    """One of the servers that were ever sent the longest beginning, by chance; nothing is forgotten.

    vllm-project/production-stack: src/vllm_router/routers/routing_logic.py,
    src/vllm_router/prefix/hashtrie.py"""

    def __init__(self, seen: list[Seen], random: Random, simulation: Simulation) -> None:
        super().__init__(seen, random, simulation)
        self._sent: dict[int, set[int]] = {}

    def choose(self, usable: Sequence[int], request: Request) -> int:
        found = set(usable)
        for block in request.blocks:
            longer = found & self._sent.get(block, set())
            if not longer:
                break
            found = longer
        chosen = self.random.choice(sorted(found))
        for block in request.blocks:
            self._sent.setdefault(block, set()).add(chosen)
        return chosen


class Others:
    """Attempts by one of these, with outlier detection."""

    def __init__(
        self,
        chooser: Callable[[list[Seen], Random, Simulation], Chooser],
        simulation: Simulation,
        servers: int,
        seed: int,
    ) -> None:
        self.simulation = simulation
        self.seen = [Seen() for _ in range(servers)]
        self.chooser = chooser(self.seen, Random(seed), simulation)

    def begin(self, request: Request) -> "Tries":
        return Tries(self, request)

    def usable(self, tried: Sequence[int]) -> list[int]:
        now = self.simulation.now
        usable = [server for server, seen in enumerate(self.seen) if now >= seen.until]
        untried = [server for server in usable if server not in tried]
        return untried or usable or [*range(len(self.seen))]

    def note(self, server: int, failed: bool) -> None:
        seen, now = self.seen[server], self.simulation.now
        seen.in_flight -= 1
        if not failed:
            seen.in_a_row = 0
            return
        seen.in_a_row += 1
        ejected = sum(now < other.until for other in self.seen)
        room = ejected == 0 or (ejected + 1) / len(self.seen) <= MOST_EJECTED
        if seen.in_a_row >= CONSECUTIVE and now >= seen.until and room:
            seen.ejections += 1
            seen.until = now + min(EJECTION * seen.ejections, LONGEST_EJECTION)
            seen.in_a_row = 0


class Tries:
    """One request's."""

    def __init__(self, others: Others, request: Request) -> None:
        self._others = others
        self._request = request
        self._tried: list[int] = []
        self._began = others.simulation.now
        self._first_token: float | None = None

    def next(self, failed: str | None) -> tuple[int, float] | None:
        others = self._others
        if failed is not None:
            self._note(failed=True)
        if len(self._tried) >= ATTEMPTS:
            return None
        self._began = others.simulation.now
        server = others.chooser.choose(others.usable(self._tried), self._request)
        others.seen[server].in_flight += 1
        self._tried.append(server)
        return server, 0.0

    def first_token(self) -> None:
        self._first_token = self._others.simulation.now - self._began

    def ended(self, failed: str | None) -> None:
        self._note(failed=failed is not None)

    def _note(self, *, failed: bool) -> None:
        server = self._tried[-1]
        self._others.note(server, failed)
        self._others.chooser.ended(server, self._request, self._first_token, failed)


OTHERS = {
    "random": RandomChoice,
    "Envoy least request": EnvoyLeastRequest,
    "LiteLLM least busy": LiteLLMLeastBusy,
    "LiteLLM lowest latency": LiteLLMLowestLatency,
    "smg cache-aware": SmgCacheAware,
    "production-stack session": StackSession,
    "production-stack prefix": StackPrefix,
}
