"""`sluicegate init`: the file that it writes, and what never stands in it."""

import json
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from sluicegate.cli import main
from sluicegate.config import check_file, profiles
from sluicegate.discovery import Listing

# The command has the name of its module.
module = import_module("sluicegate.cli.init")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for profile in profiles():
        monkeypatch.delenv(profile.key_variable or "NONE", raising=False)
    return tmp_path / "sluicegate.yaml"


def run(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(main, ["init", *arguments], env=environ)


def upstreams(file: Path) -> dict[str, object]:
    return dict(yaml.safe_load(file.read_text())["upstreams"])


def test_the_file_is_good_and_explains_itself(file: Path) -> None:
    done = run()
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "sluicegate.yaml: written and checked (upstreams: local)",
        "Next: `sluicegate check --connect`, then `sluicegate serve`.",
    ]
    report = check_file(file, {})
    assert (report.faults, report.warnings) == ((), ())
    text = file.read_text()
    assert max(map(len, text.splitlines())) <= 120
    # What it says of defaults is so.
    assert report.config is not None
    assert report.config == report.config.model_validate(
        {"upstreams": {"local": {"profile": "ollama", "discover": True}}}
    )


def test_what_is_commented_out_is_good_as_well(file: Path) -> None:
    assert run().exit_code == 0
    lines = file.read_text().splitlines()
    settings = ("# keys:", "#   - name", "#     key:", "# models:", "#   small:", "#   large:", "# prices:")
    text = "\n".join(line[2:] if line.startswith(settings) else line for line in lines)
    file.write_text(text.replace("UPSTREAM", "local").replace("OTHER", "local") + "\n")
    report = check_file(file, {"MY_KEY": "x"})
    assert (report.faults, report.warnings) == ((), ())


def test_upstreams_are_those_that_are_named(file: Path) -> None:
    done = run("--upstream", "a b=http://h", "--output", "x.yaml")
    assert done.exit_code == 1
    done = run(
        *("--upstream", "http://gpu-1:8000/v1", "--upstream", "no=https://api.openai.com/v1"),
        *("--key-env", "MY_KEY", "--force", "--output", "x.yaml"),
        MY_KEY="sekrit",
    )
    assert done.exit_code == 0, done.output
    assert "then `sluicegate serve x.yaml`" in done.stdout
    # YAML would read a bare `no` as false.
    assert upstreams(file.with_name("x.yaml")) == {
        "gpu-1": {"base_url": "http://gpu-1:8000/v1", "discover": True},
        "no": {"profile": "openai", "api_key": "${MY_KEY}", "discover": True},
    }
    assert "sekrit" not in file.with_name("x.yaml").read_text() + done.output


def test_a_server_that_is_asked_needs_no_path(file: Path) -> None:
    assert run("--upstream", "http://127.0.0.1:11434").stderr == ""
    report = check_file(file, {})
    assert (report.faults, report.warnings) == ((), ())


def test_keys_of_the_environment_are_named_and_not_written(file: Path) -> None:
    done = run("--from-env", OPENAI_API_KEY="sekrit-1", GROQ_API_KEY="sekrit-2", MISTRAL_API_KEY="")
    assert done.exit_code == 0, done.output
    assert "sekrit" not in file.read_text() + done.output
    found = upstreams(file)
    assert found == {
        "groq": {"profile": "groq", "api_key": "${GROQ_API_KEY}", "discover": True},
        "openai": {"profile": "openai", "api_key": "${OPENAI_API_KEY}", "discover": True},
    }
    report = check_file(file, {"OPENAI_API_KEY": "a", "GROQ_API_KEY": "b"})
    assert (report.faults, report.warnings) == ((), ())


def test_servers_of_this_machine_are_looked_for(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {port: f"http://127.0.0.1:{port}/v1" for port in (11434, 8000, 30000, 8080)}
    owners = {8000: "vllm", 8080: "sglang"}
    monkeypatch.setattr(
        module,
        "local_servers",
        lambda: {port: Listing(url, ("m",), owners.get(port, "")) for port, url in found.items()},
    )
    assert run("--detect").exit_code == 0
    assert json.dumps(upstreams(file)) == json.dumps(
        {
            "ollama": {"base_url": found[11434], "discover": True},
            "local": {"profile": "vllm", "discover": True},
            "local-2": {"base_url": found[30000], "discover": True},
            "local-3": {"profile": "sglang", "base_url": found[8080], "discover": True},
        }
    )


def test_nothing_is_written_where_nothing_is_found(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "local_servers", dict)
    done = run("--detect", "--from-env")
    assert done.exit_code == 1
    assert "found nothing on the usual ports and in the environment" in done.stderr
    assert not file.exists()


def test_a_file_that_is_there_is_kept(file: Path) -> None:
    file.write_text("mine\n")
    done = run()
    assert done.exit_code == 1
    assert "--force replaces it" in done.stderr
    assert file.read_text() == "mine\n"
    assert run("--force").exit_code == 0
    assert file.read_text() != "mine\n"


def test_it_can_be_printed(file: Path) -> None:
    done = run("--output", "-")
    assert yaml.safe_load(done.stdout)["upstreams"]["local"]["discover"] is True
    assert not file.exists()


def test_a_place_that_cannot_be_written(file: Path) -> None:
    done = run("--output", "nowhere/x.yaml")
    assert done.exit_code == 1
    assert "cannot write nowhere/x.yaml: No such file or directory" in done.stderr
