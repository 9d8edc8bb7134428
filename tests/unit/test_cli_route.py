"""`sluicegate route`: where a request would go, and why."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sluicegate.cli import main

CONFIG: dict[str, Any] = {
    "upstreams": {name: {"base_url": "http://127.0.0.1:1/v1"} for name in ("a", "b", "c")},
    "models": {
        "m": {
            "routes": ["a", {"upstream": "b", "weight": 3}, {"upstream": "c", "tier": 1, "max_streams": 4}],
            "policy": "weighted",
        },
        "talk": {"routes": ["a/x", "b/x", "c/x"], "policy": {"affinity": {"header": "x-session"}}},
        "org/*": "a/*",
    },
    "aliases": {"short": "m"},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "gateway.yaml"
    file.write_text(json.dumps(CONFIG) + "\n")
    return file


def run(file: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["route", "--config", str(file), *arguments])


def said(file: Path, *arguments: str) -> Any:
    done = run(file, "--json", *arguments)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_who_would_be_tried_is_said_in_order_with_its_share(file: Path) -> None:
    found = said(file, "short")
    assert (found["asked"], found["model"], found["policy"]) == ("short", "m", "weighted")
    candidates = {one["deployment"]: one for one in found["candidates"]}
    assert [one["rank"] for one in found["candidates"]] == [1, 2, 3]
    assert abs(candidates["a/m"]["first"] - 0.25) < 0.1
    assert abs(candidates["b/m"]["first"] - 0.75) < 0.1
    assert (candidates["c/m"]["rank"], candidates["c/m"]["first"]) == (3, 0.0)
    assert {one["state"] for one in found["candidates"]} == {"usable"}
    assert candidates["c/m"]["why"] == "only where none in a tier below 1 can serve"


def test_a_table_says_that_nothing_was_sent(file: Path) -> None:
    done = run(file, "m")
    assert done.exit_code == 0
    assert "policy   weighted" in done.stdout
    assert "Nothing was sent." in done.stdout
    assert "a gateway that has just started" in done.stdout


def test_a_conversation_is_known_by_its_prompt_or_its_header(file: Path) -> None:
    def first(*arguments: str) -> str:
        found = said(file, "talk", *arguments)
        [one] = [one for one in found["candidates"] if one["first"] == 1.0]
        assert one["rank"] == 1
        return str(one["deployment"])

    by_prompt = {first("--prompt", f"Question {number}") for number in range(12)}
    assert len(by_prompt) > 1
    by_header = {first("--prompt", f"Question {number}", "--header", "X-Session: s") for number in range(12)}
    assert len(by_header) == 1
    assert first("--facts", json.dumps({"headers": {"x-session": "s"}})) in by_header


def test_a_wildcard_is_said_with_what_it_stands_for(file: Path) -> None:
    found = said(file, "org/llama")
    assert (found["model"], found["stands_for"]) == ("org/*", "org/llama")
    assert [one["deployment"] for one in found["candidates"]] == ["a/llama"]


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["tlak"], 1, "did you mean `talk`?"),
        (["m", "--header", "nothing"], 2, "is not NAME:VALUE"),
        (["m", "--facts", "{"], 2, "--facts:"),
        (["m", "--facts", '{"weight": 1}'], 2, "Known facts: endpoint, stream, size"),
        (["m", "--facts", "{}", "--prompt", "Hi"], 2, "leave --prompt and --header out"),
    ],
)
def test_what_is_wrong_is_told(file: Path, arguments: list[str], status: int, text: str) -> None:
    done = run(file, *arguments)
    assert (done.exit_code, text in done.stderr) == (status, True), done.stderr
