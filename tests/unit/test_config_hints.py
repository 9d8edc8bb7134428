"""What `check` says of names that it does not know, and of models that nobody serves."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sluicegate.config import check_file, load_data
from sluicegate.errors import ConfigurationError, ConfigurationFault


def data(path: str, value: Any) -> dict[str, Any]:
    """A good configuration, with this value at this place."""
    whole: dict[str, Any] = {
        "keys": [{"name": "team-a", "key": "sk-a"}],
        "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1"}},
        "models": {"tiny": "local"},
    }
    *steps, last = path.split(".")
    inner: Any = whole
    for step in steps:
        inner = inner[int(step)] if step.isdigit() else inner.setdefault(step, {})
    inner[last] = value
    return whole


def faults(data: dict[str, Any]) -> dict[str, ConfigurationFault]:
    with pytest.raises(ConfigurationError) as caught:
        load_data(data, {})
    return {fault.path: fault for fault in caught.value.faults}


def warnings(data: dict[str, Any], tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "gateway.yaml"
    file.write_text(yaml.safe_dump(data))
    report = check_file(file, {})
    assert report.faults == ()
    assert all(warning.line is not None for warning in report.warnings)
    return {warning.path: warning.message for warning in report.warnings}


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("teams.blue.budget", "`limits`"),
        ("limits.low.budget", "`cost`"),
        ("keys.0.max_budget", "`limits`"),
        ("budget", "`limits`"),
        ("server.tls.key", "`key_file` or `key_password`"),
        ("server.tls.cert", "`cert_file`"),
        ("server.tls.port", "`server.port`"),
        ("server.level", "`log.level`"),
        ("upstreams.local.retry", "`models.NAME.retry`"),
        ("upstreams.local.reply_model", "`models.NAME.reply_model`"),
    ],
)
def test_a_hint_leads_to_where_the_setting_is(path: str, hint: str) -> None:
    found = faults(data(path, 1))
    assert found[re.sub(r"\.(\d+)", r"[\1]", path)].hint == f"did you mean {hint}?"


@pytest.mark.parametrize("path", ["cost.budget", "server.window", "teams.blue.key", "server.tls.url"])
def test_no_hint_leads_to_where_the_word_means_something_else(path: str) -> None:
    hint = faults(data(path, 1))[path].hint
    assert hint is not None
    assert hint.startswith("known: ")


def test_a_right_to_a_model_that_nobody_serves_is_a_warning(tmp_path: Path) -> None:
    given = data("models.big-*", "local/*") | {"aliases": {"little": "tiny"}}
    given["callers"] = [
        {"name": "a", "models": ["tiny", "tine", "ti*", "big-1", "bi*", "big-1*", "no*", "little"]}
    ]
    given["keys"] = [{"name": "a", "key": "sk-1", "models": ["tiny", "none"]}]
    assert warnings(given, tmp_path) == {
        "callers[0].models[1]": "names `tine`, and no such model is served",
        "callers[0].models[6]": "names `no*`, and no such model is served",
        "callers[0].models[7]": "names `little`, an alias: rights go by the model's own name",
        "keys[0].models[1]": "names `none`, and no such model is served",
    }
    # What an upstream lists is not known here.
    given["upstreams"]["other"] = {"base_url": "http://127.0.0.1:2/v1", "discover": True}
    assert warnings(given, tmp_path) == {}
