"""`sluicegate import litellm`: what has a counterpart, and what is listed instead."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.cli import main
from sluicegate.cli.litellm import translate
from sluicegate.config import load_data
from sluicegate.pricing import PriceTable
from sluicegate.routing import ModelTable

WHOLE = """\
model_list:
  - model_name: gpt-4o
    litellm_params:
      model: sagemaker/gpt-4o-eu
      api_base: https://example.com
  - model_name: tiny
    litellm_params:
      model: openai/org/tiny-q4
      api_base: http://127.0.0.1:8000/v1
      api_key: os.environ/LOCAL_KEY
      timeout: 300
      stream_timeout: 20
      rpm: 20
      input_cost_per_token: 0.0000005
      output_cost_per_token: 2e-6
  - model_name: tiny
    litellm_params: {model: ollama/tiny}
    model_info: {mode: chat, supports_vision: true, tier: free}
  - model_name: gpt-4.1
    litellm_params: {model: gpt-4.1, organization: org-1}
litellm_settings:
  drop_params: true
  request_timeout: 600
  fallbacks: [{gpt-4.1: [tiny, gone]}]
router_settings:
  routing_strategy: least-busy
general_settings:
  master_key: os.environ/MASTER_KEY
  database_url: os.environ/DATABASE_URL
"""
ENVIRON = {
    "LOCAL_KEY": "a",
    "OPENAI_API_KEY": "b",
    "MASTER_KEY": "c",
    "API_BASE": "http://h/v1",
    "DATABASE_URL": "postgresql://gate@db/gate",
}


def run(file: Path, text: str) -> Result:
    file.write_text(text)
    return CliRunner().invoke(main, ["import", "litellm", str(file)])


def model(target: str, **params: Any) -> dict[str, Any]:
    return {"model_list": [{"model_name": "m", "litellm_params": {"model": target, **params}}]}


def test_what_has_a_counterpart_is_a_good_configuration(tmp_path: Path) -> None:
    done = run(tmp_path / "litellm.yaml", WHOLE)
    assert done.exit_code == 0, done.output
    tiny = [
        {"upstream": "local", "model": "org/tiny-q4", "weight": 20},
        "ollama/tiny",
    ]
    behind = [
        {"upstream": "local", "model": "org/tiny-q4", "weight": 20, "tier": 1},
        {"upstream": "ollama", "model": "tiny", "tier": 1},
    ]
    assert yaml.safe_load(done.stdout) == {
        "keys": [{"name": "master", "key": "${MASTER_KEY}"}],
        "upstreams": {
            "local": {
                "base_url": "http://127.0.0.1:8000/v1",
                "api_key": "${LOCAL_KEY}",
                "deadlines": {"total": 300, "first_token": 20},
            },
            "ollama": {"profile": "ollama", "deadlines": {"total": 600}},
            "openai": {
                "profile": "openai",
                "api_key": "${OPENAI_API_KEY}",
                "headers": {"openai-organization": "org-1"},
                "deadlines": {"total": 600},
            },
        },
        "models": {
            "tiny": {"routes": tiny, "policy": "least_busy"},
            "gpt-4.1": {"routes": ["openai/gpt-4.1", *behind], "policy": "least_busy"},
        },
        "storage": {"database": "${DATABASE_URL}"},
        "ledger": {},
        "prices": {"local/org/tiny-q4": {"input": "0.5", "output": "2", "cached_input": "0.5"}},
    }
    config = load_data(yaml.safe_load(done.stdout), ENVIRON)
    assert config.models["tiny"].routes[0].model == "org/tiny-q4"


def test_the_rest_is_listed_by_line(tmp_path: Path) -> None:
    file = tmp_path / "litellm.yaml"
    lines = [line.removeprefix(f"{file}:") for line in run(file, WHOLE).stderr.splitlines()]
    assert lines == [
        "4: model_list[0].litellm_params.model: is of sagemaker, which has no counterpart: it is left out",
        "13: model_list[1].litellm_params.rpm: is the weight, and bounds nothing",
        "18: model_list[2].model_info.tier: has no counterpart",
        "22: litellm_settings.drop_params: has no counterpart",
        "24: litellm_settings.fallbacks[0]: names gone, which is not served",
        "29: general_settings.database_url: has none of its keys: `sluicegate callers create` and "
        "`keys create` make them",
    ]


def test_what_has_no_share_is_asked_where_the_others_cannot_serve(tmp_path: Path) -> None:
    file = tmp_path / "litellm.yaml"
    entry = "  - {{model_name: m, litellm_params: {{model: hosted_vllm/q, api_base: 'http://{host}/v1'{more}}}}}\n"
    entries = [("a", ", weight: 3"), ("b", ", weight: 0"), ("c", ""), ("d", ", weight: 1")]
    done = run(file, "model_list:\n" + "".join(entry.format(host=host, more=more) for host, more in entries))
    assert done.exit_code == 0, done.output
    routes = yaml.safe_load(done.stdout)["models"]["m"]["routes"]
    assert [route.get("weight") for route in routes] == [3, 1, None, None]
    assert [route.get("tier", 0) for route in routes] == [0, 0, 1, 1]
    assert done.stderr.count("is missing or 0: it is asked where the others cannot serve") == 2


# What an operator of several machines has, by the documentation of LiteLLM's settings.
TEAM = """model_list:
  - model_name: gpt-4o
    litellm_params:
      {model: azure/eu, api_base: "https://eu.openai.azure.com", api_key: os.environ/AZURE_KEY, weight: 3,
       api_version: 2024-06-01, input_cost_per_token: 0.0000025, output_cost_per_token: 0.00001}
  - model_name: gpt-4o
    litellm_params: {model: openai/gpt-4o, api_key: os.environ/OPENAI_API_KEY, weight: 1}
    model_info: {input_cost_per_token: 0.0000025, output_cost_per_token: 0.00001}
  - model_name: claude
    litellm_params:
      {model: anthropic/claude-big, api_key: os.environ/ANTHROPIC_API_KEY, max_parallel_requests: 20,
       input_cost_per_token: 0.000015, output_cost_per_token: 0.000075,
       cache_read_input_token_cost: 0.0000015}
  - {model_name: local, litellm_params: {model: hosted_vllm/q, api_base: "http://10.0.0.2/v1", order: 2}}
  - {model_name: local, litellm_params: {model: hosted_vllm/q, api_base: "http://10.0.0.1/v1", order: 1}}
  - model_name: lab-eu
    litellm_params: {model: azure/lab, api_base: "https://lab.example.com", api_key: os.environ/AZURE_KEY}
    model_info: {base_model: azure/gpt-4o}
  - {model_name: "openai/*", litellm_params: {model: "openai/*", api_key: os.environ/OPENAI_API_KEY}}
  - {model_name: "*", litellm_params: {model: "openrouter/*", api_key: os.environ/OPENROUTER_KEY}}
