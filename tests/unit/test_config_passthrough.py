"""Paths of the operator's own, in a configuration: what is good, what is wrong, and what to do about it."""

import copy
from typing import Any

import pytest

from sluicegate._core import ENDPOINTS
from sluicegate.config import Config, PassthroughConfig, load_data
from sluicegate.config.check import check_source
from sluicegate.config.passthrough import POSTED, RESERVED_NAMES, WHOLE
from sluicegate.config.source import Source
from sluicegate.errors import ConfigurationError, ConfigurationFault
from sluicegate.gateway import create_app
from sluicegate.gateway.app import Gateway
from sluicegate.gateway.engines import start_engines

BASE: dict[str, Any] = {
    "upstreams": {name: {"base_url": "http://127.0.0.1:1/v1"} for name in ("hosted", "gpu-a")},
    "models": {"tiny": "hosted"},
    "access": "open",
}


def load(*paths: dict[str, Any]) -> Config:
    return load_data({**copy.deepcopy(BASE), "passthrough": [*paths]}, {})


def wrong(*paths: dict[str, Any]) -> ConfigurationFault:
    with pytest.raises(ConfigurationError) as caught:
        load(*paths)
    assert len(caught.value.faults) == 1, caught.value.faults
    return caught.value.faults[0]


def to(path: str, **settings: Any) -> dict[str, Any]:
    return {"path": path, "upstream": "hosted", **settings}


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        (to("/v1/files/*"), ("GET", "POST", "PUT", "PATCH", "DELETE")),
        (to("/v1/files", methods=["GET", "GET"]), ("GET",)),
        ({"path": "/v1/classify", "model": "json"}, ("POST",)),
        ({"path": "/v1/align", "model": "form", "methods": ["PUT"]}, ("PUT",)),
        ({"path": "/v1beta/models/{model}:embed", "model": "path", "name": "gemini"}, None),
    ],
)
def test_a_path_leads_to_an_upstream_or_a_model(path: dict[str, Any], taken: tuple[str, ...] | None) -> None:
    found = load(path).passthrough[0]
    assert taken is None or found.taken == taken
    assert found.name == path.get("name", "passthrough")


WRONG = [
    ({"path": "/v1/files"}, "", "neither `upstream` nor `model`", "upstream: NAME"),
    (to("/v1/files", model="json"), "", "both `upstream` and `model`", "upstream: NAME"),
    (to("/v1/{model}/x"), "", "does not say `model: path`", "{model}"),
    ({"path": "/v1/x", "model": "path"}, "", "no `{model}` in its path", "{model}"),
    ({"path": "/v1/x", "model": "json", "methods": ["GET"]}, ".methods", "without a body", "take it out"),
    ({"path": "/v1/x", "model": "body"}, ".model", "should be 'json', 'form' or 'path'", None),
    (to("/v1/files", methods=[]), ".methods", "is empty", "leave it out"),
    (to("/v1/files", methods=["get"]), ".methods[0]", "should be 'GET'", None),
    (to("/v1/files", upstream="hostd"), ".upstream", "'hostd', which is not configured", "`hosted`"),
    (to("/v1/files", name="chat_completions"), ".name", "endpoint of the gateway's own", "another one"),
    *[
        (to(path), ".path", "is no path that can be forwarded", "/v1/files/*")
        for path in (
            "v1/files", "/", "/*", "/a*", "/*/a", "/a/", "//a", "/a b", "/a?b=c", "/a%2e", "/a/../b", "/./a",
            "/a/..;x", "/{model}/{model}", "/{name}", "/a/**",
        )
    ],
]  # fmt: skip


@pytest.mark.parametrize(("path", "place", "message", "hint"), WRONG)
def test_what_is_wrong_is_said_at_its_place(
    path: dict[str, Any], place: str, message: str, hint: str | None
) -> None:
    fault = wrong(path)
    assert fault.path == f"passthrough[0]{place}"
    assert message in fault.message
    assert hint is None or hint in (fault.hint or "")


