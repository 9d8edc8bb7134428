"""The policies: whom they choose, how often, and what they cost nobody else."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from math import ceil, sqrt
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fakes.facts import Facts
from sluicegate.config import PolicyConfig, load_data
from sluicegate.errors import ConfigurationError
from sluicegate.routing import Deployment, Fleet, ModelTable, Policy
from sluicegate.routing.choosing import make_policy
from sluicegate.routing.deployment import SIZES

REQUESTS = 20_000


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def deployments(weights: Sequence[float] = (1, 1, 1, 1, 1)) -> tuple[Deployment, ...]:
    config = load_data(
        {
            "upstreams": {
                f"u{place}": {"base_url": "http://127.0.0.1:1/v1"} for place in range(len(weights))
            },
            "models": {
                "m": [{"upstream": f"u{place}", "weight": weight} for place, weight in enumerate(weights)]
            },
        }
    )
    model = ModelTable(config, fleet=Fleet(Clock())).get("m")
    assert model is not None
    return model.deployments


def policy(said: Any, clock: Any = None, seed: int = 7) -> Policy:
    return make_policy(PolicyConfig.model_validate(said), clock or Clock(), Random(seed))


def firsts(chosen: Policy, candidates: Sequence[Deployment], count: int = REQUESTS) -> Counter[str]:
    return Counter(chosen.rank(Facts(), candidates)[0].upstream for _ in range(count))


def conversation(number: int) -> int:
    return int.from_bytes(hashlib.blake2b(b"%d" % number, digest_size=8).digest())


def test_each_is_taken_as_often_as_its_weight_says() -> None:
    weights = (1, 2.5, 0.5, 6)
    counts = firsts(policy("weighted"), deployments(weights))
    for place, weight in enumerate(weights):
        expected = REQUESTS * weight / sum(weights)
        assert abs(counts[f"u{place}"] - expected) < 4 * sqrt(expected)


def test_the_weights_are_those_of_who_may_be_used_now() -> None:
    chosen, all = policy("weighted"), deployments((1, 2, 97))
    firsts(chosen, all, 10)
    counts = firsts(chosen, all[:2])
    assert set(counts) == {"u0", "u1"}
    assert abs(counts["u1"] / counts["u0"] - 2) < 0.2


def test_in_turn_means_each_as_often_and_not_all_machines_from_the_first() -> None:
    candidates = deployments()
    assert set(firsts(policy("round_robin"), candidates, 100).values()) == {20}
    begins = {policy("round_robin", seed=seed).rank(Facts(), candidates)[0].upstream for seed in range(50)}
    assert len(begins) == 5


# === who has less to do ===


@pytest.mark.parametrize("by", ["streams", "tokens"])
def test_of_few_the_least_busy_is_taken_and_of_equals_each(by: str) -> None:
    candidates = deployments()
    for place, deployment in enumerate(candidates):
        # The one measure grows as the other one falls; the last two are alike.
        measures = (max(place, 1), 5 - place)
        deployment.load.streams, deployment.load.tokens = measures if by == "streams" else measures[::-1]
    counts = firsts(policy({"least_busy": {"by": by}}), candidates)
    assert set(counts) == {"u0", "u1"}
    assert counts["u1"] > 1_000


def test_of_many_the_least_busy_of_four_is_taken() -> None:
    candidates = deployments((1,) * 100)
    for place, deployment in enumerate(candidates):
        deployment.load.streams = place
    counts = firsts(policy("least_busy"), candidates)
    for busier in (10, 50, 90):
        expected = REQUESTS * (1 - busier / 100) ** 4
        found = sum(counts[f"u{place}"] for place in range(busier, 100))
        assert abs(found - expected) < 4 * sqrt(expected) + 1


def test_who_has_more_weight_may_be_busier() -> None:
    small, large = deployments((1, 4))
    small.load.streams, large.load.streams = 1, 3
    assert set(firsts(policy("least_busy"), (small, large), 50)) == {"u1"}
    large.load.streams = 5
    assert set(firsts(policy("least_busy"), (small, large), 50)) == {"u0"}


def test_streams_are_spread_evenly() -> None:
    chosen, candidates, random = policy("least_busy"), deployments((1,) * 16), Random(1)
    under_way: list[Deployment] = []
    most = 0
    for _ in range(REQUESTS):
        taken = chosen.rank(Facts(), candidates)[0]
        taken.load.streams += 1
        under_way.append(taken)
        if len(under_way) > 160:
            under_way.pop(random.randrange(len(under_way))).load.streams -= 1
            most = max(most, max(deployment.load.streams for deployment in candidates))
    # By chance alone it would be 20 and more.
    assert most <= 13


# === time to the first token ===


def test_the_quicker_one_is_taken_until_it_has_much_more_to_do() -> None:
    quick, slow = candidates = deployments((1, 1))
    chosen = policy("latency")
    quick.load.served(100, 0.2, 0.0)
    slow.load.served(100, 0.5, 0.0)
    assert set(firsts(chosen, candidates, 50)) == {"u0"}
    quick.load.streams = 2
    assert set(firsts(chosen, candidates, 50)) == {"u1"}


def test_streams_in_flight_are_in_the_ratio_of_speeds() -> None:
    candidates = deployments((1,) * 8)
    times = (0.1, 0.1, 0.2, 0.2, 0.2, 0.4, 0.4, 0.8)
    for deployment, time in zip(candidates, times, strict=True):
        deployment.load.served(100, time, 0.0)
    chosen, random = policy("latency"), Random(1)
    under_way: list[Deployment] = []
    for _ in range(REQUESTS):
        taken = chosen.rank(Facts(), candidates)[0]
        taken.load.streams += 1
        under_way.append(taken)
        if len(under_way) > 700:
            under_way.pop(random.randrange(len(under_way))).load.streams -= 1
    # What each would have one wait is alike: 700 over the sum of 1 / time.
    waits = [deployment.load.streams * time for deployment, time in zip(candidates, times, strict=True)]
    assert waits == pytest.approx([700 / sum(1 / time for time in times)] * 8, rel=0.2)


def test_inputs_are_compared_with_those_of_their_size() -> None:
    one, other = candidates = deployments((1, 1))
    one.load.served(100, 0.2, 0.0)
    other.load.served(100, 0.5, 0.0)
    one.load.served(SIZES[1], 9.0, 0.0)
    other.load.served(SIZES[1], 6.0, 0.0)
    chosen = policy("latency")
    assert chosen.rank(Facts(size=400), candidates)[0] is one
    assert chosen.rank(Facts(size=4 * SIZES[1]), candidates)[0] is other


def test_of_who_has_shown_nothing_yet_one_request_is_enough() -> None:
    known, unknown = candidates = deployments((1, 1))
    chosen = policy("latency")
    known.load.served(100, 0.5, 0.0)
    known.load.streams = 5
    assert set(firsts(chosen, candidates, 50)) == {"u1"}
    unknown.load.streams = 1
    assert set(firsts(chosen, candidates, 50)) == {"u0"}


def test_who_was_slow_is_tried_again_after_a_while() -> None:
    quick, slow = candidates = deployments((1, 1))
    clock = Clock()
    chosen = policy("latency", clock)
    quick.load.served(100, 0.2, 0.0)
    slow.load.served(100, 4.0, 0.0)
    quick.load.streams = 3
    assert set(firsts(chosen, candidates, 50)) == {"u0"}
    clock.now = 90.0
    quick.load.served(100, 0.2, clock.now)
    assert set(firsts(chosen, candidates, 50)) == {"u1"}


# === affinity ===


def test_a_conversation_stays_and_conversations_are_spread() -> None:
    candidates = deployments((1, 1, 2))
    chosen, machine = policy("affinity"), policy("affinity", seed=99)
    counts: Counter[str] = Counter()
    for number in range(REQUESTS):
        facts = Facts(conversation(number))
        taken = chosen.rank(facts, candidates)[0]
        assert machine.rank(facts, candidates)[0] is taken
        counts[taken.upstream] += 1
    for place, share in enumerate((0.25, 0.25, 0.5)):
        assert abs(counts[f"u{place}"] - REQUESTS * share) < 4 * sqrt(REQUESTS * share)


def test_a_lost_deployment_moves_only_its_own_conversations() -> None:
    candidates = deployments()
    left = candidates[:2] + candidates[3:]
    chosen, without = policy("affinity"), policy("affinity")
    moved = 0
    for number in range(2_000):
        facts = Facts(conversation(number))
        before, after = chosen.rank(facts, candidates)[0], without.rank(facts, left)[0]
        assert before is after or before is candidates[2]
        moved += before is not after
    assert moved


def test_nobody_has_more_than_the_bound_of_the_mean() -> None:
    candidates, chosen = deployments((1, 1, 1, 3)), policy({"affinity": {"load_factor": 1.5}})
    hot = conversation(1)
    for count in range(1, 400):
        # All of one conversation, which would go to one deployment.
        taken = chosen.rank(Facts(hot), candidates)[0]
        taken.load.streams += 1
        for deployment in candidates:
            assert deployment.load.streams <= ceil(1.5 * count * deployment.weight / 6)
    assert sum(deployment.load.streams > 0 for deployment in candidates) >= 2


def test_a_header_names_the_conversation() -> None:
    candidates, chosen = deployments(), policy({"affinity": {"header": "X-Session"}})
    by_header = {
        chosen.rank(Facts(conversation(number), x_session="s"), candidates)[0].name for number in range(20)
    }
    assert len(by_header) == 1
    without = {chosen.rank(Facts(conversation(number)), candidates)[0].name for number in range(20)}
    assert len(without) > 1


def test_a_request_of_no_conversation_goes_to_who_has_less_to_do() -> None:
    candidates, chosen = deployments((1, 1)), policy("affinity")
    candidates[0].load.streams = 1
    assert set(firsts(chosen, candidates, 50)) == {"u1"}


# === of one's own ===

OWN = """
class Last:
    def __init__(self, keep: int = 0) -> None:
        if keep < 0:
            raise RuntimeError("nothing is kept")
        self.keep = keep

    def rank(self, facts, candidates):
        return candidates[::-1]
