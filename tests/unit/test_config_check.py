"""Checking a configuration: all faults, their paths, their hints, and no secrets in any of it."""

import copy
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sluicegate._core import Deadlines, Upstream
from sluicegate.config import BoundsConfig, Config, Report, check_file, json_schema, load_data, load_file
from sluicegate.config.values import default_all_bodies
from sluicegate.errors import ConfigurationError, ConfigurationFault, Error

GOOD: dict[str, Any] = {
    "keys": [{"name": "team-a", "key": "sekrit-a"}],
    "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1", "api_key": "sekrit-b"}},
    "models": {"tiny": [{"upstream": "local", "model": "tiny-q4"}]},
    "prices": {"tiny": {"input": 0.5, "cached_input": 0.1, "output": 2}},
}


def faults(data: dict[str, Any], environ: dict[str, str] | None = None) -> dict[str, ConfigurationFault]:
    with pytest.raises(ConfigurationError) as caught:
        load_data(data, environ or {})
    return {fault.path: fault for fault in caught.value.faults}


def changed(path: str, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(GOOD)
    *steps, last = path.split(".")
    inner: Any = data
    for step in steps:
        inner = inner[int(step)] if step.isdigit() else inner.setdefault(step, {})
    inner[int(last) if last.isdigit() else last] = value
    return data


def test_a_good_configuration_loads() -> None:
    config = load_data(GOOD, {})
    assert config.models["tiny"].routes[0].model == "tiny-q4"
    assert config.server.port == 8080
    assert str(config.prices["tiny"].input) == "0.5"


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "gate.yaml"
    file.write_text(
        """\
server: {port: 70000, prot: 1, workers: 2, threads: true}
keys:
  - {name: a, key: "${NOPE}"}
  - {name: b, key: ""}
  - {name: c}
upstreams:
  local:
    base_url: ftp://host
    dialect: opnai
    dialect: openai
    deadlines: {conect: 1, total: "${T}"}
    http2: maybe
models:
  tiny: [{upstream: locl, model: tiny}, local/x]
  gpt-4.1: {upstream: lcal}
  none: {routes: [], replymodel: public}
  bar: {routes: [{upstream: local, model: 4, modle: 1}]}
  baz: 3
prices:
  tiny: {input: 0.5, output: abc, tiers: [{abov: 3}]}
cost: {style: openruter}
metrics: {}
"""
    )
    report = check_file(file, {})
    assert report.config is None
    assert [(fault.line, fault.path) for fault in report.faults] == [
        (1, "server.port"),
        (1, "server.threads"),
        (1, "server.prot"),
        (1, "server.workers"),
        (3, "keys[0].key"),
        (4, "keys[1].key"),
        (5, "keys[2].key"),
        (8, "upstreams.local.base_url"),
        (10, "upstreams.local.dialect"),
        (11, "upstreams.local.deadlines.total"),
        (11, "upstreams.local.deadlines.conect"),
        (12, "upstreams.local.http2"),
        (14, "models.tiny[0].upstream"),
        (15, 'models."gpt-4.1".upstream'),
        (16, "models.none.routes"),
        (16, "models.none.replymodel"),
        (17, "models.bar.routes[0].model"),
        (17, "models.bar.routes[0].modle"),
        (18, "models.baz"),
        (20, "prices.tiny.output"),
        (20, "prices.tiny.tiers[0].above"),
        (20, "prices.tiny.tiers[0].abov"),
        (21, "cost.style"),
        (22, "metrics"),
    ]


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("sever", "server"),
        ("server.prot", "port"),
        ("server.log.levle", "level"),
        ("upstreams.local.base_ulr", "base_url"),
        ("upstreams.local.deadlines.frist_token", "first_token"),
        ("keys.0.nmae", "name"),
        ("models.tiny.0.upstraem", "upstream"),
        ("prices.tiny.cached_inptu", "cached_input"),
        ("cost.styel", "style"),
    ],
)
def test_an_unknown_key_is_refused_with_a_suggestion(path: str, hint: str) -> None:
    found = faults(changed(path, 1))
    (fault,) = found.values()
    assert fault.path == re.sub(r"\.(\d+)", r"[\1]", path)
    assert fault.hint == f"did you mean `{hint}`?"


