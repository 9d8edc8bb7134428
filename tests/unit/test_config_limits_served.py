"""Limits by model whose names cannot hold."""

from typing import Any

from sluicegate.config.check import check_source
from sluicegate.config.source import Source

NAMES = ("tiny", "small", "gpt-4", "tinny")


def test_a_limit_that_a_restart_forgets_is_warned_of() -> None:
    """The ledger's sums by user have no model."""
    data: dict[str, Any] = {
        "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1"}},
        "models": {"m": "local", "n": "local"},
        "limits": {
            "person": {"cost": "9/month", "models": {"m": {"cost": "5/month"}, "n": {"tokens": "9/hour"}}}
        },
        "users": {"header": "x-user", "limits": "person"},
        "keys": [{"name": "a", "key": "sk-a"}],
    }
    shared = {"storage": {"counters": "redis://127.0.0.1:1"}}

    def warned(**more: Any) -> list[str]:
        report = check_source(Source(data={**data, **more}), {})
        assert not report.faults
        return [each.path for each in report.warnings if each.path.startswith("limits")]

    assert warned(ledger={}) == ["limits.person.models.m"]
    assert warned(ledger={}, **shared) == []
    assert warned() == []


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