litellm_settings:
  num_retries: 3
  allowed_fails: 3
  fallbacks: [{gpt-4o: [smart, openai/gpt-4o-mini]}]
  default_fallbacks: [local]
  max_budget: 100
  budget_duration: 30d
  max_end_user_budget: 2.5
  json_logs: true
  callbacks: [otel]
router_settings:
  routing_strategy: simple-shuffle
  model_group_alias: {gpt-4: gpt-4o, smart: {model: claude, hidden: true}}
  cooldown_time: 30
  redis_host: os.environ/REDIS_HOST
  redis_port: 6380
  redis_password: "p@ss/word"
  redis_ssl: true
general_settings:
  master_key: os.environ/MASTER_KEY
  database_url: "postgres://gate:secret@db/gate?schema=public&connection_limit=10&sslmode=require"
  user_header_name: x-user-id
  global_max_parallel_requests: 500
  max_request_size_mb: 10
  background_health_checks: true
environment_variables: {SOME: secret}
"""
OF_TEAM = dict.fromkeys(
    ("AZURE_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_KEY", "REDIS_HOST", "MASTER_KEY"), "x"
)


def test_a_whole_deployment_is_brought_along(tmp_path: Path) -> None:
    file = tmp_path / "litellm.yaml"
    done = run(file, TEAM)
    data = yaml.safe_load(done.stdout)
    assert data["models"] == {
        "gpt-4o": {
            "routes": [
                {"upstream": "azure", "model": "eu", "weight": 3},
                {"upstream": "openai-2", "model": "gpt-4o", "weight": 1},
                {"upstream": "anthropic", "model": "claude-big", "tier": 1, "max_streams": 20},
                {"upstream": "openai-2", "model": "gpt-4o-mini", "tier": 2},
            ],
            "policy": "weighted",
        },
        "claude": {
            "routes": [
                {"upstream": "anthropic", "model": "claude-big", "max_streams": 20},
                {"upstream": "local-2", "model": "q", "tier": 1},
                {"upstream": "local", "model": "q", "tier": 2},
            ],
            "retry": {"attempts": 4},
        },
        "local": {
            "routes": ["local-2/q", {"upstream": "local", "model": "q", "tier": 1}],
            "retry": {"attempts": 4},
        },
        "lab-eu": {
            "routes": [
                "example/lab",
                {"upstream": "local-2", "model": "q", "tier": 1},
                {"upstream": "local", "model": "q", "tier": 2},
            ],
            "retry": {"attempts": 4},
        },
        "openai/*": {"routes": ["openai-2/*"], "retry": {"attempts": 4}},
        "*": {"routes": ["openrouter/*"], "retry": {"attempts": 4}},
    }
    assert data["aliases"] == {"gpt-4": "gpt-4o", "smart": "claude"}
    assert data["prices"] == {
        "azure/eu": {"input": "2.5", "output": "10", "cached_input": "2.5"},
        "openai-2/gpt-4o": {"input": "2.5", "output": "10", "cached_input": "2.5"},
        "anthropic/claude-big": {"input": "15", "output": "75", "cached_input": "1.5"},
    }
    assert data["health"] == {"consecutive": 4, "eject": 30, "eject_at_most": 30}
    assert data["storage"] == {
        "database": "postgresql://gate:secret@db/gate?ssl=require",
        "counters": "rediss://:p%40ss%2Fword@${REDIS_HOST}:6380",
    }
    assert data["ledger"] == {}
    assert data["limits"] == {"everyone": {"cost": "100/month"}, "end-users": {"cost": "2.5/month"}}
    assert data["teams"] == {"everyone": {"limits": "everyone"}}
    assert data["callers"] == [{"name": "master", "team": "everyone"}]
    assert data["users"] == {"header": "x-user-id", "limits": "end-users"}
    assert data["server"] == {
        "bounds": {"requests": 500},
        "max_body_bytes": "10MiB",
        "log": {"format": "json"},
    }
    told = {line.split(": ")[1]: line.split(": ", 2)[2] for line in done.stderr.splitlines()}
    assert told.keys() == {
        "model_list[5].model_info.base_model",
        "litellm_settings.allowed_fails",
        "litellm_settings.default_fallbacks",
        "litellm_settings.max_budget",
        "litellm_settings.max_end_user_budget",
        "litellm_settings.callbacks",
        "router_settings.model_group_alias.smart.hidden",
        "general_settings.database_url",
        "general_settings.background_health_checks",
        "environment_variables",
    }
    assert "secret" not in done.stderr
    assert "p@ss" not in done.stderr
    gateway = tmp_path / "gateway.yaml"
    gateway.write_text(done.stdout)
    checked = CliRunner().invoke(main, ["check", str(gateway)], env=OF_TEAM)
    assert checked.exit_code == 0, checked.output


def served(**more: Any) -> dict[str, Any]:
    entries = [
        {
            "model_name": "m",
            "litellm_params": {"model": "openai/a", "api_base": f"http://{host}/v1", **params},
        }
        for host, params in (
            ("dear", {"input_cost_per_token": 2e-6, "output_cost_per_token": 2e-6}),
            ("cheap", {"input_cost_per_token": 1e-6, "output_cost_per_token": 1e-6}),
        )
    ]
    data = translate({"model_list": entries, **more}).data
    load_data(data, {})
    return data


@pytest.mark.parametrize(
    ("strategy", "policy"),
    [
        (None, "weighted"),
        ("simple-shuffle", "weighted"),
        ("least-busy", "least_busy"),
        ("latency-based-routing", "latency"),
        ("usage-based-routing-v2", {"least_busy": {"by": "tokens"}}),
        ("of-tomorrow", "weighted"),
    ],
)
def test_a_strategy_is_a_policy(strategy: str | None, policy: object) -> None:
    data = served(router_settings={} if strategy is None else {"routing_strategy": strategy})
    assert data["models"]["m"] == {"routes": ["dear/a", "cheap/a"], "policy": policy}


def test_the_cheapest_first_is_an_order() -> None:
    data = served(router_settings={"routing_strategy": "cost-based-routing"})
    assert data["models"]["m"] == ["cheap/a", "dear/a"]


@pytest.mark.parametrize(
    ("budget", "duration", "cost"),
    [
        (10, "1d", "10/day"),
        (10, "24h", "10/day"),
        (10, "7d", "10/week"),
        (10.5, "1mo", "10.5/month"),
        (10, "10d", "7/week"),
        (10, "90d", "3.333333/month"),
        (3, "30m", "0.1/minute"),
        (10, None, "10/month"),
        (0, "1d", None),
        ("much", "1d", None),
        (10**400, "1d", None),
        (10, "soon", "10/month"),
        (10, "0d", "10/month"),
    ],
)
def test_a_budget_is_a_limit_that_is_never_wider(budget: Any, duration: str | None, cost: str | None) -> None:
    settings = {"max_budget": budget, "budget_duration": duration}
    data = served(litellm_settings=settings, general_settings={"master_key": "sk-1"})
    assert data.get("limits") == (None if cost is None else {"everyone": {"cost": cost}})


def test_a_budget_that_nobody_can_have_is_told() -> None:
    found = translate({**model("openai/x"), "litellm_settings": {"max_budget": 1}})
    assert "limits" not in found.data
    place, message = found.remarks[-1]
    assert (place[-1], "without `master_key`" in message) == ("max_budget", True)


def test_a_model_with_two_prices_is_two_upstreams() -> None:
    params = {"model": "openai/a", "api_base": "http://h/v1", "input_cost_per_token": 1e-6}
    entries = [
        {"model_name": "low", "litellm_params": params},
        {"model_name": "high", "litellm_params": {**params, "input_cost_per_token": 5e-6}},
        {"model_name": "again", "litellm_params": params},
    ]
    data = translate({"model_list": entries}).data
    assert data["models"] == {"low": "h/a", "high": "h-2/a", "again": "h/a"}
    assert data["prices"] == {
        "h/a": {"input": "1", "cached_input": "1"},
        "h-2/a": {"input": "5", "cached_input": "5"},
    }


def test_a_price_of_a_route_is_never_one_of_a_name() -> None:
    """A public name that begins as an upstream is called would have the price of that upstream's route."""
    entries = [
        {"model_name": "h/a", "litellm_params": {"model": "openai/x", "api_base": "http://g/v1"}},
        {"model_name": "b", "litellm_params": {"model": "openai/a", "api_base": "http://h/v1",
                                               "input_cost_per_token": 1e-6}},
    ]  # fmt: skip
    data = translate({"model_list": entries}).data
    assert list(data["prices"]) == ["h-2/a"]
    table = PriceTable(load_data(data, {}).prices)
    assert table.tariff("h/a", "x", "g") is None
    assert table.tariff("b", "a", "h-2") is not None


