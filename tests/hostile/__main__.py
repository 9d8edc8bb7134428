"""`python -m hostile`, from `make hostile`: each case, a table of what became of it, and the real bounds."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hostile.case import Case
from hostile.catalogue import CASES
from hostile.stand import MIB, HostileStand, Outcome, hostile_stand

MAX_DELAY = 0.1
"""Seconds beyond the pace that an honest stream may wait for its next chunk."""
TRIES = 3
"""A case whose delay is past the bound is played again: the machine's own stalls do not come thrice."""
CONTROL_SECONDS = 5.0


async def play(stand: HostileStand, case: Case) -> Outcome:
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


async def main(cases: Sequence[Case]) -> int:
    """How many cases went wrong."""
    wrong = 0
    with tempfile.TemporaryDirectory() as directory:
        async with hostile_stand(Path(directory)) as stand:
            control = await stand.control(CONTROL_SECONDS)
            _row("case", "outcome", "code", "gap ms", "own lag ms", "MiB", "verdict")
            _row("(honest alone)", "", "", _ms(control.longest_gap), _ms(control.lag), "", "")
            for case in cases:
                outcome = await play(stand, case)
                wrong += bool(outcome.problems)
                _row(
                    case.id, outcome.seen.label, outcome.seen.code or "",
                    _ms(outcome.honest.longest_gap), _ms(outcome.honest.lag), str(outcome.memory // MIB),
                    "; ".join(outcome.problems) or "ok",
                )  # fmt: skip
    sys.stdout.write(f"\n{len(cases)} cases, {wrong} wrong\n")
    return wrong


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f}"


def _row(name: str, seen: str, code: str, gap: str, lag: str, memory: str, verdict: str) -> None:
    sys.stdout.write(f"{name:<56} {seen:<15} {code:<22} {gap:>6} {lag:>10} {memory:>5}  {verdict}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="hostile")
    parser.add_argument("names", nargs="*", help="parts of the names of cases; left out: all of them")
    asked = parser.parse_args().names
    chosen = [case for case in CASES if not asked or any(part in case.id for part in asked)]
    sys.exit(1 if asyncio.run(main(chosen)) else 0)
