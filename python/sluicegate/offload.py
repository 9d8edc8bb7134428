"""Work on large texts, on threads of its own: the event loop goes on meanwhile.

The core works on them without the GIL; but whoever calls it waits, and where that is the event loop,
everybody does.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

LARGE_BYTES = 256 * 1024
"""Work on more than this is done elsewhere. The core reads some hundred megabytes a second: what stays takes
about a millisecond. The engines have the same bound.
"""

# Few, since they take the engines' cores; more than one, so that one large text need not wait for another.
_THREADS = ThreadPoolExecutor(2, thread_name_prefix="sluicegate-large-texts")

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


async def offload(size: int, work: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
    """What `work` gives: called here, or, where it is on more than `LARGE_BYTES`, on a thread that may take
    its time. Where whoever waits is cancelled, the work goes on to its end, and what it gives is dropped.
    """
    if size <= LARGE_BYTES:
        return work(*arguments)
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work, *arguments)
