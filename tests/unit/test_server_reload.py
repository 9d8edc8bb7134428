"""When the configuration's file is read again, and what of it is taken."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sluicegate.config import Config, load_data
from sluicegate.gateway import create_app
from sluicegate.routing import ModelTable
from sluicegate.server.reload import Reloader, Stamp, stamp_of

CONFIG: dict[str, Any] = {
    "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1"}},
    "models": {"small": "local"},
    "cost": {"genai_prices": False},
}


class Said:
    def __init__(self) -> None:
        self.events: list[str] = []

    def error(self, event: str, **_: object) -> None:
        self.events.append(event)


class Stand:
    """A file, and what a reloader made of it. `looks` stands for time."""

    def __init__(self, path: Path, *, watch: bool = True) -> None:
        self.path = path
        self.models: list[list[str]] = []
        self.said = Said()
        self._turn = 0
        self.write(CONFIG)
        self.reloader = Reloader(path, stamp_of(path), self._changed, self.said, watch=watch)  # type: ignore[arg-type]

    def write(self, config: Any) -> None:
        self.path.write_text(config if isinstance(config, str) else json.dumps(config))
        # Two writes within one tick of the file system's clock are two all the same.
        self._turn += 1
        os.utime(self.path, ns=(self._turn, self._turn))

    def looks(self, count: int) -> None:
        for _ in range(count):
            self.reloader.look()

    def _changed(self, config: Config, stamp: Stamp) -> None:
        assert stamp == stamp_of(self.path)
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


def test_who_asks_is_served_at_once_whether_it_changed_or_not(stand: Stand) -> None:
    stand.reloader.ask()
    stand.looks(3)
    assert stand.models == [["small"]]


def test_a_file_that_is_not_watched_is_read_when_asked_for(tmp_path: Path) -> None:
    stand = Stand(tmp_path / "gateway.yaml", watch=False)
    stand.write(with_models("a"))
    stand.looks(5)
    assert stand.models == []
    stand.reloader.ask()
    stand.looks(1)
    assert stand.models == [["a"]]


@pytest.mark.parametrize("text", ["{}", '{"upstreams": {"u": {"base_url": "ftp://x"}}}', "{", "\0"])
def test_faults_are_told_once_and_change_nothing(stand: Stand, text: str) -> None:
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
    reloader = Reloader(
        path,
        stamp_of(path),
        lambda config, _: models.append(list(config.models)),
        Said(),  # type: ignore[arg-type]
        watch=True,
    )
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").replace(tmp_path / "now")
    for _ in range(4):
        reloader.look()
    assert models == [["two"]]


def test_a_thread_looks_by_itself_and_ends(stand: Stand) -> None:
    stand.reloader.start()
    stand.reloader.stop()
    stand.reloader.stop()


# === what is taken ===


def test_an_upstream_that_is_the_same_keeps_its_connections() -> None:
    before = ModelTable(load_data(CONFIG))
    same = ModelTable(load_data(with_models("small", "new")), before)
    [old], [new] = before.get("small").routes, same.get("new").routes  # type: ignore[union-attr]
    assert new.upstream is old.upstream
    other = {**CONFIG, "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1", "http2": True}}}
    [changed] = ModelTable(load_data(other), before).get("small").routes  # type: ignore[union-attr]
    assert changed.upstream is not old.upstream


def test_a_gateway_takes_all_but_the_server_section() -> None:
    gateway = create_app(load_data(CONFIG))
    fresh = {**with_models("new"), "server": {"port": 1, "max_body_bytes": 1}}
    gateway.reload(load_data(fresh))
    state = gateway._state
    assert [model.name for model in state.models] == ["new"]
    assert state.config.server == load_data(CONFIG).server


def test_prices_of_ones_own_stay() -> None:
    class Free:
        def price(self, *_: object) -> None:
            return None

    prices = Free()
    gateway = create_app(load_data(CONFIG), prices=prices)
    gateway.reload(load_data({**CONFIG, "prices": {"small": {"input": 1}}}))
    assert gateway._state.serving.prices is prices
