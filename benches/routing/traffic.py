"""What clients do: conversations that begin alike, grow with each turn, and wait for their replies."""

import hashlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from benches.routing.servers import BLOCK
from benches.routing.simulation import Simulation

APPLICATIONS = 40
"""Each with a beginning that all of its conversations share."""
TURNS = 5
THINKING = 15.0
LONG_SHARE = 0.04


@dataclass(slots=True)
class Conversation:
    """One of an application's."""

    number: int
    shared: list[int]
    tokens: int
    turns: int
    affinity: int
    random: Random
    """Its own, so that it is the same whatever happens to others."""
    own: list[int] = field(default_factory=list)

    def grow(self, tokens: int) -> None:
        self.tokens += tokens
        while len(self.shared) + len(self.own) < self.tokens // BLOCK:
            self.own.append((self.number << 20) + len(self.own))


@dataclass(slots=True)
class Request:
    """A turn. `blocks` and `tokens` are the whole input's."""

    conversation: Conversation
    blocks: list[int]
    tokens: int
    output: int


class Traffic:
    """New conversations come at `rate` a second for `seconds`; a turn follows when the one before has been
    answered, and read.
    """

    def __init__(
        self,
        simulation: Simulation,
        random: Random,
        rate: float,
        seconds: float,
        ask: Callable[[Request], None],
    ) -> None:
        self._simulation = simulation
        self._random = random
        self._rate = rate
        self._seconds = seconds
        self._ask = ask
        self._numbers = itertools.count(1)
        self._applications = [*self._make_applications()]
        # Few applications have most of the conversations.
        self._shares = [1.0 / (place + 1) for place in range(APPLICATIONS)]
        simulation.after(0.0, self._begin)

    def _make_applications(self) -> Iterator[tuple[list[int], int]]:
        for place in range(APPLICATIONS):
            tokens = self._random.randrange(300, 3_000)
            yield [-((place << 10) + block) - 1 for block in range(tokens // BLOCK)], tokens

    def _begin(self) -> None:
        random = self._random
        number = next(self._numbers)
        [(shared, tokens)] = random.choices(self._applications, self._shares)
        turns = 1 + int(random.expovariate(1.0 / (TURNS - 1)))
        affinity = int.from_bytes(hashlib.blake2b(b"%d" % number, digest_size=8).digest())
        own = Random(random.getrandbits(64))
        conversation = Conversation(number, shared, tokens, turns, affinity, own)
        self._turn(conversation)
        if self._simulation.now < self._seconds:
            self._simulation.after(random.expovariate(self._rate), self._begin)

    def _turn(self, conversation: Conversation) -> None:
        random = conversation.random
        long = random.random() < LONG_SHARE
        said = (
            random.randrange(4_000, 16_000) if long else min(4_000, int(random.lognormvariate(5.0, 1.0)) + 5)
        )
        conversation.grow(said)
        output = min(2_000, int(random.lognormvariate(5.2, 0.8)) + 5)
        blocks = conversation.shared + conversation.own
        self._ask(Request(conversation, blocks, conversation.tokens, output))

    def answered(self, request: Request) -> None:
        """The reply is there, or there is none: the next turn follows, if any."""
        conversation = request.conversation
        conversation.turns -= 1
        if conversation.turns > 0 and self._simulation.now < self._seconds:
            conversation.grow(request.output)
            pause = conversation.random.expovariate(1.0 / THINKING)
            self._simulation.after(pause, self._turn, conversation)
