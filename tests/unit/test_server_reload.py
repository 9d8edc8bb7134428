"""When the configuration's file is read again, and what of it is taken."""

import hashlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from sluicegate._core import Upstream
from sluicegate.config import Config, load_change, load_data
from sluicegate.errors import ConfigurationError
from sluicegate.gateway import create_app
from sluicegate.routing import ModelTable
from sluicegate.server import reload
from sluicegate.server.reload import Reader
from sluicegate.telemetry import ConfigurationReport

CONFIG: dict[str, Any] = {
    "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1"}},
    "models": {"small": "local"},
    "cost": {"genai_prices": False},
}


NO_USAGE: Any = None


def report() -> ConfigurationReport:
    return ConfigurationReport(CollectorRegistry(), wall=lambda: 7.0)


class Said:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.restarts: list[str] = []

    def error(self, event: str, **_: object) -> None:
        self.events.append(event)

    def warning(self, event: str, section: str, settings: list[str]) -> None:
        assert event == "needs_restart"
        assert all(setting.startswith(f"{section}.") for setting in settings)
        self.restarts += settings


class Stand:
    """A file, and what a reader made of it. `looks` stands for time."""

    def __init__(self, path: Path, *, watch: bool = True, first: Any = CONFIG) -> None:
        self.path = path
        self.models: list[list[str]] = []
        self.said = Said()
        self.meanwhile: Callable[[], None] | None = None
        """Done once while a configuration is taken."""
        self._turn = 0
        self.write(first)
        self.running = load_data(first)
        self.report = report()
        self.reader = Reader(path, self.running, self._take, self.said, self.report, watch=watch)  # type: ignore[arg-type]
        self.reader.begin()

    def write(self, config: Any) -> None:
        self.path.write_text(config if isinstance(config, str) else json.dumps(config))
        # Two writes within one tick of the file system's clock are two all the same.
        self._turn += 1
        os.utime(self.path, ns=(self._turn, self._turn))

    def looks(self, count: int) -> None:
        for _ in range(count):
            self.reader.look()

    def _take(self, config: Config) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        self.models.append(list(config.models))


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path / "gateway.yaml")


def with_models(*names: str) -> dict[str, Any]:
    return {**CONFIG, "models": dict.fromkeys(names, "local")}


def test_a_file_that_stays_is_read_no_more(stand: Stand) -> None:
    stand.looks(5)
    assert (stand.models, stand.said.events) == ([], [])


def test_one_that_changes_is_read_once_it_has_settled(stand: Stand) -> None:
    stand.looks(1)
    stand.write(with_models("a"))
    stand.looks(1)
    assert stand.models == [], "it may still be written"
    stand.write(with_models("a", "b"))
    stand.looks(1)
    assert stand.models == []
    stand.looks(5)
    assert stand.models == [["a", "b"]]


def test_what_is_served_is_reported_and_what_cannot_be(stand: Stand) -> None:
    def hash_of_file() -> str:
        return hashlib.sha256(stand.path.read_bytes()).hexdigest()[:16]

    def values() -> list[float]:
        return [sample.value for family in stand.report.collect() for sample in family.samples]

    begun = hash_of_file()
    assert (stand.report.path, stand.report.hash) == (str(stand.path), begun)
    assert (stand.report.failure, values()) == (None, [0, 7, 0, 0])

    stand.write({**CONFIG, "models": {"small": "nobody"}})
    stand.looks(3)
    assert stand.report.hash == begun, "what was served before still is"
    failure = stand.report.failure
    assert failure is not None
    assert failure.at == 7.0
    assert any("nobody" in fault for fault in failure.faults)
    assert values() == [1, 7, 0, 1]

    stand.write(with_models("a"))
    stand.looks(3)
    assert stand.report.hash == hash_of_file() != begun
    assert (stand.report.failure, values()) == (None, [0, 7, 1, 1])


