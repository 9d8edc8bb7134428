"""Gateways over scripted fronts."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fakes.gateway import Harness, Start


@pytest.fixture(params=[True, False], ids=["thread", "loop"])
async def start_gateway(request: pytest.FixtureRequest) -> AsyncIterator[Start]:
    """`start_gateway(script, **changes of the configuration)`, wherever it is decided. See `Harness`."""
    harnesses: list[Harness] = []

    def begin(*arguments: Any, **options: Any) -> Harness:
        harnesses.append(Harness(*arguments, thread=request.param, **options))
        return harnesses[-1]

    yield begin
    for harness in harnesses:
        await harness.lines()
