"""The page about real servers: a run writes its own row and leaves the others as they are."""

from datetime import date

import pytest

from harness import needed

pytest.importorskip("gguf", reason=needed.PACKAGES)
pytest.importorskip("safetensors", reason=needed.PACKAGES)

from real.page import Row, page
from real.servers import SERVERS

FIRST, SECOND = list(SERVERS.values())[:2]
DAY = date(2026, 1, 31)


def test_a_first_run_makes_the_page() -> None:
    row = Row.of(FIRST, "1.2", DAY, 40, 39)
    text = page(SERVERS.values(), "", row)
    assert (
        row.text
        == f"| `real-{FIRST.name}` | {FIRST.package} 1.2 | 2026-01-31 | {', '.join(FIRST.apis)} | 40 | 39 |"
    )
    assert text.count("\n| `real-") == 1
    assert row.text in text.splitlines()


def test_other_rows_stay_and_the_own_one_is_replaced() -> None:
    before = page(SERVERS.values(), "", Row.of(SECOND, "7", DAY, 9, 9))
    before = page(SERVERS.values(), before, Row.of(FIRST, "1.2", DAY, 40, 39))
    after = page(SERVERS.values(), before, Row.of(FIRST, "1.3", DAY, 41, 41))
    rows = [line for line in after.splitlines() if line.startswith("| `real-")]
    assert rows == [Row.of(FIRST, "1.3", DAY, 41, 41).text, Row.of(SECOND, "7", DAY, 9, 9).text]


def test_what_servers_do_otherwise_is_told_of_each() -> None:
    text = page(SERVERS.values(), "", Row.of(FIRST, "1", DAY, 1, 1))
    told = [server for server in SERVERS.values() if server.deviations]
    assert told
    for server in told:
        assert f"### {server.title}\n" in text
