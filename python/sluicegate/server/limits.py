"""How many connections this machine lets us have."""

import resource

# Files, event loop, log, upstream pools at rest.
_RESERVED_FILES = 256
_FILES_WANTED = 1_048_576
# A client has a connection of its own, and behind it either one to an upstream or both ends of one to the
# application.
_FILES_EACH = 3
_FEWEST = 128


def raise_open_files() -> int:
    """Raise the limit of open files as far as the system allows; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, _FILES_WANTED)
    if soft == resource.RLIM_INFINITY:
        return wanted
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):
            return soft
        return wanted
    return soft


def connections_for(open_files: int) -> int:
    """How many clients may be connected at once with so many open files.

    Beyond it new connections wait in the backlog. Without it the process would run out of descriptors, and
    its accept loops would spin.
    """
    return max(_FEWEST, (open_files - _RESERVED_FILES) // _FILES_EACH)