def test_an_unknown_key_like_no_other_is_refused_with_what_is_known() -> None:
    assert faults(changed("cost.zzz", 1))["cost.zzz"].hint == "known: function, genai_prices, style"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("server.port", 65536, "should be less than or equal to 65535"),
        ("server.port", -1, "should be greater than or equal to 0"),
        ("server.port", True, "should be a number"),
        ("server.port", "eighty", "should be a whole number"),
        ("server.port", 80.5, "should be a whole number"),
        ("server.host", "", "is empty"),
        ("server.workers", 1, "is not a setting any more: the gateway is one process"),
        ("server.threads", 0, "should be greater than or equal to 1"),
        ("server.threads", 257, "should be less than or equal to 256"),
        ("server.bounds.head_bytes", 8191, "should be greater than or equal to 8192"),
        ("server.bounds.head_bytes", 1048577, "should be less than or equal to 1048576"),
        ("server.bounds.headers", 0, "should be greater than or equal to 1"),
        ("server.bounds.headers", 1001, "should be less than or equal to 1000"),
        ("server.bounds.headers", True, "should be a number"),
        ("server.bounds.head_seconds", 0, "should be greater than 0"),
        ("server.bounds.head_seconds", 3601, "should be less than or equal to 3600"),
        ("server.bounds.body_pause_seconds", 3601, "should be less than or equal to 3600"),
        ("server.bounds.idle_seconds", float("nan"), "should be a finite number"),
        ("server.bounds.idle_seconds", 1e300, "should be less than or equal to 3600"),
        ("server.bounds.connections", 0, "should be greater than or equal to 1"),
        ("server.bounds.connections", 10**30, None),
        ("server.bounds.requests", 1_000_001, "should be less than or equal to 1000000"),
        ("server.bounds.http2_streams", 10_001, "should be less than or equal to 10000"),
        ("server.bounds.http2_resets", 0, "should be greater than or equal to 1"),
        ("server.bounds.client_stall_seconds", None, "should be a number"),
        ("server.bounds.client_stall_seconds", 86400, "should be less than or equal to 3600"),
        ("access", "closed", "should be 'open' or 'keys'"),
        ("access", "open", "says `open`, and there are keys"),
        ("server.max_body_bytes", 0, "should be greater than or equal to 1"),
        ("server.drain_seconds", 0, "should be greater than 0"),
        ("server.drain_seconds", float("inf"), "should be a finite number"),
        ("server.drain_seconds", 2592001, "should be less than or equal to 2592000"),
        ("server.max_body_bytes", 2**30 + 1, "should be less than or equal to 1073741824"),
        ("server.disconnect_drain.bytes", 2**40 + 1, "should be less than or equal to 1099511627776"),
        ("upstreams.local.deadlines.total", 1e19, "should be less than or equal to 2592000"),
        ("upstreams.local.pool_max_idle", 10**6 + 1, "should be less than or equal to 1000000"),
        ("responses.retention_seconds", 1e10, "should be less than or equal to 315360000"),
        ("prices.tiny.tiers", [{"above": 10**13}], None),
        ("server", None, "should be a mapping"),
        ("server", [], "should be a mapping"),
        ("server.client_buffer_bytes", 1000, "should be greater than or equal to 131072"),
        ("server.http", "http3", "should be 'http1' or 'auto'"),
        ("server.disconnect_drain", {"replies": -1}, None),
        ("keys", [], "is empty"),
        ("keys", {}, "should be a list"),
        ("keys.0.name", " a", "is empty, or has spaces around it or unprintable characters in it"),
        ("keys.0.key", "", "is empty"),
        ("keys.0.key", "sekrit with spaces", "cannot be sent in a header"),
        ("keys.0.key", "sekrit\n", "cannot be sent in a header"),
        ("keys.0.key", 12345, "should be text"),
        ("upstreams", {}, "is empty"),
        ("upstreams", None, "should be a mapping"),
        ("models", {}, "is empty"),
        ("upstreams.local.base_url", "127.0.0.1:1", "is not an http or https URL"),
        ("upstreams.local.base_url", "http://", "is not a URL with a host"),
        ("upstreams.local.base_url", "http://[::1", "is not a URL"),
        ("upstreams.local.base_url", "http://host:99999/v1", "has a wrong port"),
        ("upstreams.local.base_url", "http://ho st/v1", "is not a URL with a host"),
        ("upstreams.local.base_url", "http://user:sekrit@host/v1", "carries a user or a password"),
        ("upstreams.local.base_url", "http://host/v1?key=sekrit", "has a query or a fragment"),
        ("upstreams.local.base_url", "http://host/v1/chat/completions", "names an endpoint"),
        ("upstreams.local.base_url", None, "should be text"),
        ("upstreams.local.api_key", "", "is empty"),
        ("upstreams.local.api", "soap", "should be 'chat', 'responses', 'messages', 'both' or a list"),
        ("upstreams.local.api", [], "is empty"),
        ("upstreams.local.api", ["chat", "chat"], "names one interface twice"),
        ("upstreams.local.stream_options", "perhaps", "should be true or false"),
        ("upstreams.local.headers", {"a b": "sekrit"}, "has a name that is not a header name"),
        ("upstreams.local.headers", {"X-A": "sekrit\r\nX-B: 1"}, "the value of X-A cannot be sent"),
        ("upstreams.local.headers", {"X-A": "1", "x-a": "2"}, "names one header twice"),
        ("upstreams.local.headers", {"Content-Length": "1"}, "Content-Length belongs to the connection"),
        ("upstreams.local.forward_authorization", True, None),
        ("upstreams.local.forward_headers", ["a b"], "has a name that is not a header name"),
        ("upstreams.local.forward_headers", ["Cookie"], "Cookie is the client's with the gateway"),
        ("upstreams.local.forward_headers", ["Host"], "Host is made anew by the gateway"),
        ("upstreams.local.forward_headers", ["Authorization"], "Authorization is not passed on by name"),
        ("upstreams.local.forward_headers", "x-a", "should be a list"),
        ("upstreams.local.reply_headers", ["Set-Cookie"], "Set-Cookie is true only of the upstream's host"),
        ("upstreams.local.reply_headers", ["date"], "date is made anew by the gateway"),
        ("upstreams.local.ca_file", "/no/such/file.pem", "names a file that is not there"),
        ("upstreams.local.socket", "", "is empty"),
        ("upstreams.local.client_cert_file", __file__, None),
        ("upstreams.local.pool_max_idle", -1, "should be greater than or equal to 0"),
        ("upstreams.a/b", {"base_url": "http://host"}, None),
        ("models.tiny", 3, "should be a mapping"),
        ("models.tiny", "elsewhere/tiny", None),
        ("models.tiny", "/tiny", None),
        ("models.tiny.0.model", 4, "should be text"),
        ("models.tiny", {"routes": ["local"], "on_client_leave": "linger"}, None),
        ("models. ", "local", None),
        ("prices.tiny.input", -1, "should be greater than or equal to 0"),
        ("prices.tiny.input", "free", "should be a number"),
        ("prices.tiny.input", float("nan"), "should be a finite number"),
        ("prices.tiny.input", "0.1234567890123456789012345", None),
        ("prices.tiny.tiers", [{"above": 1}, {"above": 1}], "has two tiers above the same number of tokens"),
        ("cost.style", "pounds", "should be 'openrouter', 'cocoon' or 'none'"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_is_a_fault_at_its_path(path: str, value: Any, message: str | None) -> None:
    found = faults(changed(path, value))
    spelled = re.sub(r"\.(\d+)", r"[\1]", path)
    assert len(found) == 1
    (fault,) = found.values()
    if message is not None:
        # One of several headers or paths is told of by itself.
        assert fault.path == spelled or fault.path.startswith((f"{spelled}.", f"{spelled}["))
        assert fault.message == message
    assert "sekrit" not in str(fault)


HEADERS = [
    "accept-encoding", "access-control-allow-origin", "alt-svc", "authorization", "cache-control",
    "connection", "content-encoding", "content-length", "content-type", "cookie", "date", "expect", "host",
    "keep-alive",
    "proxy-authenticate", "proxy-authorization", "proxy-connection", "server", "set-cookie",
    "strict-transport-security", "te", "trailer", "transfer-encoding", "upgrade", "x-accel-buffering",
    "x-anything", "x-request-id",
]  # fmt: skip


@pytest.mark.parametrize("setting", ["forward_headers", "reply_headers"])
@pytest.mark.parametrize("name", HEADERS)
def test_the_check_refuses_the_headers_that_the_relay_refuses(setting: str, name: str) -> None:
    refused = []
    attempts: list[Callable[[], object]] = [
        lambda: load_data(changed(f"upstreams.local.{setting}", [name]), {}),
        lambda: Upstream("local", "http://127.0.0.1:1", **{setting: [name]}),  # type: ignore[arg-type]
    ]
    for attempt in attempts:
        try:
            attempt()
        except ConfigurationError:
            refused.append(attempt)
    assert len(refused) in (0, 2), refused


def test_keys_have_names_and_values_of_their_own() -> None:
    same_name = [{"name": "a", "key": "sekrit-1"}, {"name": "a", "key": "sekrit-2"}]
    same_key = [{"name": "a", "key": "sekrit-1"}, {"name": "b", "key": "sekrit-1"}]
    found = faults(changed("keys", same_name))
    assert found["keys[1].name"].message == "is `a`, as the name of keys[0] is"
    found = faults(changed("keys", same_key))
    assert found["keys[1].key"].message == "is the same key under two names: `a` and `b`"


def test_what_is_missing_is_said() -> None:
    found = faults({})
    assert {path: fault.message for path, fault in found.items()} == {
        "upstreams": "is missing",
        "models": "is missing",
    }


def test_a_file_that_is_not_a_mapping_is_a_fault(tmp_path: Path) -> None:
    file = tmp_path / "gate.yaml"
    file.write_text("- a\n- b\n")
    (fault,) = check_file(file, {}).faults
    assert (fault.path, fault.message) == ("", "should be a mapping")


def test_a_missing_variable_is_the_only_fault_of_its_value() -> None:
    data = changed("server.port", "${PORT}")
    data["upstreams"]["local"]["base_url"] = "${URL}"
    data["upstreams"]["local"]["dialect"] = "${DIALECT}"
    found = faults(data)
    assert set(found) == {"server.port", "upstreams.local.base_url", "upstreams.local.dialect"}
    assert all("environment variable" in fault.message for fault in found.values())


def test_variables_fill_every_kind_of_value() -> None:
    data = changed("server.port", "${PORT}")
    data["upstreams"]["local"]["http2"] = "${HTTP2}"
    data["prices"]["tiny"]["input"] = "${PRICE}"
    config = load_data(data, {"PORT": "9000", "HTTP2": "true", "PRICE": "0.10"})
    assert config.server.port == 9000
    assert config.upstreams["local"].http2 is True
    assert str(config.prices["tiny"].input) == "0.10"


def test_an_upstream_with_faults_is_still_known_to_routes() -> None:
    assert set(faults(changed("upstreams.local.base_url", "x"))) == {"upstreams.local.base_url"}


def test_routes_lead_to_upstreams_however_the_configuration_is_made() -> None:
    with pytest.raises(ValidationError):
        Config.model_validate({**GOOD, "models": {"tiny": "elsewhere"}})


# === forms ===


@pytest.mark.parametrize(
    ("form", "routes"),
    [
        ("local", [("local", "tiny")]),
        ("local/meta/llama", [("local", "meta/llama")]),
        (["local", "local/x"], [("local", "tiny"), ("local", "x")]),
        ({"upstream": "local"}, [("local", "tiny")]),
        ([{"upstream": "local", "model": "x"}], [("local", "x")]),
        ({"routes": ["local/x"], "reply_model": "public"}, [("local", "x")]),
        ({"routes": [{"upstream": "local"}]}, [("local", "tiny")]),
    ],
)
def test_a_model_has_short_forms(form: Any, routes: list[tuple[str, str]]) -> None:
    model = load_data(changed("models.tiny", form), {}).models["tiny"]
    assert [(route.upstream, route.model) for route in model.routes] == routes
    assert model.reply_model == ("public" if isinstance(form, dict) and "reply_model" in form else "upstream")


def test_a_price_is_the_decimal_that_was_written(tmp_path: Path) -> None:
    (tmp_path / "gate.yaml").write_text(json.dumps(changed("prices.tiny.input", 0.1)))
    (tmp_path / "gate.toml").write_text(
        'models.tiny = "local"\nupstreams.local.base_url = "http://h"\nprices.tiny.input = 0.1\n'
    )
    for name in ("gate.yaml", "gate.toml"):
        assert str(load_file(tmp_path / name, {}).prices["tiny"].input) == "0.1"


def test_tiers_are_put_in_order() -> None:
    data = changed("prices.tiny.tiers", [{"above": 20}, {"above": 10}])
    assert [tier.above for tier in load_data(data, {}).prices["tiny"].tiers] == [10, 20]


def test_a_base_url_loses_its_last_slash() -> None:
    config = load_data(changed("upstreams.local.base_url", "https://host/v1/"), {})
    assert config.upstreams["local"].base_url == "https://host/v1"


# === warnings ===


def warnings(data: dict[str, Any], tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "gate.yaml"
    file.write_text(json.dumps(data))
    report = check_file(file, {})
    assert report.faults == ()
    assert report.config is not None
    assert all(warning.line is not None for warning in report.warnings)
    return {warning.path: warning.message for warning in report.warnings}


def test_a_good_configuration_has_no_warnings(tmp_path: Path) -> None:
    assert warnings(GOOD, tmp_path) == {}


def test_what_is_legal_but_odd_is_a_warning(tmp_path: Path) -> None:
    data = changed("prices.tyni", {"input": 1})
    data["upstreams"]["spare"] = {"base_url": "http://host/v1"}
    data["prices"]["tiny"] = {"input": 1, "output": 2}
    data["server"] = {"host": "0.0.0.0"}
    del data["keys"]
    found = warnings(data, tmp_path)
    assert set(found) == {"server.host", "upstreams.spare", "prices.tyni", "prices.tiny"}
    assert found["prices.tyni"] == "prices a model that is not configured"


def test_passing_the_gateways_own_keys_to_an_upstream_is_a_warning(tmp_path: Path) -> None:
    data = changed("upstreams.local", {"base_url": "http://host/v1", "forward_authorization": True})
    assert set(warnings(data, tmp_path)) == {"upstreams.local.forward_authorization"}
    del data["keys"]
    assert warnings(data, tmp_path) == {}


@pytest.mark.parametrize(
    ("host", "warned"),
    [
        ("127.0.0.1", False),
        ("::1", False),
        ("localhost", False),
        ("0.0.0.0", True),
        ("::", True),
        ("me", True),
    ],
)
def test_a_gateway_that_is_open_to_other_machines_should_say_so(host: str, warned: bool) -> None:
    data = changed("server.host", host)
    assert load_data(data, {}).is_open_unsaid is False
    del data["keys"]
    assert load_data(data, {}).is_open_unsaid is warned
    assert load_data({**data, "access": "open"}, {}).is_open_unsaid is False


# === who may call ===


def test_keys_are_asked_for_where_there_are_some() -> None:
    assert load_data(GOOD, {}).access is None
    assert load_data({**GOOD, "access": "keys"}, {}).access == "keys"


def test_keys_with_faults_are_not_called_missing_as_well() -> None:
    assert set(faults({**changed("keys.0.key", ""), "access": "keys"})) == {"keys[0].key"}


# === the client's side ===


def test_one_thread_is_left_for_python(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, threads in ((1, 1), (2, 1), (8, 7), (1000, 256)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=cores: set(range(n)), raising=False)
        assert load_data({**GOOD, "server": {}}, {}).server.threads == threads
    assert load_data(changed("server.threads", 3), {}).server.threads == 3


def test_bodies_may_take_a_quarter_of_a_small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    mib = 1024 * 1024
    for memory, room in ((100, 64), (400, 100)):
        names = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": memory * mib // 4096}
        monkeypatch.setattr(os, "sysconf", names.__getitem__)
        server: dict[str, Any] = {"bounds": {}}
        assert load_data({**GOOD, "server": server}, {}).server.bounds.all_bodies_bytes == room * mib


def test_every_bound_has_a_default() -> None:
    assert load_data(GOOD, {}).server.bounds.model_dump() == {
        "head_bytes": 16384,
        "url_bytes": 8192,
        "headers": 100,
        "head_seconds": 15.0,
        "body_pause_seconds": 30.0,
        "body_bytes_per_second": 500,
        "idle_seconds": 75.0,
        "connections": None,
        "requests": 10_000,
        "all_bodies_bytes": default_all_bodies(),
        "hold_upload_bytes": 65536,
        "http2_streams": 128,
        "http2_resets": 128,
        "client_stall_seconds": 60.0,
    }


def test_every_bound_is_bounded_in_the_schema_too() -> None:
    bounds = json_schema()["$defs"]["BoundsConfig"]["properties"]
    assert set(bounds) == set(BoundsConfig.model_fields)
    for name, bound in bounds.items():
        assert '"maximum"' in json.dumps(bound), name


# === secrets ===


def test_no_secret_shows_in_any_form_of_the_configuration() -> None:
    data = changed("upstreams.local.headers", {"X-Secret": "sekrit-c"})
    config = load_data(data, {})
    forms = [repr(config), str(config), config.model_dump_json(), str(config.model_dump())]
    assert not any("sekrit" in form for form in forms)
    assert config.keys[0].key.get_secret_value() == "sekrit-a"
    assert config.upstreams["local"].headers["X-Secret"].get_secret_value() == "sekrit-c"


def test_no_secret_shows_in_an_error() -> None:
    data = changed(
        "keys", [{"name": "a", "key": "sekrit-1", "kye": "sekrit-2"}, "sekrit-3", {"name": ["sekrit-4"]}]
    )
    data["upstreams"]["local"] |= {"headers": "sekrit-5", "api_key": ["sekrit-6"], "base_url": "sekrit-7"}
    with pytest.raises(ConfigurationError) as caught:
        load_data(data, {})
    assert "sekrit" not in str(caught.value) + repr(caught.value)


def test_the_configuration_is_frozen() -> None:
    config = load_data(GOOD, {})
    with pytest.raises(ValidationError):
        config.server.port = 1


def test_faults_print_with_path_line_and_hint() -> None:
    fault = ConfigurationFault("a.b", "is wrong", "mend it", 3)
    assert str(fault) == "a.b (line 3): is wrong [mend it]"
    assert str(ConfigurationFault("", "is wrong")) == "configuration: is wrong"
    error = ConfigurationError([fault, ConfigurationFault("c", "too")])
    assert str(error).splitlines() == [str(fault), "c: too"]
    assert isinstance(error, Error)
    assert ConfigurationError("one thing").faults == (ConfigurationFault("", "one thing"),)


def test_a_report_has_a_configuration_or_faults(tmp_path: Path) -> None:
    report = check_file(tmp_path / "none.yaml", {})
    assert isinstance(report, Report)
    assert report.config is None
    assert report.faults


# === schema ===


def test_the_schema_lets_through_what_the_check_lets_through() -> None:
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    definitions = schema["$defs"]
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["upstreams"]
    port = definitions["ServerConfig"]["properties"]["port"]
    assert {"type": "integer", "minimum": 0, "maximum": 65535} in port["anyOf"]
    assert any(re.search(form.get("pattern", "^$"), "${PORT}") for form in port["anyOf"])
    kinds = {form.get("type", "reference") for form in definitions["ModelConfig"]["anyOf"]}
    assert kinds == {"reference", "array", "object"}
    assert {form["type"] for form in definitions["RouteConfig"]["anyOf"]} == {"string", "object"}
    assert definitions["KeyConfig"]["properties"]["key"]["writeOnly"] is True


def numbers(part: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(part, dict):
        if part.get("type") in ("number", "integer"):
            yield ".".join(path), part
        for name, value in part.items():
            yield from numbers(value, (*path, name))
    elif isinstance(part, list):
        for value in part:
            yield from numbers(value, path)


def test_every_number_has_bounds() -> None:
    found = list(numbers(json_schema()))
    assert len(found) > 30
    without = {path for path, schema in found if "maximum" not in schema}
    # A price neither becomes a time nor a size, and its digits are bounded.
    prices = (".PriceConfig.", ".TierConfig.", ".ChangedPriceConfig.")
    assert all(any(price in path for price in prices) for path in without), without
    assert all("minimum" in schema or "exclusiveMinimum" in schema for _, schema in found)


@pytest.mark.parametrize("value", [1e19, 1e300, 2592001.0, float("inf"), float("nan"), -1.0])
def test_the_relay_refuses_what_is_no_time(value: float) -> None:
    for made in (
        lambda: Deadlines(total=value),
        lambda: Upstream("local", "http://127.0.0.1:1", pool_idle_seconds=value),
    ):
        with pytest.raises(ValueError, match="is not between 0 and 2592000 seconds"):
            made()


def test_the_schema_is_json_without_pydantic_leftovers() -> None:
    keywords: set[str] = set()

    def collect(part: Any, names_follow: bool = False) -> None:
        if isinstance(part, dict):
            for name, value in part.items():
                if not names_follow:
                    keywords.add(name)
                collect(value, names_follow=name in ("properties", "$defs") and not names_follow)
        elif isinstance(part, list):
            for value in part:
                collect(value)

    collect(json.loads(json.dumps(json_schema())))
    assert not keywords & {"gt", "ge", "lt", "le", "max_digits"}
