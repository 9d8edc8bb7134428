"""The Codex CLI in front of llama.cpp: a turn in which it runs a command, and is told what came of it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from harness import needed

pytest.importorskip("xllamacpp", reason=needed.PACKAGES)
pytest.importorskip("gguf", reason=needed.PACKAGES)

from clients.nodejs import DIRECTORY, needs_node, run_program
from clients.stand import MODELS, gateway_before_llama_cpp
from harness.gateway_process import GatewayProcess
from harness.tiny_model import ANSWER, write_tiny_model

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session"), needs_node]

PROGRAM = DIRECTORY / "node_modules" / ".bin" / "codex"
COMMAND_TOOL = "exec_command"
COMMAND = "echo harbour"
CONTEXT = 98_304
"""Tokens. Its prompt and its tools are 40 kB, and this model reads byte by byte."""

SECONDS = 120.0
"""For a turn: reading the prompt is slow where other tests run beside it."""

CONFIGURATION = """\
model = "{model}"
model_provider = "gateway"
approval_policy = "never"
[model_providers.gateway]
name = "gateway"
base_url = "{base_url}"
wire_api = "responses"
env_key = "GATEWAY_KEY"
request_max_retries = 0
stream_max_retries = 0
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    """The model calls Codex's tool."""
    model = tmp_path_factory.mktemp("codex") / "tiny.gguf"
    write_tiny_model(model, tool_name=COMMAND_TOOL, tool_arguments=json.dumps({"cmd": COMMAND}))
    async with gateway_before_llama_cpp(model, CONTEXT) as gateway:
        yield gateway


@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.nightly
@pytest.mark.parametrize("model", MODELS)
async def test_a_tool_round_trip(gateway: GatewayProcess, model: str, tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    settings = CONFIGURATION.format(model=model, base_url=gateway.api_url)
    (home / "config.toml").write_text(settings)
    code, out, err = await run_program(
        str(PROGRAM), "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", "--json",
        "--cd", str(work), "How is the weather?",
        seconds=SECONDS, CODEX_HOME=str(home), GATEWAY_KEY="none",
    )  # fmt: skip
    events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert code == 0, f"{err[-3000:]}\n{out[-3000:]}"
    done = [event["item"] for event in events if event["type"] == "item.completed"]
    [ran] = [item for item in done if item["type"] == "command_execution"]
    assert ran["exit_code"] == 0
    assert ran["aggregated_output"].strip() == "harbour"
    [said] = [item for item in done if item["type"] == "agent_message"]
    # It sets no temperature: the model may skip and repeat words.
    assert said["text"]
    assert set(said["text"].split()) <= set(ANSWER.split())
    assert events[-1]["type"] == "turn.completed"
    assert events[-1]["usage"]["output_tokens"] > 0
