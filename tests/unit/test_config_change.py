"""A file that takes the place of the running configuration, at whatever byte whoever writes it has got to."""

import json
from pathlib import Path

import pytest

from sluicegate.config import Config, LedgerConfig, changed_settings, check_file, load_change, load_file
from sluicegate.errors import ConfigurationError

KEYS_LAST = """\
server: {port: 8080, drain_seconds: 10}
upstreams:
  local:
    base_url: http://127.0.0.1:8000/v1
models:
  tiny: local
keys:
  - name: team-a
    key: sk-abcdefgh
  - name: team-b
    key: "sk-ijklmnop"
"""
KEYS_FIRST = """\
access: keys
keys:
- name: team-a
  key: sk-abcdefgh
- {name: team-b, key: sk-ijklmnop}
upstreams: {local: {base_url: http://127.0.0.1:8000/v1}}
models:
  tiny:
  - local
"""
TOML = """\
[models]
tiny = "local"
[upstreams.local]
base_url = "http://127.0.0.1:8000/v1"
[[keys]]
name = "team-a"
key = "sk-abcdefgh"
[[keys]]
name = "team-b"
key = "sk-ijklmnop"
[server]
port = 8080
"""
JSON = json.dumps(
    {
        "upstreams": {"local": {"base_url": "http://127.0.0.1:8000/v1"}},
        "models": {"tiny": "local"},
        "keys": [{"name": "team-a", "key": "sk-abcdefgh"}, {"name": "team-b", "key": "sk-ijklmnop"}],
    }
)
FILES = {"last.yaml": KEYS_LAST, "first.yaml": KEYS_FIRST, "tables.toml": TOML, "one-line.yaml": JSON}


def secrets(config: Config) -> set[str]:
    return {key.key.get_secret_value() for key in config.keys}


@pytest.mark.parametrize("name", FILES)
def test_no_beginning_of_a_file_lets_anybody_in(tmp_path: Path, name: str) -> None:
    """Neither without a key, nor with a part of one."""
    file = tmp_path / name
    whole = FILES[name].encode()
    file.write_bytes(whole)
    running = load_file(file)
    assert secrets(load_change(file, running)) == secrets(running) == {"sk-abcdefgh", "sk-ijklmnop"}
    taken = 0
    for end in range(len(whole)):
        file.write_bytes(whole[:end])
        try:
            found = load_change(file, running)
        except ConfigurationError:
            continue
        taken += 1
        assert secrets(found), whole[:end]
        assert secrets(found) <= secrets(running), whole[:end]
    assert taken < len(whole) / 10


def test_some_beginnings_are_good_files_in_themselves(tmp_path: Path) -> None:
    """Without which the test above would say nothing."""
    file = tmp_path / "gateway.yaml"
    file.write_text(KEYS_LAST.partition("keys:")[0])
    assert check_file(file).faults == ()
    file.write_text(KEYS_LAST.partition("efgh")[0])
    assert secrets(load_file(file)) == {"sk-abcd"}


OPEN = KEYS_LAST.partition("keys:")[0]


def test_a_gateway_with_keys_is_opened_by_word_only(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(KEYS_LAST)
    running = load_file(file)
    file.write_text(OPEN)
    with pytest.raises(ConfigurationError) as caught:
        load_change(file, running)
    (fault,) = caught.value.faults
    assert fault.path == "keys"
    assert fault.hint == "say `access: open` where this is meant"
    file.write_text(OPEN + "access: open\n")
    assert load_change(file, running).keys == ()


def test_a_gateway_that_is_open_stays_so_without_a_word(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(OPEN)
    assert load_change(file, load_file(file)).keys == ()


def test_a_file_that_ends_in_the_middle_of_a_line_is_not_taken(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(KEYS_LAST)
    running = load_file(file)
    file.write_text(KEYS_LAST.rstrip())
    with pytest.raises(ConfigurationError, match="ends in the middle of a line"):
        load_change(file, running)
    report = check_file(file)
    assert report.faults == (), "nobody waits for the rest of a file that stands"
    (warning,) = report.warnings
    assert "ends in the middle of a line" in warning.message


def test_all_faults_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(KEYS_LAST)
    running = load_file(file)
    file.write_text("server: {port: 70000}\nmodels: {}")
    with pytest.raises(ConfigurationError) as caught:
        load_change(file, running)
    assert {fault.path for fault in caught.value.faults} == {"", "server.port", "upstreams", "models"}


def test_a_section_that_is_new_or_gone_is_a_change_of_itself() -> None:
    ledger = LedgerConfig()
    assert changed_settings(None, ledger, "ledger") == changed_settings(ledger, None, "ledger") == ["ledger"]
    assert changed_settings(None, None, "ledger") == []
    assert changed_settings(ledger, LedgerConfig(keep_days=1), "ledger") == ["ledger.keep_days"]
