"""Every fault of a file is told at once, whatever kind it is of, and none that only follows from another."""

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from sluicegate.cli import main
from sluicegate.config import check_file
from sluicegate.config.source import spell

GOOD: dict[str, Any] = {
    "limits": {"low": {"requests": "1/minute"}, "spare": {"requests": "2/minute"}},
    "teams": {"blue": {"limits": "low"}},
    "callers": [
        {"name": "a", "team": "blue", "limits": "low"},
        {"name": "b", "limits": "spare"},
    ],
    "keys": [
        {"name": "a", "key": "sk-1"},
        {"name": "b", "key": "sk-2"},
        {"name": "c", "key": "sk-3"},
    ],
    "upstreams": {
        "x": {"base_url": "http://127.0.0.1:1/v1", "api_key": "sk-x"},
        "y": {"base_url": "http://127.0.0.1:2/v1"},
    },
    "models": {"m": "x", "n": ["x", "y"], "o": {"routes": [{"upstream": "y"}]}, "p/*": "x/*"},
    "aliases": {"one": "m", "two": "n"},
    "passthrough": [{"path": "/v1/files", "upstream": "x"}, {"path": "/v1/batches", "upstream": "y"}],
    "prices": {"m": {"input": 1, "cached_input": 1}, "n": {"price": 1, "cached_input": 1}},
    "storage": {"counters": "redis://127.0.0.1:1"},
}

# What is wrong with one setting, with one section, and with one section beside another.
WRONG: list[tuple[tuple[str | int, ...], Any, set[str]]] = [
    (("server", "prot"), 1, {"server.prot"}),
    (("limits", "low", "requests"), "many", {"limits.low.requests"}),
    (("teams", "blue", "budget"), 5, {"teams.blue.budget"}),
    (("callers", 0, "team"), "red", {"callers[0].team"}),
    (("callers", 1, "limits"), "gold", {"callers[1].limits"}),
    (("callers", 1, "name"), "a", {"callers[1].name"}),
    (("keys", 0, "nmae"), "x", {"keys[0].nmae"}),
    (("keys", 1, "key"), "sk-1", {"keys[1].key"}),
    (("keys", 2, "key"), "", {"keys[2].key"}),
    (("upstreams", "x", "base_url"), "ftp://x", {"upstreams.x.base_url"}),
    (("upstreams", "x", "forward_authorization"), True, {"upstreams.x.forward_authorization"}),
    (("upstreams", "x", "client_cert_file"), __file__, {"upstreams.x.client_cert_file"}),
    (("upstreams", "y", "messages"), {"count_tokens": "forward"}, {"upstreams.y.messages.count_tokens"}),
    (
        ("upstreams", "y", "headers"),
        {"host": "a", "te": "d"},
        {"upstreams.y.headers.host", "upstreams.y.headers.te"},
    ),
    (("upstreams", "y", "deadlines"), {"totl": 1}, {"upstreams.y.deadlines.totl"}),
    (("models", "m"), "z", {"models.m"}),
    (("models", "n"), ["x", "yy"], {"models.n[1]"}),
    (("models", "o", "policy"), "best", {"models.o.policy"}),
    (("models", "p/*"), "x/p", {'models."p/*"'}),
    (("aliases", "one"), "mm", {"aliases.one"}),
    (("aliases", "two"), "two", {"aliases.two"}),
    (("passthrough", 0, "path"), "/v1/responses", {"passthrough[0].path"}),
    (("passthrough", 1, "model"), "json", {"passthrough[1]"}),
    (("prices", "m", "coefficients"), {"output": 4}, {"prices.m.coefficients"}),
    (("prices", "n", "output"), -1, {"prices.n.output"}),
    (("storage", "counters_ca_file"), __file__, {"storage.counters_ca_file"}),
    (("storage", "counters_lots"), "allow", {"storage.counters_lots"}),
    (("ledger",), {"timezone": "Mars"}, {"ledger.timezone"}),
]  # fmt: skip


def told(data: Any, file: Path, environ: dict[str, str] | None = None) -> list[str]:
    file.write_text(yaml.dump(data, sort_keys=False, Dumper=Plain))
    report = check_file(file, environ or {})
    assert (report.config is None) == bool(report.faults)
    assert all(fault.line is not None for fault in report.faults)
    paths = [fault.path for fault in report.faults]
    assert len(set(paths)) == len(paths), paths
    return paths