def test_an_alias_goes_before_a_model_of_its_name() -> None:
    entries = [
        {"model_name": name, "litellm_params": {"model": f"openai/{name}", "api_base": "http://h/v1"}}
        for name in ("a", "b")
    ]
    aliases = {"a": "b", "round": "about", "about": "round", "*": "a", "c": "d", "d": "b"}
    found = translate({"model_list": entries, "router_settings": {"model_group_alias": aliases}})
    assert found.data["models"] == {"a": "h/b", "b": "h/b"}
    assert found.data["aliases"] == {"c": "b", "d": "b"}
    assert [place[-1] for place, _ in found.remarks] == ["a", "round", "about", "*"]
    load_data(found.data, {})


@pytest.mark.parametrize(
    ("target", "params", "upstream", "route"),
    [
        ("vllm/org/x", {"api_base": "http://h/v1/"}, {"profile": "vllm", "base_url": "http://h/v1"},
         "h/org/x"),
        ("groq/x", {"api_base": "http://h/v1", "api_key": "a${b}"}, {"profile": "groq",
         "base_url": "http://h/v1", "api_key": "a$${b}"}, "h/x"),
        ("groq/x", {}, {"profile": "groq", "api_key": "${GROQ_API_KEY}"}, "groq/x"),
        ("ollama_chat/x", {"api_base": "http://h:1"}, {"profile": "ollama", "base_url": "http://h:1/v1"},
         "h/x"),
        ("openai/x", {"api_base": "http://h/v1"}, {"base_url": "http://h/v1"}, "h/x"),
        ("anthropic/x", {"api_base": "https://h", "api_key": "os.environ/A"}, {"profile": "anthropic",
         "base_url": "https://h/v1", "api_key": "${A}"}, "h/x"),
        ("azure/gpt-eu", {"api_base": "https://r.openai.azure.com/", "api_version": "2025-01-01-preview"},
         {"profile": "azure_deployments", "base_url": "https://r.openai.azure.com",
          "query": {"api-version": "2025-01-01-preview"}}, "azure/gpt-eu"),
        ("x", {"api_base": "os.environ/API_BASE"}, {"base_url": "${API_BASE}"}, "upstream/x"),
    ],
)  # fmt: skip
def test_providers(target: str, params: dict[str, Any], upstream: dict[str, str], route: str) -> None:
    data = translate(model(target, **params)).data
    assert list(data["upstreams"].values()) == [upstream]
    assert data["models"] == {"m": route}


