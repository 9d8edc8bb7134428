"""`callers`, `keys` and `audit`: what people and scripts see of them, and what they are told of mistakes."""

import json
import os
import pwd
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from sluicegate.admission import Keyring
from sluicegate.cli import main
from sluicegate.config import load_data
from sluicegate.identity import is_key, secret

CONFIG: dict[str, Any] = {
    "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1"}},
    "models": {"m": "local"},
    "limits": {"standard": {"requests": "600/minute"}},
    "teams": {"blue": {}},
    "callers": [{"name": "search", "id": "s-1"}],
    "access": "keys",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.yaml"
    path.write_text(yaml.safe_dump(CONFIG | {"storage": {"directory": str(tmp_path / "state")}}))
    return path


def run(file: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--config", str(file)])


def told(file: Path, *arguments: str) -> Any:
    result = run(file, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_caller_from_its_beginning_on(file: Path) -> None:
    made = told(
        file, "callers", "create", "lab", "--limits", "{requests: 5k/day, cost: [0.5/day]}", "--team", "blue"
    )
    assert re.fullmatch("cal_[0-9A-Za-z]{16}", made["id"])
    assert made["limits"] == {"requests": ["5000/day"], "cost": ["0.5/day"]}
    assert (made["team"], made["models"], made["disabled"]) == ("blue", None, False)
    changed = told(
        file, "callers", "set", "lab", "--limits", "standard", "--model", "m*", "--model", "x", "--no-team",
        "--endpoint", "responses", "--name", "labs",
    )  # fmt: skip
    assert (changed["id"], changed["name"], changed["team"]) == (made["id"], "labs", None)
    assert (changed["limits"], changed["models"]) == ("standard", ["m*", "x"])
    assert changed["endpoints"] == ["responses"]
    cleared = told(file, "callers", "set", made["id"], "--no-limits", "--all-models", "--all-endpoints")
    assert (cleared["limits"], cleared["models"], cleared["endpoints"]) == (None, None, None)
    assert told(file, "callers", "disable", "labs")["disabled"]
    [configured, listed] = told(file, "callers", "list")
    assert (configured["id"], configured["source"]) == ("s-1", "configuration")
    assert listed == {**cleared, "disabled": True}
    assert re.search(r"labs +cal_\w+ +database .*disabled", run(file, "callers", "list").stdout)
    assert not told(file, "callers", "enable", "labs")["disabled"]


def test_a_key_is_alone_on_standard_output(file: Path) -> None:
    result = run(file, "keys", "create", "search", "--name", "ci", "--expires", "2099-01-31", "--model", "m")
    key = result.stdout.strip()
    assert is_key(key)
    assert key not in result.stderr
    assert "shown once" in result.stderr
    id = key[3:15]
    shown = told(file, "keys", "show", id)
    assert shown == {
        "id": id,
        "caller": "s-1",
        "source": "database",
        "state": "active",
        "last_four": key[-4:],
        "limits": None,
        "models": ["m"],
        "endpoints": None,
        "name": "ci",
        "created": shown["created"],
        "expires": "2099-01-31T00:00:00Z",
        "revoked": None,
        "replaces": None,
    }
    assert told(file, "keys", "list", "--caller", "search") == [shown]
    line = run(file, "keys", "list").stdout.splitlines()[1]
    assert line.split() == [id, "search", "ci", "database", "active", "2099-01-31T00:00:00Z", f"…{key[-4:]}"]
    assert f"expires    {shown['expires']}" in run(file, "keys", "show", id).stdout
    for command in (("keys", "list", "--all"), ("keys", "show", id), ("callers", "list"), ("audit",)):
        assert key[16:] not in run(file, *command).output + run(file, *command, "--json").output


def test_keys_of_the_configuration_are_listed_without_what_is_secret(tmp_path: Path) -> None:
    keys = [
        {"name": "search", "key": "sk-of-search-1", "expires": "2001-01-31", "models": ["m"]},
        {"name": "alone", "key": "sk-of-alone-22", "limits": "standard"},
    ]
    file = tmp_path / "gateway.yaml"
    state = {"storage": {"directory": str(tmp_path / "state")}}
    file.write_text(yaml.safe_dump(CONFIG | state | {"keys": keys}))
    of_search, alone = told(file, "keys", "list")
    assert not (tmp_path / "state" / "callers.db").exists()
    made = told(file, "keys", "create", "search")
    assert told(file, "keys", "list", "--caller", "search") == [
        of_search,
        told(file, "keys", "show", made["id"]),
    ]
    assert told(file, "keys", "list", "--caller", "alone") == [alone]
    assert of_search.keys() == made.keys() - {"key"}
    for found, caller, ends in ((of_search, "s-1", "2001-01-31T00:00:00Z"), (alone, "alone", None)):
        assert (found["caller"], found["source"], found["expires"]) == (caller, "configuration", ends)
        assert (found["last_four"], found["created"], found["replaces"]) == (None, None, None)
    assert (of_search["state"], of_search["models"], of_search["limits"]) == ("expired", ["m"], None)
    assert (alone["state"], alone["models"], alone["limits"]) == ("active", None, "standard")
    # By this the ledger has them.
    known = {caller.name: caller.key_id for caller in Keyring(load_data(CONFIG | {"keys": keys}, {})).callers}
    assert known == {"search": of_search["id"], "alone": alone["id"]}
    lines = [line.split() for line in run(file, "keys", "list").stdout.splitlines()[1:3]]
    ending = ["expired", "2001-01-31T00:00:00Z", "-"]
    assert lines[0] == [of_search["id"], "search", "-", "configuration", *ending]
    assert lines[1] == [alone["id"], "alone", "-", "configuration", "active", "never", "-"]
    for command in (["keys", "list"], ["keys", "list", "--json"]):
        output = run(file, *command).output
        assert "sk-of" not in output
        assert "ch-1" not in output


def test_keys_are_replaced_and_ended(file: Path) -> None:
    told(file, "callers", "create", "lab")
    first = told(file, "keys", "create", "lab")
    second = told(file, "keys", "rotate", first["id"], "--overlap", "90m")
    assert is_key(second["key"])
    assert second["replaces"] == first["id"]
    third = run(file, "keys", "rotate", second["id"], "--overlap", "0", "--expires", "2099-01-31")
    assert is_key(third.stdout.strip())
    assert f"the old key {second['id']} works until 20" in third.stderr
    states = {key["id"]: key["state"] for key in told(file, "keys", "list")}
    assert (states[first["id"]], states[second["id"]]) == ("active", "expired")
    assert run(file, "keys", "revoke", first["id"]).stdout == f"{first['id']}: revoked\n"
    assert told(file, "keys", "revoke", first["id"])["state"] == "revoked"
    assert first["id"] not in {key["id"] for key in told(file, "keys", "list")}
    assert first["id"] in {key["id"] for key in told(file, "keys", "list", "--all")}


def test_the_audit_names_who_did_it(file: Path) -> None:
    assert told(file, "audit") == []
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    caller = told(file, "callers", "create", "lab")
    key = told(file, "keys", "create", "lab")
    entries = told(file, "audit")
    assert [(entry["action"], entry["subject"]) for entry in entries] == [
        ("key.create", key["id"]),
        ("caller.create", caller["id"]),
    ]
    assert {entry["actor"] for entry in entries} == {f"os:{pwd.getpwuid(os.getuid()).pw_name}"}
    assert all(entry["at"] >= began for entry in entries)
    assert told(file, "audit", "--subject", key["id"], "-n", "5") == entries[:1]
    assert re.search(r"os:\S+ +caller.create +cal_", run(file, "audit").stdout)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["callers", "create", "search"], "there is a caller `search`"),
        (["callers", "create", "x", "--limits", "gold"], "no `gold` in `limits`"),
        (["callers", "create", "x", "--limits", "{requests: many}"], "not an amount in a window"),
        (["callers", "create", "x", "--limits", "{"], "neither a name nor limits"),
        (["callers", "create", "x", "--team", "red"], "no `red` in `teams`"),
        (["callers", "set", "search", "--name", "y"], "change it there"),
        (["callers", "set", "nobody", "--name", "y"], "no caller `nobody`"),
        (["callers", "set", "lab"], "nothing to change"),
        (["callers", "set", "lab", "--team", "blue", "--no-team"], "taken away"),
        (["keys", "create", "nobody"], "no caller `nobody`"),
        (["keys", "create", "search", "--expires", "2001-01-01"], "over already"),
        (["keys", "create", "search", "--expires", "soon"], "not a day or a time"),
        (["keys", "create", "search", "--name", ""], "empty"),
        (["keys", "list", "--caller", "nobody"], "no caller `nobody`"),
        (["keys", "show", "0123456789ab"], "no key `0123456789ab`"),
        (["keys", "rotate", "x"], "no such key"),
        (["keys", "revoke", "x"], "no such key"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(file: Path, command: list[str], said: str) -> None:
    told(file, "callers", "create", "lab")
    result = run(file, *command)
    assert result.exit_code in (1, 2)
    assert result.stdout == ""
    assert said in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.output


@pytest.mark.parametrize("overlap", ["soon", "400d"])
def test_an_overlap_is_a_time(file: Path, overlap: str) -> None:
    id = told(file, "keys", "create", "search")["id"]
    result = run(file, "keys", "rotate", id, "--overlap", overlap)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "overlap" in result.stderr.splitlines()[-1]


def fed(file: Path, text: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--config", str(file)], input=text)


def test_a_leaked_key_is_what_an_operator_has_in_hand(file: Path) -> None:
    made = told(file, "keys", "create", "search")
    id, key = made["id"], made["key"]
    shown = told(file, "keys", "show", id)
    for result in (
        run(file, "keys", "show", key, "--json"),
        fed(file, f"{key}\n", "keys", "show", "-", "--json"),
        fed(file, f"  Bearer {key}\r\n", "keys", "show", "-", "--json"),
    ):
        assert json.loads(result.stdout) == shown
        assert key[16:] not in result.output
    second = told(file, "keys", "rotate", key, "--overlap", "90m")
    assert second["replaces"] == id
    revoked = fed(file, key, "keys", "revoke", "-")
    assert (revoked.exit_code, revoked.stdout) == (0, f"{id}: revoked\n")
    assert run(file, "keys", "revoke", second["key"]).stdout == f"{second['id']}: revoked\n"
    assert {key["state"] for key in told(file, "keys", "list", "--all")} == {"revoked"}


def test_what_is_no_key_here_is_not_repeated(file: Path) -> None:
    key = told(file, "keys", "create", "search")["key"]
    # Of another gateway, with an id that this one has, too: its checksum is right.
    forged = key[:16] + "a" * 43
    forged += secret._checksum(forged)
    for command in ("show", "rotate", "revoke"):
        for text in (forged, key[:-1], "sk-of-somebody-else", ""):
            result = fed(file, text, "keys", command, "-")
            assert result.exit_code == 1
            assert "there is no such key here" in result.stderr
            assert not text or text[16:] not in result.output
    assert told(file, "keys", "list")[0]["state"] == "active"


def test_a_leaked_key_of_the_configuration_is_taken_out_there(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    state = {"storage": {"directory": str(tmp_path / "state")}}
    keys = {"keys": [{"name": "search", "key": "sk-of-search-1"}]}
    file.write_text(yaml.safe_dump(CONFIG | state | keys))
    [listed] = told(file, "keys", "list")
    assert told(file, "keys", "show", "sk-of-search-1") == told(file, "keys", "show", listed["id"]) == listed
    for command in ("revoke", "rotate"):
        result = run(file, "keys", command, "sk-of-search-1")
        assert result.exit_code == 1
        assert "the key of `search` is the configuration's, in `keys`: take it out there" in result.stderr
        assert "sk-of" not in result.output


def test_a_right_to_a_model_that_nobody_serves_is_warned_of(file: Path) -> None:
    said = "warning: --model names `n`, and no such model is served (served: m)"
    for command in (
        ("callers", "create", "lab", "--model", "n", "--model", "m"),
        ("callers", "set", "lab", "--model", "n"),
        ("keys", "create", "lab", "--model", "n"),
    ):
        result = run(file, *command)
        assert (result.exit_code, result.stderr.splitlines()[0]) == (0, said)
    assert "warning" not in run(file, "keys", "create", "lab", "--model", "m*").stderr
    assert "warning" not in run(file, "callers", "set", "lab", "--team", "blue").stderr


def test_a_key_that_nobody_asks_for_is_warned_of(tmp_path: Path) -> None:
    open_to_all = {**CONFIG, "access": "open", "limits": {}, "storage": {"directory": str(tmp_path)}}
    file = tmp_path / "gateway.yaml"
    file.write_text(yaml.safe_dump(open_to_all))
    result = run(file, "keys", "create", "search")
    assert is_key(result.stdout.strip())
    assert "say `access: keys`" in result.stderr


def test_a_database_that_is_away_is_said_without_its_password(tmp_path: Path) -> None:
    storage = {"database": "postgresql://gate:hunter2secret@127.0.0.1:9/gate"}
    file = tmp_path / "gateway.yaml"
    file.write_text(yaml.safe_dump({**CONFIG, "storage": storage}))
    result = run(file, "keys", "list")
    assert result.exit_code == 1
    assert "the database of callers and keys cannot be read" in result.stderr
    assert "hunter2secret" not in result.output
