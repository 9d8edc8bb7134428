"""What the harness must know of a proxy."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
# Each peer that comes as a wheel has a virtual environment of its own, so that their dependencies never meet.
ENVIRONMENTS = Path(os.environ.get("SLUICEGATE_BENCH_PEERS", REPOSITORY / "target" / "bench-peers"))


@dataclass(frozen=True)
class Setup:
    """One start of a proxy: where it listens, what is behind it, and a directory for its files."""

    port: int
    upstream: str
    """The mock's `host:port`."""
    threads: int
    """Of its own that serve requests; processes, where a proxy has one thread in each."""
    directory: Path

    def write(self, name: str, text: str) -> str:
        """Write a configuration file; its path."""
        path = self.directory / name
        path.write_text(text)
        return str(path)


@dataclass(frozen=True)
class Proxy:
    """How one proxy is found and started.

    `find` gives its program, or None where it is not installed. `command` writes its configuration and gives
    its command line. `too_slow_for` names scenarios in which it would only be seen to be overloaded.
    """

    name: str
    find: Callable[[], str | None]
    command: Callable[[str, Setup], Sequence[str]]
    version: Callable[[str], str]
    requirement: str | None = None
    """What pip installs into its environment under ENVIRONMENTS."""
    environment: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    """Sent as a bearer token: it refuses to run without one."""
    refusal: Callable[[], str | None] = lambda: None
    """Why what was found must not be measured; None: it may be."""
    cost: bool = False
    """It adds the cost to the usage, and the load generator demands it."""
    too_slow_for: frozenset[str] = frozenset()
    start_seconds: float = 30.0


def program(*names: str) -> Callable[[], str | None]:
    """Finds the first of these programs on the PATH or where Debian puts servers."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
    return lambda: next((found for name in names if (found := shutil.which(name, path=path))), None)


def peer(name: str, executable: str) -> Callable[[], str | None]:
    """Finds a program in the environment of a peer that was installed with `--install`."""
    path = ENVIRONMENTS / name / "bin" / executable
    return lambda: str(path) if path.exists() else None


def this_python() -> str:
    return sys.executable


def asked(*arguments: str) -> Callable[[str], str]:
    """The version as the program itself tells it."""

    def version(found: str) -> str:
        answer = subprocess.run(
            [found, *arguments], capture_output=True, text=True, timeout=60, check=False, cwd=REPOSITORY
        )
        number = re.search(r"\d+\.\d+[\w.+-]*", answer.stdout + answer.stderr)
        return number.group() if number else "unknown"

    return version


def with_tokio_threads(count: int, command: Sequence[str]) -> Sequence[str]:
    """For programs that leave tokio's default, a thread a core, and have no option for it."""
    return ["/usr/bin/env", f"TOKIO_WORKER_THREADS={count}", *command]


def install(proxy: Proxy) -> None:
    """Put a peer into its environment. Raises CalledProcessError where pip refuses."""
    if proxy.requirement is None:
        raise ValueError(f"{proxy.name} does not come as a Python package")
    place = ENVIRONMENTS / proxy.name
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    subprocess.run([str(place / "bin" / "pip"), "install", "--quiet", proxy.requirement], check=True)
