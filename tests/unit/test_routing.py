"""From the configuration to deployments, which name stands for what, and which faults another may lack."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.front import FakeFault
from sluicegate import _core
from sluicegate.config import load_data, wildcard_matches
from sluicegate.routing import ModelTable, may_succeed_elsewhere
from sluicegate.routing.names import Wildcards
from sluicegate.routing.verdict import Effect

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


def routes(table: ModelTable, name: str) -> list[tuple[str, str]]:
    model = table.find(name)
    assert model is not None
    ways = [deployment.route(model.asked, model.star) for deployment in model.deployments]
    return [(route.upstream.name, route.model) for route in ways]


def test_deployments_are_in_the_order_of_the_configuration() -> None:
    table = ModelTable(load_data(CONFIG))
    assert [model.name for model in table] == ["plain", "pair"]
    assert len(table) == 2
    assert routes(table, "pair") == [("local", "a"), ("spare", "b")]


def test_an_upstream_is_shared_by_its_routes() -> None:
    table = ModelTable(load_data(CONFIG))
    plain, pair = table.get("plain"), table.get("pair")
    assert plain is not None
    assert pair is not None
    one, other = plain.deployments[0].route("plain", ""), pair.deployments[0].route("pair", "")
    assert one.upstream is other.upstream


def test_a_route_without_a_model_keeps_the_public_name() -> None:
    assert routes(ModelTable(load_data(CONFIG)), "plain") == [("local", "plain")]


def test_names_are_not_guessed() -> None:
    table = ModelTable(load_data(CONFIG))
    assert table.find("PLAIN") is None
    assert table.find("") is None


# === an upstream without a model ===


def test_what_stands_for_an_upstream_is_no_model() -> None:
    config = {**CONFIG, "passthrough": [{"path": "/v1/files", "upstream": "spare"}]}
    table = ModelTable(load_data(config))
    spare = table.upstream("spare")
    assert spare is not None
    assert (spare.name, spare.label, spare.described) == ("", "", "the upstream `spare`")
    [deployment] = spare.deployments
    assert (deployment.name, deployment.route("", "").model) == ("spare/(passthrough)", "")
    assert [model.name for model in table] == ["plain", "pair"]
    assert table.find("") is None
    assert table.upstream("local") is None
    assert len(table.groups) == 3
    later = ModelTable(load_data(config), table).upstream("spare")
    assert later is not None
    assert later.deployments[0].load is deployment.load


def test_a_model_that_it_lacks_does_not_have_it_left_alone() -> None:
    """The client has named it, in a body that nobody read."""
    config = {**CONFIG, "passthrough": [{"path": "/v1/files", "upstream": "spare"}]}
    spare = ModelTable(load_data(config)).upstream("spare")
    assert spare is not None
    body = b'{"error":{"code":"model_not_found","message":"The model `x` does not exist"}}'
    fault: Any = FakeFault("status", status=404, body=body)
    assert spare.deployments[0].verdict(fault, 0.0).effect is Effect.SUCCESS


# === aliases and wildcards ===

NAMED: dict[str, Any] = {
    **CONFIG,
    "models": {
        **CONFIG["models"],
        "openai/*": "spare/*",
        "openai/gpt-*": ["spare/gpt-*", "local/own-*"],
        "*-mini": "local/small-*",
        "openai/gpt-5": "local/five",
        "whole/*": "spare",
    },
    "aliases": {"gpt-4o-mini": "plain", "mini": "gpt-4o-mini", "four": "openai/gpt-4"},
}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("openai/gpt-5", [("local", "five")]),
        ("openai/gpt-4", [("spare", "gpt-4"), ("local", "own-4")]),
        ("openai/o3", [("spare", "o3")]),
        ("openai/o3/x", [("spare", "o3/x")]),
        # Twelve characters of the pattern are more than five.
        ("openai/gpt-4-mini", [("spare", "gpt-4-mini"), ("local", "own-4-mini")]),
        # As many as there are in `openai/*` would be too few.
        ("big-mini", [("local", "small-big")]),
        ("gpt-4o-mini", [("local", "plain")]),
        ("mini", [("local", "plain")]),
        ("four", [("spare", "gpt-4"), ("local", "own-4")]),
        ("whole/x", [("spare", "whole/x")]),
    ],
)
def test_an_exact_name_goes_before_an_alias_and_that_before_the_longest_wildcard(
    name: str, found: list[tuple[str, str]]
) -> None:
    assert routes(ModelTable(load_data(NAMED)), name) == found


@pytest.mark.parametrize("name", ["openai/", "-mini", "other", "openai/\n", "openai/" + "x" * 300])
def test_a_star_stands_for_a_name_that_can_be_one(name: str) -> None:
    assert ModelTable(load_data(NAMED)).find(name) is None


@pytest.mark.parametrize(
    ("name", "public", "label"),
    [
        ("plain", "plain", "plain"),
        ("mini", "plain", "plain"),
        ("openai/o3", "openai/o3", "openai/*"),
        ("four", "openai/gpt-4", "openai/gpt-*"),
    ],
)
def test_a_label_is_never_what_a_client_made_up(name: str, public: str, label: str) -> None:
    model = ModelTable(load_data(NAMED)).find(name)
    assert model is not None
    assert (model.asked, model.name, model.label) == (name, public, label)


def test_models_and_aliases_are_listed_and_wildcards_as_far_as_they_are_known() -> None:
    config = load_data(NAMED)
    assert [model.asked for model in ModelTable(config)] == [
        "plain", "pair", "openai/gpt-5", "gpt-4o-mini", "mini", "four",
    ]  # fmt: skip
    known = ModelTable(config, matched=["openai/o3", "openai/gpt-5", "nobody/o3"])
    assert [model.asked for model in known] == [
        "plain", "pair", "openai/gpt-5", "openai/o3", "gpt-4o-mini", "mini", "four",
    ]  # fmt: skip


def test_all_that_a_wildcard_matches_is_one_deployment() -> None:
    table = ModelTable(load_data(NAMED))
    one, other = table.find("openai/o3"), table.find("openai/o4")
    assert one is not None
    assert other is not None
    assert one.deployments[0].load is other.deployments[0].load
    assert one.deployments[0].name == "spare/*"


@given(
    patterns=st.sets(st.from_regex(r"[ab/]{0,4}\*[ab/]{0,4}", fullmatch=True), max_size=12),
    name=st.text("ab/", max_size=10),
)
def test_the_longest_pattern_that_matches_is_found(patterns: set[str], name: str) -> None:
    found = Wildcards({pattern: pattern for pattern in patterns}).find(name)
    matching = [pattern for pattern in patterns if wildcard_matches(pattern, name)]
    if not matching:
        assert found is None
        return
    assert found is not None
    pattern, star = found
    assert pattern.replace("*", star) == name
    assert star
    assert len(pattern) == max(map(len, matching))


def test_the_cost_of_a_name_does_not_grow_with_the_patterns() -> None:
    class Counting(dict[str, Any]):
        looked_up = 0

        def get(self, *key: Any) -> Any:
            Counting.looked_up += 1
            return super().get(*key)

    patterns = {f"org-{number:05}/*": number for number in range(5_000)}
    wildcards = Wildcards(patterns)
    wildcards._by_beginning = Counting(wildcards._by_beginning)
    assert wildcards.find("org-04321/model") == (4321, "model")
    assert wildcards.find("org-99999/" + "x" * 240) is None
    assert Counting.looked_up == 2


OURS = {"total_timeout", "client_timeout", "too_large", "shutdown", "internal", "status"}


@pytest.mark.parametrize("kind", _core.FAULT_KINDS)
def test_a_fault_of_the_upstream_is_worth_another(kind: str) -> None:
    assert may_succeed_elsewhere(FakeFault(kind)) is (kind not in OURS)


@pytest.mark.parametrize("status", [401, 402, 403, 404, 408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_a_status_about_the_upstream_is_worth_another(status: int) -> None:
    assert may_succeed_elsewhere(FakeFault("status", status=status))


@pytest.mark.parametrize("status", [400, 405, 410, 413, 415, 422, 451, 301, None])
def test_a_status_about_the_request_is_not(status: int | None) -> None:
    assert not may_succeed_elsewhere(FakeFault("status", status=status))
