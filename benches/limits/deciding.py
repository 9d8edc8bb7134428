"""What limits cost the thread that decides, for each request: `python -m benches.limits.deciding`.

A request is held against four limits of its caller, gets the headers of what is left, and is settled. Times
are CPU time of the thread, so other work on the machine counts less than it would by the clock: the median of
several runs.
"""

import hashlib
import statistics
import time
from collections.abc import Callable
from datetime import UTC
from typing import Any

from sluicegate._core import BUILD, Estimates, Lease
from sluicegate.admission import Caller, Counters, Keyring, Limiter
from sluicegate.config import load_data
from sluicegate.gateway.admission import Admission
from sluicegate.gateway.notices import Notices
from sluicegate.gateway.prices import Prices
from sluicegate.pricing import policy_for
from sluicegate.routing import Model, ModelTable
from sluicegate.telemetry import Log

REQUESTS = 20_000
TIMES = 9
UNDER_WAY = 64

FOUR = {"requests": "1G/minute", "tokens": "100G/minute", "concurrent": 100_000, "cost": "1M/day"}
CONFIGURATION = {
    "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1"}},
    "models": {"m": "local"},
    "prices": {"m": {"input": 1, "output": 5}},
    "limits": {"four": FOUR},
    "keys": [{"name": "a", "key": "sk-a", "limits": "four"}],
}
USERS = {"users": {"header": "x-user", "limits": "four"}}


class Asked:
    """The facts of a request."""

    endpoint = "chat_completions"
    stream = True
    size = 400
    max_output_tokens = 64
    input_tokens_estimate = 20
    affinity = user = None

    def __init__(self, user: str) -> None:
        self.headers = {"x-user": user}


def admitting(**more: Any) -> Callable[[Asked], Lease]:
    """Admits a request of the only caller."""
    config = load_data(CONFIGURATION | more, {})
    table = ModelTable(config)
    prices = Prices(policy_for(config), "openrouter", Notices(Log(level="error")))
    keys = Keyring(config)
    admission = Admission(keys, table, Limiter(config, Counters(UTC), Estimates()), prices)
    caller = admission.identify(hashlib.sha256(b"sk-a").digest(), True)
    assert isinstance(caller, Caller)
    model = admission.model(caller, "m")
    assert isinstance(model, Model)

    def admitted(asked: Asked) -> Lease:
        lease = admission.admit(caller, model, asked)
        assert isinstance(lease, Lease)
        return lease

    return admitted


def served(admitted: Callable[[Asked], Lease], users: int) -> float:
    """Microseconds of a request, with others under way."""
    asked = [Asked(f"user-{number}") for number in range(users)]
    running: list[Lease] = []
    began = time.thread_time()
    for number in range(REQUESTS):
        lease = admitted(asked[number % users])
        lease.headers("openai")
        running.append(lease)
        if len(running) > UNDER_WAY:
            running.pop(0).ended(18, 40, 218 * 10**6, failed=False)
    return (time.thread_time() - began) / REQUESTS * 1e6


def main() -> None:
    print(f"build: {BUILD}")
    for name, more, users in (
        ("four limits", {}, 1),
        ("four limits, and four of each of 1,000 users", USERS, 1000),
    ):
        admitted = admitting(**more)
        served(admitted, users)
        took = statistics.median(served(admitted, users) for _ in range(TIMES))
        print(f"{name}: {took:.2f} us a request")


if __name__ == "__main__":
    main()
