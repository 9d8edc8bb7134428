"""Every cell of the matrix. They are played at once, by one gateway, and judged one by one."""

from collections.abc import Mapping

import pytest
import pytest_asyncio

from matrix.cell import CELLS, Cell
from matrix.play import matrix_stand, play_all

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def problems(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[str]]:
    """By the cell's name."""
    async with matrix_stand(tmp_path_factory.mktemp("matrix")) as stand:
        return {outcome.cell.id: outcome.problems for outcome in await play_all(stand, CELLS)}


async def test_each_pair_meets_in_each_form_with_each_reply() -> None:
    assert len({cell.id for cell in CELLS}) == 3 * 3 * 2 * 2 * 10


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.id)
async def test_a_client_gets_what_its_api_promises(problems: Mapping[str, list[str]], cell: Cell) -> None:
    assert problems[cell.id] == []
