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
ENVIRON = {"LOCAL_KEY": "a", "OPENAI_API_KEY": "b", "MASTER_KEY": "c", "API_BASE": "http://h/v1"}


def run(file: Path, text: str) -> Result:
    file.write_text(text)
    return CliRunner().invoke(main, ["import", "litellm", str(file)])


def model(target: str, **params: Any) -> dict[str, Any]:
    return {"model_list": [{"model_name": "m", "litellm_params": {"model": target, **params}}]}


def test_what_has_a_counterpart_is_a_good_configuration(tmp_path: Path) -> None:
    done = run(tmp_path / "litellm.yaml", WHOLE)
    assert done.exit_code == 0, done.output
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
            "tiny": ["local/org/tiny-q4", "ollama/tiny"],
            "gpt-4.1": ["openai/gpt-4.1", "local/org/tiny-q4", "ollama/tiny"],
        },
        "prices": {"tiny": {"input": "0.5", "output": "2"}},
    }
    config = load_data(yaml.safe_load(done.stdout), ENVIRON)
    assert config.models["tiny"].routes[0].model == "org/tiny-q4"


def test_the_rest_is_listed_by_line(tmp_path: Path) -> None:
    file = tmp_path / "litellm.yaml"
    lines = [line.removeprefix(f"{file}:") for line in run(file, WHOLE).stderr.splitlines()]
    assert lines == [
        "4: model_list[0].litellm_params.model: is of sagemaker, which has no counterpart: it is left out",
        "13: model_list[1].litellm_params.rpm: has no counterpart",
        "16: model_list[2]: serves tiny, too: upstreams are tried in order, not in turns",
        "18: model_list[2].model_info.tier: has no counterpart",
        "24: litellm_settings.fallbacks[0]: names gone, which is not served",
        "22: litellm_settings.drop_params: has no counterpart",
        "26: router_settings.routing_strategy: has no counterpart",
        "29: general_settings.database_url: has no counterpart",
    ]


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


def test_a_wildcard_is_discovery() -> None:
    entries = [
        {"model_name": "*", "litellm_params": {"model": "openai/*", "api_base": "http://a/v1"}},
        {"model_name": "lab/*", "litellm_params": {"model": "openai/*", "api_base": "http://b/v1"}},
    ]
    data = translate({"model_list": entries}).data
    assert data["upstreams"] == {
        "a": {"base_url": "http://a/v1", "discover": True},
        "b": {"base_url": "http://b/v1", "discover": {"prefix": "lab/"}},
    }
    assert "models" not in data
    assert load_data(data, {}).models == {}


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
     "litellm_settings", "general_settings", "master_key", "input_cost_per_token", "extra_headers"]
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


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -1, 0, True, "30", 10**400])
def test_a_time_that_is_none_is_told(value: object) -> None:
    found = translate(model("openai/x", api_base="http://h/v1", timeout=value))
    assert "deadlines" not in found.data["upstreams"]["h"]
    assert found.remarks[-1][1] == "is not a number of seconds"


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -1, "much", [1]])
def test_a_price_that_is_none_is_told(value: object) -> None:
    found = translate(model("openai/x", api_base="http://h/v1", input_cost_per_token=value))
    assert "prices" not in found.data
    assert found.remarks[-1][1] == "is not a price"
