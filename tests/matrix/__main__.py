"""`python -m matrix`, from `make matrix`: each cell, what is wrong in it, and a table."""

import argparse
import asyncio
import datetime
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from matrix.cell import CELLS
from matrix.page import page, table
from matrix.play import Outcome, matrix_stand, play_all


async def play(asked: Sequence[str]) -> list[Outcome]:
    """The cells whose names have all parts in `asked`."""
    cells = [cell for cell in CELLS if all(part in cell.id for part in asked)]
    with tempfile.TemporaryDirectory() as directory:
        async with matrix_stand(Path(directory)) as stand:
            return await play_all(stand, cells)


def main(asked: Sequence[str], target: Path | None) -> int:
    """Zero if all went right."""
    outcomes = asyncio.run(play(asked))
    wrong = [outcome for outcome in outcomes if outcome.problems]
    for outcome in wrong:
        sys.stdout.write(f"{outcome.cell.id}\n    {'; '.join(outcome.problems)}\n")
    sys.stdout.write("\n".join(["", *table(outcomes), "", f"{len(outcomes)} cells, {len(wrong)} wrong", ""]))
    if target is not None:
        target.write_text(page(outcomes, datetime.datetime.now(datetime.UTC).date()))
    return 1 if wrong or not outcomes else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="matrix")
    parser.add_argument("names", nargs="*", help="parts of the names of cells; left out: all of them")
    parser.add_argument("--page", type=Path, help="write the table into this file")
    options = parser.parse_args()
    sys.exit(main(options.names, options.page))
