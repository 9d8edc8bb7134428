"""The command line."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import yaml
from click.testing import CliRunner, Result

import sluicegate
from sluicegate.cli import main
from sluicegate.config import Config, load_data
from sluicegate.discovery import Listing

# The command has the name of its module.
serving = import_module("sluicegate.cli.serve")

GOOD = """\
upstreams: {local: {base_url: "http://127.0.0.1:1/v1", api_key: "${LOCAL_KEY}"}}
models: {tiny: local}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gate.yaml"
    path.write_text(GOOD)
    return path


class Served(NamedTuple):
    """What the server was asked to serve."""

    config: Config
    path: Path | None
    ports: Sequence[int]
    tell: object


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Served]:
    """What the server was asked to serve; it is not started."""
    calls: list[Served] = []
    server = ModuleType("sluicegate.server")

    def serve(config: Config, path: Path | None, *, ports: Sequence[int], tell: object) -> int:
        calls.append(Served(config, path, ports, tell))
        return 0

    server.serve = serve  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sluicegate.server", server)
    return calls


def run(*arguments: Any, **environ: str) -> Result:
    return CliRunner().invoke(
        main, [str(argument) for argument in arguments], env={"LOCAL_KEY": None, **environ}
    )


def test_check_says_that_a_good_file_is_good(file: Path) -> None:
    done = run("check", file, LOCAL_KEY="sekrit")
    assert done.exit_code == 0
    assert done.stdout == f"{file}: ok (upstreams: local; models: tiny)\n"
    assert "sekrit" not in done.output


def test_check_shows_every_fault_with_its_line(file: Path) -> None:
    file.write_text(GOOD + "server: {prot: 1}\n")
    done = run("check", file)
    assert done.exit_code == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f"{file}:1: error: upstreams.local.api_key: the environment variable LOCAL_KEY is not set"
        " (set it, or write ${LOCAL_KEY:-default})",
        f"{file}:3: error: server.prot: is not known here (did you mean `port`?)",
    ]


def test_check_shows_warnings_and_goes_on(file: Path) -> None:
    file.write_text(GOOD + "prices: {tyni: {input: 1}}\n")
    done = run("check", file, LOCAL_KEY="x")
    assert done.exit_code == 0
    assert "warning: prices.tyni: prices a model that is not configured" in done.stderr


def test_check_of_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = run("check", tmp_path / "none.yaml")
    assert done.exit_code == 1
    assert done.stderr == f"{tmp_path / 'none.yaml'}: error: cannot be read: No such file or directory\n"


def test_schema_is_json() -> None:
    done = run("schema")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["title"] == "Config"


def test_serve_hands_the_configuration_to_the_server(file: Path, served: list[Served]) -> None:
    done = run("serve", "--config", file, LOCAL_KEY="x")
    assert done.exit_code == 0, done.output
    ((config, path, _, _),) = served
    assert path == file
    assert (config.server.host, config.server.port) == ("127.0.0.1", 8080)
    assert list(config.models) == ["tiny"]


def test_serve_options_come_before_the_file(file: Path, served: list[Served]) -> None:
    options = ("--host", "127.0.0.2", "--port", 0, "--threads", 3)
    assert run("serve", "--config", file, *options, LOCAL_KEY="x").exit_code == 0
    server = served[0].config.server
    assert (server.host, server.port, server.threads) == ("127.0.0.2", 0, 3)


@pytest.mark.parametrize("options", [("--port", "70000"), ("--threads", "0"), ("--port", "x")])
def test_serve_refuses_options_that_cannot_be(options: tuple[str, str], served: list[Served]) -> None:
    assert run("serve", *options).exit_code == 2
    assert served == []


