"""Claude Code before the gateway and llama.cpp, with a model that calls its tool.

One turn takes a minute: this model reads byte by byte, and Claude Code's prompt and tools are 60 kB.
"""

import json
import tempfile
from pathlib import Path

from clients.claude_code import COMMAND, COMMAND_TOOL, SAID_BY_COMMAND, blocks, run_claude_code
from clients.stand import MODELS, gateway_before_llama_cpp
from harness.tiny_model import ANSWER, CALL_WORD, write_tiny_model
from real.stand import RealStand

CONTEXT = 98_304
SECONDS = 400.0


async def claude_code_runs_a_command(stand: RealStand) -> None:
    """Over llama.cpp's chat, its Responses and its Messages. It has a server of its own for its model."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        model = directory / "tiny.gguf"
        write_tiny_model(model, tool_name=COMMAND_TOOL, tool_arguments=json.dumps({"command": COMMAND}))
        async with gateway_before_llama_cpp(model, CONTEXT) as gateway:
            for way in MODELS:
                events = await run_claude_code(
                    gateway.base_url, "none", way, f"How is the {CALL_WORD}?", directory, SECONDS
                )
                [call] = blocks(events, "tool_use")
                assert (call["name"], call["input"]) == (COMMAND_TOOL, {"command": COMMAND}), (way, call)
                [result] = blocks(events, "tool_result")
                assert result["content"] == SAID_BY_COMMAND, (way, result)
                ended = events[-1]
                assert ended["subtype"] == "success", (way, ended)
                # It sets no temperature: the model may skip and repeat words.
                said = ended["result"].split()
                assert said, (way, ended)
                assert set(said) <= set(ANSWER.split()), (way, ended)
                assert ended["usage"]["output_tokens"] > 0, (way, ended)
