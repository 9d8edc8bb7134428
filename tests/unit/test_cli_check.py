"""`sluicegate check`: its forms, what it asks upstreams, and its status."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness import postgres
from harness.redis_server import redis_server
from sluicegate.cli import main
from sluicegate.testing import Script, ScriptedUpstream


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "sluicegate.yaml"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["check", *map(str, arguments)])


def write(file: Path, url: str, **more: Any) -> None:
    file.write_text(json.dumps({"upstreams": {"a": {"base_url": url}}, "models": {"x": "a"}, **more}) + "\n")


WARNED = {"prices": {"y": {"input": 1, "cached_input": 1}}}


def test_the_file_that_serve_would_read_is_checked(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(file.parent))
    done = run()
    assert done.exit_code == 2
    assert "there is no configuration at sluicegate.yaml, " in done.stderr
    write(file, "http://127.0.0.1:1/v1")
    assert run().stdout == "sluicegate.yaml: ok (upstreams: a; models: x)\n"


def test_warnings_fail_where_that_is_asked_for(file: Path) -> None:
    write(file, "http://127.0.0.1:1/v1", **WARNED)
    assert run(file).exit_code == 0
    done = run(file, "--strict")
    assert done.exit_code == 1
    assert done.stdout == ""
    assert "warning: prices.y" in done.stderr


def test_json_is_for_programs(file: Path) -> None:
    write(file, "http://127.0.0.1:1/v1", **WARNED)
    done = run(file, "--format", "json", "--strict")
    assert done.exit_code == 1
    assert json.loads(done.stdout) == {
        "file": str(file),
        "ok": False,
        "faults": [],
        "warnings": [
            {
                "path": "prices.y",
                "line": 1,
                "message": "prices a model that is not configured",
                "hint": "take it out",
            }
        ],
    }
    file.write_text("upstreams: 3\n")
    found = json.loads(run(file, "--format", "json").stdout)
    assert {fault["path"] for fault in found["faults"]} == {"upstreams", "models"}


def test_github_shows_faults_at_their_lines(file: Path) -> None:
    odd = file.with_name("a,b%.yaml")
    odd.write_text("upstreams: {a: {base_url: http://h, pot: 1}}\nmodels: {x: a}\nprices: {y: {input: 1}}\n")
    done = run(odd, "--format", "github")
    assert done.exit_code == 1
    place = str(odd).replace("%", "%25").replace(",", "%2C")
    assert done.stdout.startswith(f"::error file={place},line=1::upstreams.a.pot: is not known here (")


def test_the_store_must_have_a_place(file: Path) -> None:
    write(file, "http://127.0.0.1:1/v1", responses={"path": str(file / "responses.db")})
    done = run(file)
    assert done.exit_code == 1
    assert "error: responses.path: is below" in done.stderr
    assert "is not a directory (set `responses.path`" in done.stderr
    write(file, "http://127.0.0.1:1/v1", responses={"path": str(file.parent)})
    assert "which is not a file" in run(file).stderr
    write(file, "http://127.0.0.1:1/v1", responses={"path": str(file / "x"), "store": False})
    assert run(file).exit_code == 0
    # Looking makes nothing.
    write(file, "http://127.0.0.1:1/v1", responses={"path": str(file.parent / "new" / "x.db")})
    assert run(file).exit_code == 0
    assert not (file.parent / "new").exists()


def test_upstreams_are_asked_for_their_models(file: Path) -> None:
    with ScriptedUpstream.in_thread(models=("x", "z")) as upstream:
        write(file, upstream.base_url)
        done = run(file, "--connect")
        assert done.exit_code == 0, done.output
        assert f"a: answers at {upstream.base_url}, 2 models\n" in done.stdout
        assert [record.method for record in upstream.requests] == ["GET"]
        write(file, upstream.base_url, models={"x": "a/gone"})
        done = run(file, "--connect")
        assert done.exit_code == 0
        assert "warning: models.x: is not listed by a: gone (it lists x, z)" in done.stderr
        found = json.loads(run(file, "--connect", "--format", "json").stdout)
        assert found["upstreams"] == {"a": {"ok": True, "base_url": upstream.base_url, "models": ["x", "z"]}}


def test_what_has_no_fault_is_asked_beside_what_has(file: Path) -> None:
    with ScriptedUpstream.in_thread(models=("x",)) as upstream:
        upstreams = {"a": {"base_url": upstream.base_url}, "b": {"base_url": "ftp://b"}}
        upstreams["c"] = {"base_url": upstream.base_url, "api_key": "${NOT_SET}"}
        write(file, upstream.base_url, upstreams=upstreams, models={"x": ["a", "b", "c"], "y": "a"}, prot=1)
        done = run(file, "--connect")
        assert done.exit_code == 1
        assert f"a: answers at {upstream.base_url}, 1 model\n" == done.stdout
        assert len(upstream.requests) == 1
    said = [line.split(": ")[2] for line in done.stderr.splitlines()]
    assert {*said} == {"prot", "upstreams.b.base_url", "upstreams.c.api_key", "models.y"}


def stores(file: Path, done: Result) -> dict[str, Any]:
    assert "hunter" not in done.output
    found: dict[str, Any] = json.loads(done.stdout)
    assert all(fault["line"] is not None for fault in found["faults"])
    assert {fault["path"] for fault in found["faults"]} == {
        path for path, answer in found["stores"].items() if not answer["ok"]
    }
    return {path: answer.get("reason", "ok") for path, answer in found["stores"].items()}


def test_redis_is_asked_with_its_password(file: Path, tmp_path: Path) -> None:
    with (
        redis_server(tmp_path) as server,
        ScriptedUpstream.in_thread(models=("x",)) as upstream,
    ):
        with server.client() as client:
            client.config_set("requirepass", "hunter@2")

        def asked(url: str) -> str:
            write(file, upstream.base_url, storage={"counters": url})
            return str(stores(file, run(file, "--connect", "--format", "json"))["storage.counters"])

        at = f"127.0.0.1:{server.port}"
        assert asked(f"redis://:hunter%402@{at}") == "ok"
        assert "storage.counters: lets the gateway in\n" in run(file, "--connect").stdout
        assert "WRONGPASS" in asked(f"redis://:hunter3@{at}")
        assert "NOAUTH" in asked(f"redis://{at}")
        server.kill()
        assert "ConnectionRefusedError" in asked(f"redis://:hunter%402@{at}")
        assert "storage.counters: does not let the gateway in: " in run(file, "--connect").stderr


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("@db:99999/gate", "names a port that is none"),
        ("@db/gate?schema=public", "has a parameter that is not known here"),
        ("@db/gate?sslmode=require", "has a parameter that is not known here"),
        ("@db:x/gate", "its URL cannot be read"),
    ],
)
def test_a_url_that_cannot_be_used_is_a_fault_and_is_not_repeated(file: Path, rest: str, said: str) -> None:
    url = f"postgresql://gate:hunter2{rest}"
    write(file, "http://127.0.0.1:1/v1", storage={"database": url}, ledger={}, responses={"url": url})
    done = run(file)
    assert done.exit_code == 1
    for path in ("storage.database", "responses.url"):
        assert f": error: {path}: " in done.output, done.output
    assert said in done.output
    assert "hunter2" not in done.output
    assert "99999" not in done.output


def test_postgresql_is_asked_with_its_password(file: Path) -> None:
    with postgres.killable() as server, ScriptedUpstream.in_thread(models=("x",)) as upstream:
        at = server.url.rpartition("@")[2]

        def asked(url: str) -> dict[str, str]:
            more = {"storage": {"database": url}, "responses": {"url": server.url}}
            write(file, upstream.base_url, **more)
            return stores(file, run(file, "--connect", "--format", "json"))

        postgres.ask_for_password(server.url, "gate", "hunter2")
        assert asked(f"postgresql://gate:hunter2@{at}") == {"storage.database": "ok", "responses.url": "ok"}
        wrong = asked(f"postgresql://gate:hunter3@{at}")
        assert "password authentication failed" in wrong["storage.database"]
        assert wrong["responses.url"] == "ok"
        # What is no part of a URL without being escaped may be taken for a host or a port.
        for password in ("hunter:2", "hunter/2", "a@hunter", "a:b@hunter", "a#hunter", "a?hunter", "[hunter"):
            assert asked(f"postgresql://gate:{password}@{at}")["storage.database"] != "ok"
        server.kill()
        assert asked(f"postgresql://gate:hunter2@{at}")["storage.database"] != "ok"


def test_a_budget_that_cannot_see_what_a_model_costs_is_a_warning(file: Path) -> None:
    models = {"priced": "a", "llama-8b": "a", "llama-70b": "a", "any/*": "a/*"}
    limits: dict[str, Any] = {
        "blind": {"cost": "1/day"},
        "strict": {"cost": "1/day", "unpriced": "refuse"},
        "one": {"models": {"llama-8b": {"cost": "1/day"}}},
    }
    more: dict[str, Any] = {
        "models": models,
        "prices": {"priced": {"input": 1, "cached_input": 1}},
        "limits": limits,
        "callers": [
            {"name": "narrow", "limits": "blind", "models": ["priced"]},
            {"name": "wide", "limits": "blind", "models": ["llama-*"]},
            {"name": "strict", "limits": "strict"},
        ],
        "keys": [{"name": "one", "key": "sk-one-of-many", "limits": "one"}],
        "users": {"header": "x-user-id", "limits": "blind"},
    }
    write(file, "http://127.0.0.1:1/v1", **more)
    found = json.loads(run(file, "--format", "json").stdout)["warnings"]
    said = {warning["path"]: warning["message"] for warning in found if "limit of cost" in warning["message"]}
    about = "has a limit of cost, which cannot see models without a price: "
    assert said == {
        "callers[1]": about + "llama-8b, llama-70b",
        "keys[0]": about + "llama-8b",
        "users": about + "llama-8b, llama-70b, any/*",
    }
    write(file, "http://127.0.0.1:1/v1", **more, cost={"function": "math:hypot"})
    assert json.loads(run(file, "--format", "json").stdout)["warnings"] == []


def test_a_budget_that_cannot_see_what_a_wildcard_serves_is_a_warning(file: Path) -> None:
    any_model: dict[str, Any] = {
        "models": {"any/*": "a/*", "priced": "a"},
        "limits": {"low": {"cost": "1/day"}, "one": {"models": {"any/x": {"cost": "1/day"}}}},
        "callers": [
            {"name": "all", "limits": "low"},
            {"name": "some", "limits": "low", "models": ["an*", "priced"]},
            {"name": "named", "limits": "low", "models": ["any/x", "any/gpt-4o", "priced"]},
            {"name": "none", "limits": "low", "models": ["priced", "other*"]},
            {"name": "one", "limits": "one"},
        ],
        "keys": [{"name": "all", "key": "sk-1"}],
    }

    def said(prices: dict[str, Any], **more: Any) -> dict[str, str]:
        prices = {name: {"input": 1, "cached_input": 1} for name in ("priced", *prices)}
        write(file, "http://127.0.0.1:1/v1", **{**any_model, "prices": prices, **more})
        found = json.loads(run(file, "--format", "json").stdout)["warnings"]
        about = "has a limit of cost, which cannot see models without a price: "
        budgets = [each for each in found if each["message"].startswith(about)]
        return {each["path"]: each["message"].removeprefix(about) for each in budgets}

    wildcard = {"callers[0]": "any/*", "callers[1]": "any/*", "callers[4]": "any/*"}
    # What the genai-prices list has is no secret where the model is named.
    assert said({}) == {**wildcard, "callers[2]": "any/x"}
    assert said({"any/x": {}}) == wildcard
    assert said({"any/*": {}}) == said({"a/*": {}}) == said({"*": {}}) == {}
    listed = {"upstreams": {"a": {"base_url": "http://127.0.0.1:1/v1", "discover": {"prefix": "l/"}}}}
    assert said({"any/*": {}}, **listed) == {"callers[0]": "l/*"}
    assert said({"any/*": {}, "l/*": {}}, **listed) == {}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("no_such_module:price", "cannot be imported: ModuleNotFoundError"),
        ("math:price", "cannot be imported: AttributeError"),
        ("math", "cannot be imported"),
        ("math:pi", "is no function"),
        ("math:sqrt", "cannot be asked"),
    ],
)
def test_a_function_for_prices_is_one(file: Path, path: str, said: str) -> None:
    write(file, "http://127.0.0.1:1/v1", cost={"function": path})
    done = run(file)
    assert done.exit_code == 1
    assert "error: cost.function" in done.stderr
    assert said in done.stderr


@pytest.mark.parametrize(
    ("status", "exit_code", "message"),
    [
        (401, 1, "error: upstreams.a: wants a key, or another one (401) (`api_key: ${VARIABLE}`)"),
        (404, 0, "warning: upstreams.a: answered 404 to GET /models (its models cannot be checked)"),
    ],
)
def test_an_upstream_that_lists_nothing(file: Path, status: int, exit_code: int, message: str) -> None:
    with ScriptedUpstream.in_thread(Script(status=status)) as upstream:
        write(file, upstream.base_url)
        done = run(file, "--connect")
    assert done.exit_code == exit_code
    assert message in done.stderr


def test_an_upstream_that_is_not_there_is_a_fault(file: Path) -> None:
    write(file, "http://127.0.0.1:1/v1")
    done = run(file, "--connect")
    assert done.exit_code == 1
    assert "error: upstreams.a: refused the connection" in done.stderr


def test_counters_of_several_machines_are_checked(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(**storage: str) -> str:
        write(file, "http://127.0.0.1:1/v1", storage=storage)
        return run(file).stderr

    assert said(counters="redis://127.0.0.1:6379/1", counters_lost="allow") == ""
    assert said(counters="rediss://user:secret@redis.internal") == ""
    assert "does nothing without `counters`" in said(counters_lost="local")
    assert said(counters="unix://user:secret@/run/redis.sock?db=3") == ""
    # Sentinels know where a server is, and count nothing.
    others = ("http://127.0.0.1:6379", "redis+sentinel://host:26379/main", "unix://host/socket", "unix:///")
    faulty = ("redis://", "redis://host:port", "redis://host/one", "redis://host?db=1", "redis://user@host")
    for url in (*others, *faulty, "unix:///socket?db=1&timeout=3"):
        assert "is not a Redis URL" in said(counters=url)
    assert "does nothing without TLS" in said(counters="redis://host", counters_ca_file=str(file))
    assert "has no certificates in it" in said(counters="rediss://host", counters_ca_file=str(file))
    monkeypatch.setattr("sluicegate.storage.redis.find_spec", lambda name: None)
    assert "pip install 'sluicegate[redis]'" in said(counters="redis://127.0.0.1:6379")
