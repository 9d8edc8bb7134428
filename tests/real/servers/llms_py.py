"""llms-py, itself a gateway: behind ours, and before a second one of ours that stands before llama.cpp."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

from clients.stand import BY_CHAT as MODEL
from clients.stand import gateway_before_llama_cpp
from harness.tiny_model import write_tiny_model
from real.server import HOST, Place, Server

_PROGRAM = f"""
import sys
from aiohttp import web
run = web.run_app
web.run_app = lambda app, **options: run(app, **{{**options, "host": "{HOST}"}})
from llms.main import main
main()
"""
"""It listens on every address of the machine otherwise."""

_HARMLESS = {"katex", "providers"}
"""The other extensions add tools and prompts of their own to each request; it does not start without any."""


@contextlib.asynccontextmanager
async def _gateway(directory: Path) -> AsyncIterator[str]:
    model = directory / "behind.gguf"
    write_tiny_model(model)
    async with gateway_before_llama_cpp(model) as gateway:
        yield gateway.api_url


def _configure(place: Place, base_url: str) -> None:
    """Have it serve a model of the API at `base_url`. It runs tools itself: there are none."""
    home = place.directory / "home"
    home.mkdir(exist_ok=True)
    [package] = (place.directory / "venv" / "lib").glob("python*/site-packages/llms")
    settings = json.loads((package / "llms.json").read_text())
    described = {
        "id": MODEL,
        "name": MODEL,
        "tool_call": False,
        "modalities": {"input": ["text"], "output": ["text"]},
        "cost": {"input": 0, "output": 0},
    }
    extensions = {path.name for path in (package / "extensions").iterdir()}
    settings["disable_extensions"] = sorted(extensions - _HARMLESS)
    settings["providers"] = {
        "behind": {
            "enabled": True,
            "npm": "@ai-sdk/openai-compatible",
            "api": base_url,
            "api_key": "none",
            "models": {MODEL: described},
        }
    }
    (home / "llms.json").write_text(json.dumps(settings))
    (home / "providers.json").write_text("{}")
    (home / "providers-extra.json").write_text("{}")


SERVER = Server(
    name="llms-py",
    title="llms-py",
    package="llms-py",
    requirements=[["install", "llms-py"]],
    behind=_gateway,
    prepare=_configure,
    command=lambda place: [str(place.python), "-c", _PROGRAM, "--serve", str(place.port)],
    environ=lambda place: {"LLMS_HOME": str(place.directory / "home"), "HOME": str(place.directory / "home")},
    model=lambda place: MODEL,
    tools=False,
    deviations=[
        "It answers with JSON where it was asked for a stream: the gateway makes a stream of it, which "
        "begins when the reply is there as a whole.",
        'Errors are `{"responseStatus": …}` under status 500, whatever the server behind it said, after '
        "three attempts: the client gets that status with the text of the error.",
        "Paths that it does not have are a web page under status 200.",
        "It runs tools itself, its own and the client's, unless its configuration says `tool_call: false` of "
        "the model, and most of its extensions put tools and texts of theirs into each request.",
        "Before the gateway it takes streams and JSON alike; it asks for streams where its client does.",
    ],
)
