"""What some tests need and a machine may lack. A run names at its end what it skipped and what to install."""

from typing import NoReturn

import pytest

MISSING = "missing: "
"""How the reason of such a skip begins. What follows: a name, a colon, and the line that installs it."""

PACKAGES = f"{MISSING}Python packages of the tests: make setup"
NODE = f"{MISSING}Node.js and the clients that run on it: apt-get install nodejs npm && make node-clients"
POSTGRESQL = f"{MISSING}PostgreSQL: apt-get install postgresql"
REDIS = f"{MISSING}Redis or Valkey: apt-get install redis-server"
COMPILER = f"{MISSING}a C compiler: apt-get install gcc libc6-dev"
CURL = f"{MISSING}curl with HTTP/2: apt-get install curl"
RECORDINGS = f"{MISSING}recorded streams of providers: export SLUICEGATE_CORPUS=FOLDER (see CONTRIBUTING.md)"


def lacking(reason: str) -> NoReturn:
    """Skip the test for one of the reasons above."""
    assert reason.startswith(MISSING)
    pytest.skip(reason)
