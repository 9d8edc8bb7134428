"""`python -m soak`, from `make soak`: a long one, and its figures as JSON."""

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

from soak.soak import MIB, soak

# Of memory, in the second half of a long run: what an allocator may still take.
MAX_MIB_A_MINUTE = 0.5


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--patience", type=float, default=15.0, help="the upstream's deadlines, in seconds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        running = soak(
            options.seconds, options.streams, Path(directory), patience=options.patience, seed=options.seed
        )
        record = asyncio.run(running)
    sys.stdout.write(json.dumps(record.summary(), indent=2) + "\n")
    grows = record.slope(options.seconds / 2) * 60 > MAX_MIB_A_MINUTE * MIB
    return 1 if record.problems or grows else 0


if __name__ == "__main__":
    sys.exit(main())