def test_a_wildcard_serves_what_nobody_has_listed() -> None:
    entries = [
        {"model_name": "*", "litellm_params": {"model": "openai/*", "api_base": "http://a/v1"}},
        {"model_name": "lab/*", "litellm_params": {"model": "openai/*", "api_base": "http://b/v1"}},
        {"model_name": "team-*", "litellm_params": {"model": "openai/ft:*", "api_base": "http://b/v1"}},
        {"model_name": "one", "litellm_params": {"model": "openai/*", "api_base": "http://c/v1"}},
        {"model_name": "many/*", "litellm_params": {"model": "openai/one", "api_base": "http://c/v1"}},
        {"model_name": "*/*", "litellm_params": {"model": "openai/*", "api_base": "http://c/v1"}},
    ]
    found = translate({"model_list": entries})
    assert found.data["upstreams"] == {"a": {"base_url": "http://a/v1"}, "b": {"base_url": "http://b/v1"}}
    assert found.data["models"] == {"*": "a/*", "lab/*": "b/*", "team-*": "b/ft:*"}
    assert [place[1] for place, _ in found.remarks] == [3, 4, 5]
    models = ModelTable(load_data(found.data, {}))
    for name, upstream, theirs in (("x", "a", "x"), ("lab/x", "b", "x"), ("team-x", "b", "ft:x")):
        served = models.find(name)
        assert served is not None
        route = served.deployments[0].route(name, served.star)
        assert (route.upstream.name, route.model) == (upstream, theirs)
    listed = translate({"model_list": entries, "litellm_settings": {"check_provider_endpoint": True}}).data
    assert [upstream["discover"] for upstream in listed["upstreams"].values()] == [True, {"prefix": "lab/"}]


