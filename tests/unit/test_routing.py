"""From the configuration to routes, and which faults are worth another."""

from typing import Any

import pytest

from fakes.front import FakeFault
from sluicegate import _core
from sluicegate.config import load_data
from sluicegate.routing import ModelTable, Ordered, may_succeed_elsewhere

CONFIG: dict[str, Any] = {
    "upstreams": {
        "local": {"base_url": "http://127.0.0.1:1/v1"},
        "spare": {"base_url": "http://127.0.0.1:2/v1", "api_key": "sk-up", "headers": {"X-Org": "é"}},
    },
    "models": {
        "plain": "local",
        "pair": {"routes": ["local/a", "spare/b"], "reply_model": "public"},
    },
}

FACTS: Any = None
"""Of no interest to the policy here."""


def test_routes_are_in_the_order_of_the_configuration() -> None:
    table = ModelTable(load_data(CONFIG))
    assert [model.name for model in table] == ["plain", "pair"]
    assert len(table) == 2
    pair = table.get("pair")
    assert pair is not None
    assert [(route.upstream.name, route.model) for route in Ordered().order(pair, FACTS)] == [
        ("local", "a"), ("spare", "b"),
    ]  # fmt: skip


def test_an_upstream_is_shared_by_its_routes() -> None:
    table = ModelTable(load_data(CONFIG))
    plain, pair = table.get("plain"), table.get("pair")
    assert plain is not None
    assert pair is not None
    assert plain.routes[0].upstream is pair.routes[0].upstream


def test_a_route_without_a_model_keeps_the_public_name() -> None:
    plain = ModelTable(load_data(CONFIG)).get("plain")
    assert plain is not None
    assert plain.routes[0].model == "plain"


def test_names_are_not_guessed() -> None:
    table = ModelTable(load_data(CONFIG))
    assert table.get("PLAIN") is None
    assert table.get("") is None


OURS = {"total_timeout", "too_large", "shutdown", "internal", "status"}


@pytest.mark.parametrize("kind", _core.FAULT_KINDS)
def test_a_fault_of_the_upstream_is_worth_another(kind: str) -> None:
    assert may_succeed_elsewhere(FakeFault(kind)) is (kind not in OURS)


@pytest.mark.parametrize("status", [401, 402, 403, 404, 408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_a_status_about_the_upstream_is_worth_another(status: int) -> None:
    assert may_succeed_elsewhere(FakeFault("status", status=status))


@pytest.mark.parametrize("status", [400, 405, 410, 413, 415, 422, 451, 301, None])
def test_a_status_about_the_request_is_not(status: int | None) -> None:
    assert not may_succeed_elsewhere(FakeFault("status", status=status))
