"""What retries may cost, and how long they wait."""

from random import Random

import pytest

from sluicegate.routing.retry import RetryBudget, backoff


def test_three_a_second_are_free_over_ten_seconds() -> None:
    budget = RetryBudget(0.2)
    assert sum(budget.withdraw(1000.0) for _ in range(100)) == 30
    assert not budget.withdraw(1009.9)
    assert sum(budget.withdraw(1010.0) for _ in range(100)) == 30


def test_five_requests_pay_for_one_try() -> None:
    budget = RetryBudget(0.2)
    for _ in range(500):
        budget.deposit(1000.0)
    assert sum(budget.withdraw(1001.0) for _ in range(1000)) == 130


def test_what_was_saved_is_forgotten_after_ten_seconds() -> None:
    budget = RetryBudget(1.0)
    for _ in range(500):
        budget.deposit(1000.0)
    assert sum(budget.withdraw(1010.0) for _ in range(1000)) == 30


def test_a_budget_of_nothing_leaves_what_is_free() -> None:
    budget = RetryBudget(0.0)
    for _ in range(500):
        budget.deposit(1000.0)
    assert sum(budget.withdraw(1000.0) for _ in range(1000)) == 30


@pytest.mark.parametrize("seed", range(10))
def test_a_budget_does_as_its_reference_does(seed: int) -> None:
    random = Random(seed)
    share = random.choice((0.0, 0.1, 0.2, 1.0, 3.0))
    budget = RetryBudget(share)
    happened: list[tuple[int, int]] = []
    now = random.random() * 1e6
    refused = 0
    for _ in range(5000):
        now += random.choice((0.0, 0.001, 0.1, 1.0, 15.0)) * random.random() ** 3
        second = int(now)
        happened = [(at, amount) for at, amount in happened if at > second - 10]
        if random.random() < 0.4:
            budget.deposit(now)
            happened.append((second, round(share * 1_000_000)))
        else:
            may = sum(amount for _, amount in happened) + 30_000_000 >= 1_000_000
            assert budget.withdraw(now) is may
            refused += not may
            if may:
                happened.append((second, -1_000_000))
    assert share >= 1 or refused


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 60, 5000])
def test_a_pause_is_anything_up_to_its_double(n: int) -> None:
    random = Random(n)
    most = min(2.0, 0.1 * 2.0 ** min(n, 30))
    pauses = [backoff(n, None, random) for _ in range(500)]
    assert 0.0 <= min(pauses) < most * 0.05
    assert most * 0.95 < max(pauses) <= most


def test_a_pause_is_not_below_what_is_stated() -> None:
    random = Random(1)
    assert all(1.5 <= backoff(0, 1.5, random) <= 2.0 for _ in range(100))
    assert backoff(0, 2.0, random) == 2.0


def test_the_bounds_are_the_models_own() -> None:
    assert backoff(0, None, Random(1), 0.0, 0.0) == 0.0
    assert max(backoff(9, None, Random(seed), 0.01, 0.5) for seed in range(100)) <= 0.5
