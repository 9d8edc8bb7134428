"""Nothing but the part that runs a server knows which one it is."""

from harness.tree import ROOT, tracked

PACKAGE = ROOT / "python" / "sluicegate"
SERVERS = ("granian", "uvicorn", "hypercorn")

# The second plays servers, and says which.
MAY_KNOW = (PACKAGE / "server", PACKAGE / "testing")


def test_no_server_is_named_outside_of_the_part_that_runs_one() -> None:
    named = [
        f"{path.relative_to(PACKAGE)}: {server}"
        for path in tracked("python/sluicegate/*.py", "python/sluicegate/*.pyi")
        if not any(path.is_relative_to(place) for place in MAY_KNOW)
        for server in SERVERS
        if server in path.read_text().lower()
    ]
    assert not named