def test_a_file_that_is_another_than_what_runs_has_not_been_served(tmp_path: Path) -> None:
    stand = Stand(tmp_path / "gateway.yaml")
    stand.write(with_models("a"))
    late = Reader(stand.path, stand.running, stand._take, stand.said, report(), watch=True)  # type: ignore[arg-type]
    late.begin()
    assert late._report.hash is None


def test_who_asks_is_served_whether_it_changed_or_not(stand: Stand) -> None:
    stand.reader.ask()
    stand.looks(3)
    assert stand.models == [["small"]]


def test_who_asks_waits_for_a_file_to_settle(stand: Stand) -> None:
    for name in ("a", "b"):
        stand.write(with_models(name))
        stand.reader.ask()
        stand.looks(1)
        assert stand.models == [], "it may still be written"
    stand.looks(3)
    assert stand.models == [["b"]]


def test_a_file_that_is_not_watched_is_read_when_asked_for(tmp_path: Path) -> None:
    stand = Stand(tmp_path / "gateway.yaml", watch=False)
    stand.write(with_models("a"))
    stand.looks(5)
    assert stand.models == []
    stand.reader.ask()
    stand.looks(1)
    assert stand.models == [["a"]]


def test_what_is_written_while_it_is_read_does_not_count(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that changes between a look and the end of the reading is read once more."""
    load = load_change

    def slowly(path: Path, running: Config) -> Config:
        config = load(path, running)
        monkeypatch.undo()
        stand.write(with_models("later"))
        return config

    stand.write(with_models("sooner"))
    stand.looks(1)
    monkeypatch.setattr(reload, "load_change", slowly)
    stand.looks(1)
    assert stand.models == []
    stand.looks(5)
    assert stand.models == [["later"]]


def test_what_changed_before_anybody_looked_is_seen(tmp_path: Path) -> None:
    stand = Stand(tmp_path / "gateway.yaml")
    stand.write(with_models("new"))
    late = Reader(stand.path, stand.running, stand._take, stand.said, report(), watch=True)  # type: ignore[arg-type]
    late.begin()
    for _ in range(5):
        late.look()
    assert stand.models == [["new"]]


def test_one_that_the_gateway_cannot_have_is_told(stand: Stand) -> None:
    def refuse() -> None:
        raise ConfigurationError("no")

    stand.meanwhile = refuse
    stand.write(with_models("a"))
    stand.looks(5)
    assert (stand.models, stand.said.events) == ([], ["reload_failed"])


@pytest.mark.parametrize("text", ["", "{}", '{"upstreams": {"u": {"base_url": "ftp://x"}}}', "{", "\0"])
def test_faults_are_logged_once_and_change_nothing(stand: Stand, text: str) -> None:
    stand.write(text)
    stand.looks(5)
    assert (stand.models, stand.said.events) == ([], ["reload_failed"])
    stand.write(with_models("right"))
    stand.looks(5)
    assert stand.models == [["right"]]


def test_a_file_that_goes_and_comes_again_is_no_end(stand: Stand) -> None:
    stand.path.unlink()
    stand.looks(5)
    assert stand.said.events == ["reload_failed"]
    stand.write(with_models("back"))
    stand.looks(5)
    assert stand.models == [["back"]]


def test_a_link_that_is_turned_is_a_change(tmp_path: Path) -> None:
    """As Kubernetes replaces the files of a ConfigMap."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "gateway.yaml").write_text(json.dumps(with_models(name)))
    (tmp_path / "now").symlink_to("one")
    path = tmp_path / "now" / "gateway.yaml"
    models: list[list[str]] = []
    reader = Reader(
        path,
        load_data(with_models("one")),
        lambda config: models.append(list(config.models)),
        Said(),  # type: ignore[arg-type]
        report(),
        watch=True,
    )
    reader.begin()
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").replace(tmp_path / "now")
    for _ in range(4):
        reader.look()
    assert models == [["two"]]


def test_a_thread_looks_by_itself_and_ends(stand: Stand) -> None:
    before = threading.active_count()
    stand.reader.start()
    assert threading.active_count() == before + 1
    stand.reader.stop()
    stand.reader.stop()
    stand.reader._thread.join(10)
    assert threading.active_count() == before


# === who may call ===

KEYS = {**CONFIG, "keys": [{"name": "team", "key": "sk-team"}]}


def test_keys_that_go_do_not_open_the_gateway(tmp_path: Path) -> None:
    stand = Stand(tmp_path / "gateway.yaml", first=KEYS)
    stand.write(CONFIG)
    stand.looks(5)
    assert (stand.models, stand.said.events) == ([], ["reload_failed"])
    stand.write({**CONFIG, "access": "open"})
    stand.looks(5)
    assert stand.models == [["small"]]


def test_the_last_that_was_taken_counts(stand: Stand) -> None:
    """Not what the process began with."""
    stand.write(KEYS)
    stand.looks(5)
    stand.write(with_models("open"))
    stand.looks(5)
    assert (stand.models, stand.said.events) == ([["small"]], ["reload_failed"])


# === what needs a restart ===


def test_a_section_that_needs_a_restart_is_named_once_a_change(stand: Stand) -> None:
    changed = {**CONFIG, "server": {"port": 1}, "responses": {"concurrency": 1}}
    stand.write(changed)
    stand.looks(5)
    assert stand.said.restarts == ["server.port", "responses.concurrency"]
    stand.write({**changed, "models": {"new": "local"}})
    stand.looks(5)
    assert stand.said.restarts == ["server.port", "responses.concurrency"], "these have been told"
    stand.write({**changed, "server": {"port": 2}})
    stand.looks(5)
    assert stand.said.restarts == ["server.port", "responses.concurrency", "server.port"]
    stand.write(CONFIG)
    stand.looks(5)
    assert len(stand.said.restarts) == 3, "it is as the process began"
    assert len(stand.models) == 4


def test_options_of_the_command_line_are_no_change(stand: Stand) -> None:
    begun = stand.running
    given = begun.model_copy(update={"server": begun.server.model_copy(update={"port": 1234})})
    reader = Reader(stand.path, given, stand._take, stand.said, report(), watch=True)  # type: ignore[arg-type]
    reader.begin()
    reader.look()
    assert stand.models == []
    stand.write(with_models("new"))
    for _ in range(5):
        reader.look()
    assert (stand.models, stand.said.restarts) == ([["new"]], [])


# === what is taken ===


def upstream_of(table: ModelTable, name: str) -> Upstream:
    model = table.get(name)
    assert model is not None
    [deployment] = model.deployments
    return deployment.route(name, "").upstream


def test_an_upstream_that_is_the_same_keeps_its_connections() -> None:
    before = ModelTable(load_data(CONFIG))
    same = ModelTable(load_data(with_models("small", "new")), before)
    old, new = upstream_of(before, "small"), upstream_of(same, "new")
    assert new is old
    other = {**CONFIG, "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1", "http2": True}}}
    assert upstream_of(ModelTable(load_data(other), before), "small") is not old


def test_a_gateway_takes_all_but_the_server_section() -> None:
    gateway = create_app(load_data(CONFIG))
    fresh = {**with_models("new"), "server": {"port": 1, "max_body_bytes": 1}}
    gateway.reload(load_data(fresh))
    state = gateway._state
    assert [model.name for model in state.models] == ["new"]
    assert state.config.server == load_data(CONFIG).server


def test_prices_of_ones_own_stay() -> None:
    asked: list[str] = []

    class Free:
        def price(self, model: str, *_: object) -> None:
            asked.append(model)

    prices = Free()
    gateway = create_app(load_data(CONFIG), prices=prices)
    gateway.reload(load_data({**CONFIG, "prices": {"small": {"input": 1}}}))
    assert gateway._state.serving.prices.cost("small", "small", NO_USAGE) is None
    assert asked == ["small"]
