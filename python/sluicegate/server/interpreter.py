"""Settings of the interpreter that keep decisions about requests from waiting."""

import gc
import sys

# How long a thread that is busy keeps the GIL from the one that decides. By default it is 5 ms: measured,
# decisions then waited 2.9 ms (p50) for a busy event loop, and 0.6 ms with this.
SWITCH_SECONDS = 0.0005

# Cyclic garbage is rare here, and each request makes some hundred objects: by default they are searched for
# it every few requests.
GC_THRESHOLDS = (20_000, 50, 1_000)


def take_short_turns() -> None:
    """Let threads change places sooner than by default."""
    sys.setswitchinterval(SWITCH_SECONDS)


def settle() -> None:
    """Freeze the objects that exist now: the garbage collector does not examine them again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
