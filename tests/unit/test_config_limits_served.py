"""Limits by model whose names cannot hold."""

from sluicegate.config.check import check_source
from sluicegate.config.source import Source

NAMES = ("tiny", "small", "gpt-4", "tinny")


def test_a_limit_of_a_model_that_nobody_serves_is_warned_of() -> None:
    data = {
        "upstreams": {"local": {"base_url": "http://127.0.0.1:8000/v1"}},
        "models": {"tiny": "local", "gpt-*": "local"},
        "aliases": {"small": "tiny"},
        "limits": {"standard": {"models": {name: {"requests": "1/day"} for name in NAMES}}},
        "keys": [{"name": "a", "key": "sk-a", "limits": "standard"}],
    }
    report = check_source(Source(data=data), {})
    paths = [fault.path for fault in report.warnings]
    assert [path for path in paths if "limits" in path] == ["limits.standard.models.tinny"]
