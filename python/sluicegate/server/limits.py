"""How many connections this machine lets us have."""

import resource

# Files, event loop, log, metrics, upstream pools at rest.
_RESERVED_FILES = 256
_FILES_WANTED = 1_048_576


def raise_open_files() -> int:
    """Raise the limit of open files as far as the system allows, for children as well; returns it."""
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


def connections_per_worker(open_files: int) -> int:
    """Clients one worker may hold: each may need a connection to an upstream as well.

    Beyond it new connections wait in the backlog. Without it the server would run out of descriptors, and its
    accept loop would spin.
    """
    return max(128, (open_files - _RESERVED_FILES) // 2)
