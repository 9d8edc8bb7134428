"""`python -m hostile`, from `make hostile`: each case, a table of what became of it, and the real bounds."""

import argparse
import asyncio
import contextlib
import datetime
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.postgres import database, server
from hostile.case import Case
from hostile.catalogue import GROUPS
from hostile.page import Row, page
from hostile.stand import MIB, HostileStand, Outcome, hostile_stand
from hostile.stores import STORES

MAX_DELAY = 0.1
"""Seconds beyond the pace that an honest stream may wait for its next chunk."""
TRIES = 3
"""A case whose delay is past the bound is played again: the machine's own stalls do not come thrice."""
CONTROL_SECONDS = 5.0


async def judge(stand: HostileStand, case: Case) -> Outcome:
    """One case with all bounds."""
    for _ in range(TRIES):
        outcome = await stand.play(case)
        if outcome.problems or outcome.honest.delay <= MAX_DELAY:
            break
    else:
        outcome.problems.append(f"an honest stream waited {outcome.honest.delay * 1000:.0f} ms")
    outcome.memory, bound = await stand.settle()
    if outcome.memory > bound:
        outcome.problems.append(f"memory stays at {outcome.memory // MIB} MiB, above {bound // MIB}")
    return outcome


async def play(groups: Mapping[str, Sequence[Case]], store: Mapping[str, Any] | None = None) -> list[Row]:
    """All of them at one gateway, each in its turn; the table is written meanwhile."""
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        async with hostile_stand(Path(directory), store=store) as stand:
            control = await stand.control(CONTROL_SECONDS)
            _line(
                "case", "outcome", "code", "gap ms", "own lag", "first ms", "peak MiB", "MiB", "s", "verdict"
            )
            _line(
                "(honest alone)", "", "", _ms(control.longest_gap), _ms(control.lag),
                _ms(control.longest_first), "", "", "", "",
            )  # fmt: skip
            clock = asyncio.get_running_loop().time
            for group, cases in groups.items():
                for case in cases:
                    began = clock()
                    outcome = await judge(stand, case)
                    rows.append(Row(group, outcome))
                    seen, honest = outcome.seen, outcome.honest
                    _line(
                        case.id, seen.label, seen.code or "", _ms(honest.longest_gap), _ms(honest.lag),
                        _ms(honest.longest_first), str(outcome.peak // MIB), str(outcome.memory // MIB),
                        f"{clock() - began:.0f}",
                        "; ".join(outcome.problems) or "ok",
                    )  # fmt: skip
    return rows


@contextlib.contextmanager
def postgresql() -> Iterator[Mapping[str, Any] | None]:
    """Settings of a store on a server; None where there is none."""
    with contextlib.ExitStack() as stack:
        try:
            url = stack.enter_context(database(stack.enter_context(server())))
        except pytest.skip.Exception as reason:
            sys.stdout.write(f"\nnot over PostgreSQL: {reason}\n")
            yield None
            return
        yield {"url": url}


def main(asked: Sequence[str], target: Path | None) -> int:
    """Zero if all went right."""

    def chosen(cases: Sequence[Case]) -> list[Case]:
        return [case for case in cases if not asked or any(part in case.id for part in asked)]

    groups = {group: found for group, cases in GROUPS.items() if (found := chosen(cases))}
    rows = asyncio.run(play(groups))
    if stores := chosen(STORES):
        with postgresql() as store:
            if store is not None:
                sys.stdout.write("\nstored responses, over PostgreSQL\n")
                rows += asyncio.run(play({"the same over PostgreSQL": stores}, store))
    wrong = sum(bool(row.outcome.problems) for row in rows)
    sys.stdout.write(f"\n{len(rows)} cases, {wrong} wrong\n")
    if target is not None:
        target.write_text(page(rows, datetime.datetime.now(datetime.UTC).date()))
    return 1 if wrong or not rows else 0


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f}"


def _line(name: str, seen: str, code: str, *figures: str) -> None:
    *numbers, verdict = figures
    cells = "".join(f"{number:>9}" for number in numbers)
    sys.stdout.write(f"{name:<62} {seen:<15} {code:<22}{cells}  {verdict}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="hostile")
    parser.add_argument("names", nargs="*", help="parts of the names of cases; left out: all of them")
    parser.add_argument("--page", type=Path, help="write the counts into this file")
    options = parser.parse_args()
    sys.exit(main(options.names, options.page))