def test_a_key_in_plain_text_is_told_without_it() -> None:
    found = translate(model("openai/x", api_base="http://h/v1", api_key="sk-sekrit"))
    assert found.data["upstreams"]["h"]["api_key"] == "sk-sekrit"
    assert [place[-1] for place, _ in found.remarks] == ["api_key"]
    assert "sekrit" not in str(found.remarks)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model_list: [", "is not YAML"),
        ("{}", "there is no model that can be served"),
        ("model_list: 3\n", "model_list: is not a list"),
        ("model_list: [{model_name: a}]\n", "has no `model_name`, or no `litellm_params.model`"),
        ("model_list: [{model_name: a, litellm_params: {model: vllm/x}}]\n", "has no `api_base`"),
    ],
)
def test_a_file_that_serves_nothing(tmp_path: Path, text: str, message: str) -> None:
    done = run(tmp_path / "litellm.yaml", text)
    assert done.exit_code == 1
    assert message in done.stderr
    assert done.stdout == ""


NAMES = st.sampled_from(
    ["model_list", "model_name", "litellm_params", "model", "api_base", "timeout", "fallbacks",
     "litellm_settings", "general_settings", "master_key", "input_cost_per_token", "extra_headers",
     "router_settings", "model_group_alias", "m", "*"]
)  # fmt: skip
SETTINGS = st.sampled_from(
    ["routing_strategy", "model_group_alias", "num_retries", "cooldown_time", "allowed_fails", "redis_host",
     "redis_port", "redis_password", "redis_url", "database_url", "max_budget", "budget_duration",
     "fallbacks", "max_end_user_budget", "user_header_name", "default_fallbacks", "disable_cooldowns",
     "json_logs", "max_parallel_requests", "global_max_parallel_requests", "max_request_size_mb",
     "master_key"]
)  # fmt: skip
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), NAMES),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=20,
)


