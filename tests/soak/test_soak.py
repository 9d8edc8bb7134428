"""A short soak; `make soak` is the long one."""

from pathlib import Path

import pytest

from soak.soak import MIB, soak

SECONDS = 20.0
STREAMS = 60
PATIENCE = 10.0
"""Seconds of the upstream's deadlines: other tests run on this machine."""


@pytest.mark.timeout(300)
async def test_nothing_is_lost_doubled_or_kept(tmp_path: Path) -> None:
    record = await soak(SECONDS, STREAMS, tmp_path, patience=PATIENCE)
    assert record.problems == []
    assert len(record.exchanges) > STREAMS * 3
    ends = {exchange.end for exchange in record.exchanges}
    assert ends == {"whole", "error", "left"}, "the load was not what it should be"
    settled = [size for at, size in record.memory if at > SECONDS / 2]
    assert max(settled) - min(settled) < 32 * MIB