class Plain(yaml.SafeDumper):
    """Without aliases, which are no part of what is looked at."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def put(data: Any, place: tuple[str | int, ...], value: Any) -> Any:
    data = copy.deepcopy(data)
    inner: Any = data
    for step in place[:-1]:
        inner = inner.setdefault(step, {}) if isinstance(step, str) else inner[step]
    inner[place[-1]] = value
    return data


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gateway.yaml"


@pytest.mark.parametrize(("place", "value", "paths"), WRONG, ids=[spell(place) for place, _, _ in WRONG])
def test_each_is_told_alone(file: Path, place: Any, value: Any, paths: set[str]) -> None:
    assert told(GOOD, file) == []
    assert {*told(put(GOOD, place, value), file)} == paths


def test_all_are_told_at_once(file: Path) -> None:
    data = GOOD
    for place, value, _ in WRONG:
        data = put(data, place, value)
    assert {*told(data, file)} == {path for _, _, paths in WRONG for path in paths}


def test_two_are_told_at_once_whichever_they_are(file: Path) -> None:
    # Each with the next few: all pairs would take half a minute.
    for one, other in itertools.chain(*(zip(WRONG, WRONG[by:], strict=False) for by in (1, 2, 9))):
        data = put(put(GOOD, one[0], one[1]), other[0], other[1])
        assert {*told(data, file)} == one[2] | other[2], (one[0], other[0])


@pytest.mark.parametrize("section", [*GOOD])
def test_nothing_follows_from_a_section_that_cannot_be_read(file: Path, section: str) -> None:
    assert told(put(GOOD, (section,), 3), file) == [section]


def test_nothing_follows_from_a_variable_that_is_not_set(file: Path) -> None:
    data = GOOD
    for index in range(3):
        data = put(data, ("keys", index, "key"), "${KEY}")
    for place in (("upstreams", "x", "base_url"), ("callers", 0, "team"), ("storage", "counters")):
        data = put(data, place, "${OTHER}")
    data = put(data, ("storage", "counters_lost"), "allow")
    data = put(data, ("aliases", "two"), "nn")
    assert {*told(data, file)} == {
        "keys[0].key", "keys[1].key", "keys[2].key", "upstreams.x.base_url", "callers[0].team",
        "storage.counters", "aliases.two",
    }  # fmt: skip


def test_every_form_has_the_place_and_the_line_of_each(file: Path) -> None:
    data = put(put(GOOD, ("callers", 0, "team"), "red"), ("upstreams", "x", "timeout"), 3)
    data = put(data, ("responses",), {"path": str(file.parent)})
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    lines = file.read_text().splitlines()
    wanted = {
        "callers[0].team": lines.index("  team: red") + 1,
        "upstreams.x.timeout": lines.index("    timeout: 3") + 1,
        "responses.path": lines.index("responses:") + 2,
    }

    def run(*arguments: str) -> Any:
        done = CliRunner().invoke(main, ["check", str(file), *arguments])
        assert done.exit_code == 1
        return done

    found = json.loads(run("--format", "json").stdout)["faults"]
    assert {fault["path"]: fault["line"] for fault in found} == wanted
    text = run().stderr.splitlines()
    assert len(text) == len(wanted)
    github = run("--format", "github").stdout.splitlines()
    for path, line in wanted.items():
        assert any(each.startswith(f"{file}:{line}: error: {path}: ") for each in text)
        assert any(each.startswith(f"::error file={file},line={line}::{path}: ") for each in github)


def test_entries_between_others_that_are_left_out_keep_their_places(file: Path) -> None:
    """The first round leaves out every third key; what is wrong with the others is found in the rest."""
    keys = [{"name": f"k{number}", "key": f"sk-{number}"} for number in range(300)]
    for number in range(0, 300, 3):
        keys[number]["bad"] = "1"
    for number in range(1, 300, 3):
        keys[number]["limits"] = "none"
    wanted = {f"keys[{number}].bad" for number in range(0, 300, 3)}
    wanted |= {f"keys[{number}].limits" for number in range(1, 300, 3)}
    assert {*told({**GOOD, "keys": keys}, file)} == wanted