@given(VALUES)
def test_nothing_in_a_file_breaks_it(document: Any) -> None:
    translate(document)


@given(VALUES)
def test_no_parameter_breaks_it(value: Any) -> None:
    translate(model("openai/x", api_base=value, input_cost_per_token=value, extra_headers=value))
    settings = {"fallbacks": [{"m": value}], "request_timeout": value}
    translate({**model("openai/x", timeout=value), "litellm_settings": settings})


@given(st.dictionaries(SETTINGS, VALUES | st.sampled_from([0, 1, 30, "1d", "1000d", "m", "least-busy"])))
def test_no_setting_breaks_it(settings: dict[str, Any]) -> None:
    for section in ("router_settings", "litellm_settings", "general_settings"):
        data = translate({**model("openai/x", api_base="http://h/v1", **settings), section: settings}).data
        # What may be any text, or none of ours, is theirs.
        free = settings.keys() & {"database_url", "redis_url", "redis_host", "redis_port", "master_key"}
        free |= settings.keys() & {"user_header_name", "api_base", "model_group_alias", "redis_password"}
        if data["upstreams"] and not free:
            load_data(data, {"OPENAI_API_KEY": "x"})


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -1, 0, True, "30", 10**400])
def test_a_time_that_is_none_is_told(value: object) -> None:
    found = translate(model("openai/x", api_base="http://h/v1", timeout=value))
    assert "deadlines" not in found.data["upstreams"]["h"]
    assert found.remarks[-1][1] == "is not a number of seconds"


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -1, "much", [1], 10**400])
def test_a_price_that_is_none_is_told(value: object) -> None:
    found = translate(model("openai/x", api_base="http://h/v1", input_cost_per_token=value))
    assert "prices" not in found.data
    assert found.remarks[-1][1] == "is not a price"
