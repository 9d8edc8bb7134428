"""The bytes that are measured: made from the seeds of `benches/core`, in its shapes."""

from collections.abc import Callable
from functools import cache

PERIOD = 1 << 20
"""Bytes that are made, at least."""
PERIODS = 64
"""How often they are read: what comes from a socket is in the processor's cache, and so are these."""

READS = {"16 KiB": 16 << 10, "64 KiB": 64 << 10}

COST = b'"cost":0.00123,"cost_details":{"input_cost":0.001,"output_cost":0.00023}'
"""The members that the core's own bench adds."""

_MASK = (1 << 64) - 1
_WORDS = [
    " the",
    " of",
    " stream",
    " gateway",
    " token",
    ".",
    ",",
    " is",
    " a",
    "\\n\\n",
    ' \\"quoted\\"',
    " größer",
    " 你好",
    " 🙂",
    " therefore",
    " 42",
]


class Random:
    """SplitMix64, as `sluicegate_bench_core::Random`."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def below(self, bound: int) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return (mixed ^ (mixed >> 31)) % bound


_HEAD = (
    '{"id":"chatcmpl-0000000000005eed","object":"chat.completion.chunk",'
    '"created":1761900000,"model":"llama-3.1-8b"'
)


def _chat_chunk(random: Random) -> str:
    words = "".join(_WORDS[random.below(len(_WORDS))] for _ in range(1 + random.below(4)))
    fingerprint = ',"system_fingerprint":"fp_44709d6fcb","logprobs":null' if random.below(2) == 0 else ""
    choice = f'{{"index":0,"delta":{{"content":"{words}"}},"finish_reason":null}}'
    return f'{_HEAD}{fingerprint},"choices":[{choice}]'


def _stream(seed: int, event: Callable[[Random], str]) -> bytes:
    random = Random(seed)
    stream = bytearray()
    while len(stream) < PERIOD:
        stream += f"data: {event(random)}\n\n".encode()
    return bytes(stream)


@cache
def chat_chunks() -> bytes:
    """Chunks of 150 to 300 bytes with `usage: null`, as OpenAI sends them where usage is asked for."""
    return _stream(1, lambda random: _chat_chunk(random) + ',"usage":null}')


@cache
def running_totals() -> bytes:
    """Each chunk has the usage so far: read in each, and never final."""
    totals = iter(range(1, PERIOD))

    def event(random: Random) -> str:
        total = next(totals)
        usage = f'{{"prompt_tokens":17,"total_tokens":{total + 17},"completion_tokens":{total}}}'
        return f'{_chat_chunk(random)},"usage":{usage}}}'

    return _stream(1, event)


@cache
def usage_chunks() -> bytes:
    """Each chunk has final usage: read, priced and spliced in each."""

    def event(random: Random) -> str:
        prompt, completion = random.below(9999), random.below(999)
        return (
            f'{_HEAD},"choices":[],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion},'
            f'"total_tokens":{prompt + completion},"prompt_tokens_details":{{"cached_tokens":0}}}}}}'
        )

    return _stream(6, event)


def reads(stream: bytes, size: int) -> list[bytes]:
    """`stream` again and again, in reads of `size` bytes, cut without regard to events."""
    return [stream[start : start + size] for start in range(0, len(stream), size)] * PERIODS