def test_serve_takes_a_file_in_three_ways(
    file: Path, served: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("serve", file, LOCAL_KEY="x").exit_code == 0
    assert run("serve", "-c", file, LOCAL_KEY="x").exit_code == 0
    file.rename(file.with_name("sluicegate.yaml"))
    monkeypatch.chdir(file.parent)
    assert run("serve", LOCAL_KEY="x").exit_code == 0
    assert [call.path for call in served] == [file, file, Path("sluicegate.yaml")]
    # A person at a terminal is told; a supervisor reads the log.
    assert [call.tell for call in served] == [None, None, None]
    assert [call.ports for call in served] == [(), (), ()]


def test_serve_reads_the_users_file_where_there_is_none_here(
    file: Path, served: list[Served], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = tmp_path / "config" / "sluicegate" / "config.yaml"
    users.parent.mkdir(parents=True)
    file.rename(users)
    monkeypatch.chdir(tmp_path)
    assert run("serve", LOCAL_KEY="x", XDG_CONFIG_HOME=str(tmp_path / "config")).exit_code == 0
    assert served[0].path == users


def test_serve_without_anything_lists_what_answers(
    served: list[Served], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        serving,
        "local_servers",
        lambda: {11434: Listing("http://127.0.0.1:11434/v1", ("a", "b", "c", "d"))},
    )
    done = run("serve", XDG_CONFIG_HOME=str(tmp_path))
    assert done.exit_code == 2
    assert "  sluicegate.yaml\n" in done.stderr
    assert "sluicegate serve --upstream http://127.0.0.1:11434    # a, b, c and 1 more" in done.stderr
    monkeypatch.setattr(serving, "local_servers", dict)
    done = run("serve", XDG_CONFIG_HOME=str(tmp_path))
    assert "on the usual ports of this machine: 8080, 8000, 1234, 11434, 30000." in done.stderr
    assert served == []


def test_serve_needs_no_file_where_an_upstream_is_named(served: list[Served]) -> None:
    done = run(
        *("serve", "--upstream", "http://10.0.0.1:8000/v1", "--upstream", "b=https://api.openai.com/v1"),
        *("--key-env", "B_KEY", "--no-store"),
        B_KEY="sekrit",
    )
    assert done.exit_code == 0, done.output
    (call,) = served
    assert list(call.config.upstreams) == ["local", "b"]
    assert call.config.upstreams["local"].discover is not None
    assert call.config.upstreams["local"].api_key is None
    key = call.config.upstreams["b"].api_key
    assert key is not None
    assert key.get_secret_value() == "sekrit"
    assert call.config.models == {}
    assert not call.config.responses.store
    assert call.path is None
    assert call.ports == range(8080, 8090)
    assert call.tell is not None


def test_a_port_that_is_named_is_the_only_one(served: list[Served]) -> None:
    assert run("serve", "--upstream", "http://h", "--port", "8085").exit_code == 0
    assert served[0].ports == ()
    assert served[0].config.server.port == 8085


def test_serve_shows_what_its_options_stand_for(served: list[Served]) -> None:
    options = (
        "--upstream=localhost:11434",
        "--key-env=A_KEY",
        "--host",
        "::1",
        "--upstream",
        "x=http://h/v1",
    )
    done = run("serve", *options, "--print-config", A_KEY="sekrit")
    assert done.exit_code == 0, done.output
    assert yaml.safe_load(done.stdout) == {
        "server": {"host": "::1"},
        "upstreams": {
            "ollama": {"base_url": "http://localhost:11434", "discover": True, "api_key": "${A_KEY}"},
            "x": {"base_url": "http://h/v1", "discover": True},
        },
    }
    assert load_data(yaml.safe_load(done.stdout), {"A_KEY": "sekrit"}).server.host == "::1"
    assert served == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("x.yaml", "--config", "y.yaml"), "twice"),
        (("x.yaml", "--upstream", "http://h"), "exclude each other"),
        (("--print-config",), "--upstream"),
        (("--key-env", "HOME", "--upstream", "http://h"), "must follow"),
        (("--upstream", "http://h", "--key-env", "HOME", "--key-env", "PATH"), "must follow"),
        (("--upstream", "http://h", "--key-env", "NOT_SET_ANYWHERE"), "NOT_SET_ANYWHERE is not set"),
        (("--upstream", "http://h", "--key-env", "sk-sekrit"), "not a key"),
        (("--upstream", "a=http://h", "--upstream", "a=http://i"), "two upstreams are called a"),
        (("--upstream", "a=ftp://h"), "upstreams.a.base_url"),
        (("--upstream", "--upstream"), "cannot be values"),
    ],
)
def test_serve_refuses_options_that_contradict_each_other(
    options: tuple[str, ...], message: str, served: list[Served]
) -> None:
    done = run("serve", *options)
    assert done.exit_code == 2
    assert message in done.stderr
    assert "sekrit" not in done.stderr
    assert served == []


def test_serve_warns_of_a_gateway_that_is_open_to_all(served: list[Served]) -> None:
    upstream = ("serve", "--upstream", "http://127.0.0.1:1/v1")
    assert "no keys" in run(*upstream, "--host", "0.0.0.0").stderr
    assert "no keys" not in run(*upstream, "--host", "::1").stderr


def test_serve_ends_with_the_servers_status(monkeypatch: pytest.MonkeyPatch, served: list[Served]) -> None:
    monkeypatch.setattr(sys.modules["sluicegate.server"], "serve", lambda *_, **__: 3)
    assert run("serve", "--upstream", "http://h").exit_code == 3


def test_serve_refuses_a_file_with_faults(file: Path, served: list[Served]) -> None:
    done = run("serve", "--config", file)
    assert done.exit_code == 1
    assert "LOCAL_KEY is not set" in done.stderr
    assert served == []


def test_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(sluicegate), "__version__", "1.2.3")
    assert run("--version").output == "sluicegate 1.2.3\n"


@pytest.mark.parametrize("command", ["serve", "init", "check", "explain", "import", "schema", "mock", "demo"])
def test_every_command_explains_itself(command: str) -> None:
    done = run(command, "--help")
    assert done.exit_code == 0
    assert done.output.startswith("Usage: main " + command)


def test_demo_ends_with_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluicegate.testing.demo.run_demo", lambda: 1)
    assert run("demo").exit_code == 1
    monkeypatch.setattr("sluicegate.testing.demo.run_demo", lambda: 0)
    assert run("demo").exit_code == 0


# === the scripted upstream ===


@pytest.mark.parametrize("script", ["[]", "{x", '{"tokns": 1}', '{"port": 1}', '{"tokens": "many"}'])
def test_mock_refuses_a_script_that_cannot_be(script: str) -> None:
    done = run("mock", "--script", script)
    assert done.exit_code == 2
    assert "Invalid value for --script" in done.stderr


def test_mock_says_that_a_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("mock", "--port", taken.getsockname()[1])
    assert done.exit_code == 1
    assert "cannot listen on 127.0.0.1" in done.stderr


def test_mock_serves_its_models_until_it_is_told_to_stop() -> None:
    command = (sys.executable, "-m", "sluicegate", "mock", "--port", "0", "--model", "a", "--model", "b")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:\d+/v1", process.stdout.readline())
            assert found is not None
            with urllib.request.urlopen(f"{found[0]}/models", timeout=10) as reply:
                assert [model["id"] for model in json.load(reply)["data"]] == ["a", "b"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
        finally:
            process.kill()
