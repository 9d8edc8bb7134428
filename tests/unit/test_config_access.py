"""Whether a configuration wants keys, where they may all be in the database."""

from typing import Any

import pytest

from sluicegate.config import load_data
from sluicegate.config.check import check_source
from sluicegate.config.source import Source
from sluicegate.errors import ConfigurationError

OPEN: dict[str, Any] = {
    "server": {"host": "0.0.0.0"},
    "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1"}},
    "models": {"m": "local"},
}
KEYS = [{"name": "a", "key": "sk-1"}]


@pytest.mark.parametrize(
    ("more", "needs", "unsaid"),
    [
        ({}, False, True),
        ({"access": "open"}, False, False),
        ({"access": "keys"}, True, False),
        ({"keys": KEYS}, True, False),
        ({"keys": KEYS, "access": "keys"}, True, False),
    ],
)
def test_who_needs_a_key(more: dict[str, Any], needs: bool, unsaid: bool) -> None:
    config = load_data({**OPEN, **more}, {})
    assert (config.needs_keys, config.is_open_unsaid) == (needs, unsaid)


def test_limits_that_only_callers_of_the_database_can_have() -> None:
    limits = {"limits": {"standard": {"requests": "1/minute"}}}

    def warned(**more: Any) -> list[tuple[str, str]]:
        warnings = check_source(Source(data={**OPEN, **limits, **more}), {}).warnings
        return [(each.path, each.message) for each in warnings]

    assert warned(keys=KEYS) == [("limits.standard", "is given to nobody here")]
    assert warned(access="keys") == []
    with pytest.raises(ConfigurationError, match="is given to nobody"):
        load_data({**OPEN, **limits, "access": "open"}, {})
