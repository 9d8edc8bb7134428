"""A quick selection of the hostile cases; `make hostile` plays all of them, and judges the times."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from hostile.case import Case
from hostile.catalogue import CASES
from hostile.stand import HostileStand, hostile_stand

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUICK = [case for case in CASES if case.quick]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HostileStand]:
    async with hostile_stand(tmp_path_factory.mktemp("hostile")) as stand:
        await stand.control(1.0)
        yield stand


async def test_the_cases_have_names_of_their_own() -> None:
    assert len({case.id for case in CASES}) == len(CASES) >= 60
    assert len(QUICK) >= 8


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.id)
async def test_a_hostile_peer_harms_nobody(stand: HostileStand, case: Case) -> None:
    assert (await stand.play(case)).problems == []


async def test_memory_is_given_back(stand: HostileStand) -> None:
    memory, bound = await stand.settle()
    assert memory <= bound
