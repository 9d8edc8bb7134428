"""`python -m soak`, from `make soak`: a long one, and its figures as JSON."""

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

from soak import hostile
from soak.picture import svg
from soak.soak import MIB, soak

# Of memory, in the second half of a long run: what an allocator may still take.
MAX_MIB_A_MINUTE = 0.5


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--patience", type=float, default=15.0, help="the upstream's deadlines, in seconds")
    parser.add_argument("--hostile", action="store_true", help="honest streams beside the cases of hostile")
    parser.add_argument("--picture", type=Path, help="with --hostile: write a picture of it into this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        if options.hostile:
            return among_hostile(options.seconds, Path(directory), options.seed, options.picture)
        running = soak(
            options.seconds, options.streams, Path(directory), patience=options.patience, seed=options.seed
        )
        record = asyncio.run(running)
    sys.stdout.write(json.dumps(record.summary(), indent=2) + "\n")
    grows = record.slope(options.seconds / 2) * 60 > MAX_MIB_A_MINUTE * MIB
    return 1 if record.problems or grows else 0


def among_hostile(seconds: float, directory: Path, seed: int, picture: Path | None) -> int:
    record = asyncio.run(hostile.soak(seconds, directory, seed=seed))
    summary = record.summary()
    if picture is not None:
        picture.with_suffix(".json").write_text(json.dumps(summary) + "\n")
        picture.write_text(svg(summary))
    del summary["samples"]
    sys.stdout.write(json.dumps(summary, indent=2) + "\n")
    return 1 if record.problems else 0


if __name__ == "__main__":
    sys.exit(main())
