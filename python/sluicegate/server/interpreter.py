"""Settings of the interpreter: decisions about requests must not wait, and memory must come back."""

import contextlib
import ctypes
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


# Objects of this size and above get pages of their own, which go back to the system with them. By default
# glibc raises this up to 32 MiB, and what a few large responses took stays with the process for good.
LARGE_OBJECT_BYTES = 256 * 1024
# Of `malloc.h`, glibc's.
_M_MMAP_THRESHOLD = -3


def give_large_objects_back() -> None:
    """Let the memory of large objects go back to the system when they are dropped."""
    # Other C libraries have no such setting.
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_OBJECT_BYTES)


def settle() -> None:
    """Freeze the objects that exist now: the garbage collector does not examine them again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
