"""Gateways that know what a chat completion is, and the naive proxy."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from benches.load.processes import free_port
from benches.load.proxies.model import REPOSITORY, Proxy, Setup, asked, peer, this_python

_SLUICEGATE = """\
server:
  host: 127.0.0.1
  port: {port}
  workers: {workers}
  log: {{level: warning}}
upstreams:
  mock:
    base_url: http://{upstream}/v1
models:
  bench: mock
prices:
  bench: {{input: 2.5, cached_input: 1.25, output: 10}}
"""
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
_LITELLM_KEY = "sk-bench"


def _find_sluicegate() -> str | None:
    built = any((REPOSITORY / "python" / "sluicegate").glob("_core*.so"))
    installed = importlib.util.find_spec("sluicegate")
    return this_python() if built or installed else None


def _sluicegate(found: str, setup: Setup) -> Sequence[str]:
    text = _SLUICEGATE.format(port=setup.port, upstream=setup.upstream, workers=setup.workers)
    return [found, "-m", "sluicegate", "serve", "--config", setup.write("sluicegate.yaml", text)]


def _litellm(found: str, setup: Setup) -> Sequence[str]:
    file = setup.write("litellm.yaml", _LITELLM.format(upstream=setup.upstream, key=_LITELLM_KEY))
    address = ["--host", "127.0.0.1", "--port", str(setup.port)]
    return [found, "--config", file, *address, "--num_workers", str(setup.workers)]


def _smg(found: str, setup: Setup) -> Sequence[str]:
    address = ["--host", "127.0.0.1", "--port", str(setup.port), "--prometheus-host", "127.0.0.1"]
    upstream = ["--worker-urls", f"http://{setup.upstream}", "--backend", "openai", "--policy", "round_robin"]
    bounds = ["--max-concurrent-requests", "16384", "--disable-circuit-breaker", "--disable-health-check"]
    quiet = ["--log-level", "error", "--prometheus-port", str(free_port())]
    return [found, "launch", *address, *upstream, *bounds, *quiet]


def _naive(found: str, setup: Setup) -> Sequence[str]:
    return [found, str(Path(__file__).parents[1] / "naive.py"), f"http://{setup.upstream}", str(setup.port)]


SLUICEGATE = Proxy(
    name="sluicegate",
    find=_find_sluicegate,
    command=_sluicegate,
    version=asked("-m", "sluicegate", "--version"),
    cost=True,
)
SMG = Proxy(
    name="smg",
    find=peer("smg", "smg"),
    command=_smg,
    version=asked("--version"),
    requirement="smg==1.13.0",
    start_seconds=60.0,
)
LITELLM = Proxy(
    name="litellm",
    find=peer("litellm", "litellm"),
    command=_litellm,
    version=asked("--version"),
    requirement="litellm[proxy]>=1.106,<1.107",
    key=_LITELLM_KEY,
    environment={"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    too_slow_for=frozenset({"paced-1000", "held-2000", "held-50"}),
    start_seconds=120.0,
)
NAIVE = Proxy(
    name="naive",
    find=this_python,
    command=_naive,
    version=lambda found: f"Starlette {asked('-c', 'import starlette; print(starlette.__version__)')(found)}",
    too_slow_for=frozenset({"paced-1000"}),
)