"""


def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Any, name: str) -> Any:
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    return {
        "upstreams": {place: {"base_url": "http://127.0.0.1:1/v1"} for place in ("a", "b")},
        "models": {"m": {"routes": ["a", "b"], "policy": said}},
    }


def test_a_class_in_a_file_is_a_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"own_ranks:Last": {"keep": 3}}
    table = ModelTable(load_data(config(tmp_path, monkeypatch, said, "own_ranks")))
    model = table.get("m")
    assert model is not None
    own: Any = model.group.policy
    assert (type(own).__name__, own.keep) == ("Last", 3)
    assert own.rank(Facts(), model.deployments)[0].upstream == "b"


def test_options_that_a_class_does_not_take_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"own_options:Last": {"lose": 3}}
    with pytest.raises(ConfigurationError, match=r"models.m.policy.own: .*argument 'lose'"):
        load_data(config(tmp_path, monkeypatch, said, "own_options"))


def test_a_class_that_cannot_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_data(config(tmp_path, monkeypatch, {"own_making:Last": {"keep": -1}}, "own_making"))
    with pytest.raises(ConfigurationError, match=r"models.m.policy: cannot be made: RuntimeError"):
        ModelTable(loaded)


def test_a_policy_stays_while_the_configuration_says_the_same_of_it() -> None:
    def loaded(said: str, *names: str) -> Any:
        return load_data(
            {
                "upstreams": {name: {"base_url": "http://127.0.0.1:1/v1"} for name in names},
                "models": {"m": {"routes": [*names], "policy": said}},
            }
        )

    first = ModelTable(loaded("round_robin", "a", "b"))
    same = ModelTable(loaded("round_robin", "a", "b", "c"), first)
    other = ModelTable(loaded("weighted", "a", "b", "c"), same)
    policies = [table.get("m").group.policy for table in (first, same, other)]  # type: ignore[union-attr]
    assert policies[0] is policies[1]
    assert policies[1] is not policies[2]
