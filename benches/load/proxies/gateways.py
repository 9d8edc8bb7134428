"""Gateways that know what a chat completion is, and the naive proxy."""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from benches.load.processes import free_port
from benches.load.proxies.model import Proxy, Setup, asked, peer, this_python, with_tokio_threads

# The setting of `server` that says how many of them serve requests.
THREADS_SETTING = "threads"
_KEY = "sk-bench"
# What the gates ask for: the key checked, the reply priced, the request in the log and the metrics.
_SLUICEGATE = """\
server:
  host: 127.0.0.1
  port: {port}
  {threads_setting}: {threads}
  log: {{level: info, format: json}}
keys:
  - {{name: bench, key: {key}}}
upstreams:
  mock:
    base_url: http://{upstream}/v1
  mock-messages:
    base_url: http://{upstream}/v1
    api: messages
models:
  bench: mock
  bench-messages: mock-messages
prices:
  bench: {{input: 2.5, cached_input: 1.25, output: 10}}
  bench-messages: {{input: 2.5, cached_input: 1.25, output: 10}}
"""
# How many deployments the policies choose among; all of them are the one mock.
_DEPLOYMENTS = 8
# Limits of each kind that a run never reaches: a refused request would void it.
_LIMITS = {
    "requests": "100M/minute",
    "tokens": "1000000M/minute",
    "concurrent": 100_000,
    "cost": "1000000000/day",
}
_LITELLM = """\
model_list:
  - model_name: bench
    litellm_params:
      model: openai/bench
      api_base: http://{upstream}/v1
      api_key: none
      input_cost_per_token: 0.0000025
      output_cost_per_token: 0.00001
general_settings:
  master_key: {key}
"""


def _find_sluicegate() -> str | None:
    return this_python() if importlib.util.find_spec("sluicegate._core") else None


def refuse_build(build: str) -> str | None:
    """Why nothing is measured of the package in this build, as `sluicegate._core.BUILD` names it."""
    if build == "release":
        return None
    return f"this is a {build} build: make setup PROFILE=release, or only try it with --quick"


def _refuse_this_build() -> str | None:
    from sluicegate import _core

    return refuse_build(_core.BUILD)


Change = Callable[[dict[str, Any], Setup], None]
"""Turns something on in sluicegate's configuration."""


def with_policy(policy: str) -> Change:
    """The model has several deployments, which the policy chooses among, their health watched."""

    def change(config: dict[str, Any], setup: Setup) -> None:
        names = [f"mock-{number}" for number in range(_DEPLOYMENTS)]
        base_url = f"http://{setup.upstream}/v1"
        config["upstreams"] |= {name: {"base_url": base_url} for name in names}
        config["models"]["bench"] = {"policy": policy, "routes": names}
        config["health"] = {"enabled": True}

    return change


def with_accounts(config: dict[str, Any], setup: Setup) -> None:
    """The key's caller has a limit of each kind, and each request is a row of the ledger."""
    config["limits"] = {"bench": _LIMITS}
    config["callers"] = [{"name": "bench", "limits": "bench"}]
    config["storage"] = {"directory": str(setup.directory / "state")}
    config["ledger"] = {}


def _plain(config: dict[str, Any], setup: Setup) -> None:
    """Nothing more than every gateway does that is measured."""


def _sluicegate(change: Change = _plain) -> Callable[[str, Setup], Sequence[str]]:
    def command(found: str, setup: Setup) -> Sequence[str]:
        text = _SLUICEGATE.format(
            port=setup.port,
            upstream=setup.upstream,
            threads_setting=THREADS_SETTING,
            threads=setup.threads,
            key=_KEY,
        )
        config = yaml.safe_load(text)
        change(config, setup)
        file = setup.write("sluicegate.yaml", yaml.safe_dump(config))
        return [found, "-m", "sluicegate", "serve", "--config", file]

    return command


def _litellm(found: str, setup: Setup) -> Sequence[str]:
    file = setup.write("litellm.yaml", _LITELLM.format(upstream=setup.upstream, key=_KEY))
    address = ["--host", "127.0.0.1", "--port", str(setup.port)]
    return [found, "--config", file, *address, "--num_workers", str(setup.threads)]


def _smg(found: str, setup: Setup) -> Sequence[str]:
    address = ["--host", "127.0.0.1", "--port", str(setup.port), "--prometheus-host", "127.0.0.1"]
    upstream = ["--worker-urls", f"http://{setup.upstream}", "--backend", "openai", "--policy", "round_robin"]
    bounds = ["--max-concurrent-requests", "16384", "--disable-circuit-breaker", "--disable-health-check"]
    quiet = ["--log-level", "error", "--prometheus-port", str(free_port())]
    return with_tokio_threads(setup.threads, [found, "launch", *address, *upstream, *bounds, *quiet])


def _vllm_router(found: str, setup: Setup) -> Sequence[str]:
    address = ["--host", "127.0.0.1", "--port", str(setup.port)]
    upstream = ["--worker-urls", f"http://{setup.upstream}", "--policy", "round_robin"]
    # Else it looks at its workers, and is ready, only every 30 seconds.
    soon = ["--worker-startup-check-interval", "1"]
    bounds = ["--max-concurrent-requests", "16384", "--disable-circuit-breaker", "--disable-retries"]
    quiet = ["--log-level", "error", "--prometheus-port", str(free_port())]
    return with_tokio_threads(setup.threads, [found, *address, *upstream, *soon, *bounds, *quiet])


def _vllm_router_version(found: str) -> str:
    """It has no option for that."""
    ask = "import importlib.metadata as metadata; print(metadata.version('vllm-router'))"
    return asked("-c", ask)(str(Path(found).parent / "python"))


def _naive(found: str, setup: Setup) -> Sequence[str]:
    return [found, str(Path(__file__).parents[1] / "naive.py"), f"http://{setup.upstream}", str(setup.port)]


SLUICEGATE = Proxy(
    name="sluicegate",
    find=_find_sluicegate,
    command=_sluicegate(),
    version=asked("-m", "sluicegate", "--version"),
    refusal=_refuse_this_build,
    key=_KEY,
    cost=True,
)
LEAST_BUSY = replace(SLUICEGATE, name="sluicegate-least-busy", command=_sluicegate(with_policy("least_busy")))
AFFINITY = replace(SLUICEGATE, name="sluicegate-affinity", command=_sluicegate(with_policy("affinity")))
ACCOUNTS = replace(SLUICEGATE, name="sluicegate-accounts", command=_sluicegate(with_accounts))
SMG = Proxy(
    name="smg",
    find=peer("smg", "smg"),
    command=_smg,
    version=asked("--version"),
    requirement="smg==1.13.0",
    start_seconds=60.0,
)
VLLM_ROUTER = Proxy(
    name="vllm-router",
    find=peer("vllm-router", "vllm-router"),
    command=_vllm_router,
    version=_vllm_router_version,
    requirement="vllm-router==0.1.17",
    start_seconds=60.0,
)
LITELLM = Proxy(
    name="litellm",
    find=peer("litellm", "litellm"),
    command=_litellm,
    version=asked("--version"),
    requirement="litellm[proxy]>=1.106,<1.107",
    key=_KEY,
    environment={"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    too_slow_for=frozenset({"paced-1000", "held-2000", "held-large", "held-50"}),
    start_seconds=120.0,
)
NAIVE = Proxy(
    name="naive",
    find=this_python,
    command=_naive,
    version=lambda found: f"Starlette {asked('-c', 'import starlette; print(starlette.__version__)')(found)}",
    too_slow_for=frozenset({"paced-1000", "held-large"}),
)
