"""What a process tree has used: CPU time, and memory as its proportional share."""

import os
import time
from collections import defaultdict
from pathlib import Path

_PROC = Path("/proc")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat after the command's closing parenthesis: proc(5) numbers them 4, 6, 16 and 17.
_PARENT, _SESSION, _WAITED_USER, _WAITED_SYSTEM = 1, 3, 13, 14


def _stat(pid: int) -> list[str] | None:
    """The fields after the command, which may hold spaces and parentheses; None once the process is gone."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def tree(root: int) -> set[int]:
    """`root`, its descendants, and whatever else is in the session that it leads."""
    children = defaultdict[int, list[int]](list)
    session = set[int]()
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        stat = _stat(pid)
        if stat is None:
            continue
        children[int(stat[_PARENT])].append(pid)
        if int(stat[_SESSION]) == root:
            session.add(pid)
    found = set[int]()
    waiting = [root, *session]
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children[pid]
    return found


def cpu_seconds(root: int) -> float:
    """User and system time of a process tree since it began, of children that were waited for too.

    A living process is read in nanoseconds from its CPU clock (clock_getcpuclockid(3)): /proc counts in ticks
    of 10 ms, which is as much as some runs use in all. Only what has exited is counted in ticks.
    """
    total = 0.0
    for pid in tree(root):
        stat = _stat(pid)
        if stat is None:
            continue
        total += (int(stat[_WAITED_USER]) + int(stat[_WAITED_SYSTEM])) / _TICKS_PER_SECOND
        try:
            total += time.clock_gettime(_cpu_clock(pid))
        except OSError:
            continue
    return total


def _cpu_clock(pid: int) -> int:
    """The clock of a process's CPU time, as the C library makes it: CPUCLOCK_SCHED, all threads."""
    return (~pid << 3) | 2


def pss_bytes(root: int) -> int:
    """Proportional set size of a process tree: a page shared by n processes counts as 1/n in each."""
    total = 0
    for pid in tree(root):
        try:
            rollup = (_PROC / str(pid) / "smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        for line in rollup.splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def machine_busy_seconds() -> float:
    """CPU time that all processes of this machine together have used since it started."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = (
        int(field) for field in (_PROC / "stat").read_text().splitlines()[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / _TICKS_PER_SECOND
