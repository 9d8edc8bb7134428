"""How many tokens a request will use, learnt from those before it."""

from collections import OrderedDict
from typing import TypeVar

BYTES_A_TOKEN = 4
"""Before anything has been learnt of a model: English text."""

FIRST_OUTPUT = 1024
"""Output tokens of a request to a model of which nothing is known."""

# The weight of the newest request in a moving average.
_WEIGHT = 0.05
_MOST_MEANS = 10_000

_Key = TypeVar("_Key")


class Estimates:
    """Moving averages by model, and of output by caller and model. For the thread that decides."""

    def __init__(self) -> None:
        self._ratio: OrderedDict[str, float] = OrderedDict()
        self._output: OrderedDict[tuple[str, str], float] = OrderedDict()

    def input(self, model: str, rough: int) -> int:
        """Input tokens, where four bytes a token would make `rough`."""
        return max(1, round(rough * self._ratio.get(model, 1.0)))

    def output(self, caller: str, model: str, bound: int | None) -> int:
        """Output tokens: twice what this caller's requests to the model have on average, or all callers', but
        never more than `bound`, the client's own.

        Clients ask for far more than they use: their own bound alone would keep most of a limit unused.
        """
        mean = self._output.get((caller, model)) or self._output.get(("", model))
        guess = FIRST_OUTPUT if mean is None else max(1, round(2 * mean))
        return guess if bound is None else min(guess, bound)

    def learn(self, caller: str, model: str, rough: int, input: int | None, output: int | None) -> None:
        """A request with these estimates has used this; None: not known."""
        if input is not None and rough > 0:
            _mix(self._ratio, model, input / rough, 1.0)
        if output is not None:
            _mix(self._output, (caller, model), float(output), None)
            _mix(self._output, ("", model), float(output), None)


def _mix(means: OrderedDict[_Key, float], key: _Key, sample: float, first: float | None) -> None:
    mean = means.get(key, first)
    means[key] = sample if mean is None else mean + _WEIGHT * (sample - mean)
    means.move_to_end(key)
    if len(means) > _MOST_MEANS:
        means.popitem(last=False)