@pytest.mark.parametrize("path", [path for path, _, _ in ENDPOINTS])
def test_an_endpoint_of_the_gateways_own_is_not_taken(path: str) -> None:
    for own in (path, path.rpartition("/")[0] + "/*"):
        if own == "/*":
            continue
        fault = wrong(to(own, methods=["POST"]))
        assert fault.path == "passthrough[0].path"
        assert "takes the gateway's own" in fault.message
    if not path.startswith("/v1/responses"):
        assert load(to(path, methods=["GET"])), "which is free"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models", "/v1/models/tiny", "/v1/models/*", "/v1/responses/resp_1/cancel", "/v1/*", "/health",
        "/healthz", "/readyz", "/metrics", "/metrics/*",
    ],
)  # fmt: skip
def test_what_the_gateway_answers_itself_is_not_taken(path: str) -> None:
    assert "takes the gateway's own" in wrong(to(path, methods=["GET"])).message


def test_a_place_for_a_model_may_mean_the_gateways_own_path_too() -> None:
    path = {"path": "/v1/audio/{model}", "model": "path"}
    assert "/v1/audio/speech" in wrong(path).message
    assert load(path | {"methods": ["GET"]})
    assert load({"path": "/v1/audio/{model}:run", "model": "path"})


def test_a_path_behind_another_that_takes_all_of_its_requests_is_told_of() -> None:
    for first, second in (
        (to("/v1/files/*"), to("/v1/files/a/content")),
        (to("/v1/files/*"), to("/v1/files/*", upstream="gpu-a")),
        ({"path": "/x/{model}/*", "model": "path"}, to("/x/a/b")),
        (to("/v1/files"), to("/v1/files", methods=["GET"])),
    ):
        fault = wrong(first, second)
        assert "which takes all of its requests" in fault.message
        assert fault.hint == "put it first, or take it out"
        if first["path"] != second["path"]:
            assert load(second, first)
    assert load(to("/v1/files", methods=["GET"]), to("/v1/files"))
    assert load(to("/v1/files"), to("/v1/files/*"))


def test_there_is_an_end_to_them() -> None:
    assert "more than 100 paths" in wrong(*(to(f"/x/{number}") for number in range(101))).message
    assert load(*(to(f"/x/{number}") for number in range(100)))


def test_an_upstream_for_paths_alone_has_a_use() -> None:
    data = {**copy.deepcopy(BASE), "passthrough": [to("/v1/files", upstream="gpu-a")]}
    assert not check_source(Source(data=data), {}).warnings


# === what the gateway and the configuration both name ===


def test_the_configuration_knows_the_gateways_endpoints() -> None:
    assert {path for path, _, _ in ENDPOINTS} == {*POSTED, "/v1/responses"}
    assert {name for _, name, _ in ENDPOINTS} <= RESERVED_NAMES


def methods_at(app: Gateway, path: str) -> dict[str, str]:
    return {method: name for method, (name, _) in (app._methods(path) or {}).items()}


def test_the_configuration_knows_what_the_gateway_answers_itself() -> None:
    app = create_app(load_data(BASE, {}))
    bare = {whole.removesuffix("/*") for whole in WHOLE}
    assert app._endpoints.keys() == {*POSTED, *bare}
    below = ["/v1/models/a", "/v1/responses/a", "/v1/responses/a/cancel", "/v1/responses/a/input_items"]
    for path in (*app._endpoints, *below):
        names = {name for name in methods_at(app, path).values() if name}
        assert names <= RESERVED_NAMES, path


def test_the_engines_take_what_the_configuration_takes() -> None:
    config = load(
        to("/v1/files/*"),
        {"path": "/v1/align", "model": "form"},
        {"path": "/v1/classify", "model": "json"},
        {"path": "/v1beta/models/{model}:embed", "model": "path"},
        to("/a-._~!$&'()+,;=:@/b"),
    )
    _, front = start_engines(config)
    try:
        front.passthrough([of(path) for path in config.passthrough])
        assert [method for method, _ in front.passthrough_methods("/v1/files/a")] == [
            *config.passthrough[0].taken
        ]
        assert front.passthrough_methods("/v1beta/models/a%2Fb:embed")
        assert front.passthrough_methods("/a-._~!$&'()+,;=:@/b")
        assert front.passthrough_methods("/v1/files/../x") == []
        no_place = ("n", "/a", ["GET"], None, None)
        two_places = ("n", "/a/{model}", ["GET"], None, "u")
        no_path: Any = ("n", "a", [], None, "u")
        for bad in (no_place, two_places, no_path):
            with pytest.raises(ValueError, match="a"):
                front.passthrough([bad])
    finally:
        front.close()


def of(path: PassthroughConfig) -> Any:
    return path.name, path.path, path.taken, path.model, path.upstream
