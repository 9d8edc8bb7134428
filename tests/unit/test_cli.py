"""The command line."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

import sluicegate
from sluicegate.cli import main
from sluicegate.config import Config

GOOD = """\
upstreams: {local: {base_url: "http://127.0.0.1:1/v1", api_key: "${LOCAL_KEY}"}}
models: {tiny: local}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gate.yaml"
    path.write_text(GOOD)
    return path


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Config, Path | None]]:
    """What the server was asked to serve; it is not started."""
    calls: list[tuple[Config, Path | None]] = []
    server = ModuleType("sluicegate.server")

    def serve(config: Config, path: Path | None) -> int:
        calls.append((config, path))
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


def test_serve_hands_the_configuration_to_the_server(
    file: Path, served: list[tuple[Config, Path | None]]
) -> None:
    done = run("serve", "--config", file, LOCAL_KEY="x")
    assert done.exit_code == 0, done.output
    ((config, path),) = served
    assert path == file
    assert (config.server.host, config.server.port) == ("127.0.0.1", 8080)
    assert list(config.models) == ["tiny"]


def test_serve_options_come_before_the_file(file: Path, served: list[tuple[Config, Path | None]]) -> None:
    options = ("--host", "127.0.0.2", "--port", 0, "--threads", 3)
    assert run("serve", "--config", file, *options, LOCAL_KEY="x").exit_code == 0
    server = served[0][0].server
    assert (server.host, server.port, server.threads) == ("127.0.0.2", 0, 3)


@pytest.mark.parametrize("options", [("--port", "70000"), ("--threads", "0"), ("--port", "x")])
def test_serve_refuses_options_that_cannot_be(options: tuple[str, str], served: list[Any]) -> None:
    assert run("serve", *options).exit_code == 2
    assert served == []


def test_serve_without_a_file_runs_the_defaults_and_says_so(served: list[tuple[Config, Path | None]]) -> None:
    done = run("serve")
    assert done.exit_code == 0
    assert served == [(Config.default(), None)]
    assert "No --config" in done.stderr
    assert "mock-1" in done.stderr
    assert "http://127.0.0.1:18101/v1" in done.stderr


def test_serve_warns_of_a_gateway_that_is_open_to_all(served: list[Any]) -> None:
    assert "no keys" in run("serve", "--host", "0.0.0.0").stderr
    assert "no keys" not in run("serve", "--host", "::1").stderr


def test_serve_ends_with_the_servers_status(monkeypatch: pytest.MonkeyPatch, served: list[Any]) -> None:
    monkeypatch.setattr(sys.modules["sluicegate.server"], "serve", lambda config, path: 3)
    assert run("serve").exit_code == 3


def test_serve_refuses_a_file_with_faults(file: Path, served: list[Any]) -> None:
    done = run("serve", "--config", file)
    assert done.exit_code == 1
    assert "LOCAL_KEY is not set" in done.stderr
    assert served == []


def test_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(sluicegate), "__version__", "1.2.3")
    assert run("--version").output == "sluicegate 1.2.3\n"


@pytest.mark.parametrize("command", ["serve", "check", "schema", "mock", "demo"])
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
