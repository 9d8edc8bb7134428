"""Starting without a file before a server that nobody here wrote: llama.cpp's own."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from harness import needed

pytest.importorskip("xllamacpp", reason=needed.PACKAGES)
pytest.importorskip("gguf", reason=needed.PACKAGES)

from harness.gateway_process import GatewayProcess, spawn
from harness.llama_cpp import NAME, LlamaCppProcess
from harness.tiny_model import write_tiny_model

pytestmark = pytest.mark.real


@pytest.fixture
def llama_cpp(tmp_path: Path) -> Iterator[LlamaCppProcess]:
    model = tmp_path / "tiny.gguf"
    write_tiny_model(model)
    server = LlamaCppProcess.start(model, tmp_path / "llama.log")
    yield server
    server.stop()


@pytest.fixture
async def gateway(llama_cpp: LlamaCppProcess, tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    url = f"http://127.0.0.1:{llama_cpp.port}"
    process = GatewayProcess(
        await spawn(
            *("serve", "--upstream", url, "--port", "0"),
            environ={"XDG_STATE_HOME": str(tmp_path)},
        )
    )
    try:
        listening = await process.wait_line(event="listening", seconds=30)
        process.base_url = listening["address"]
        yield process
        assert await process.stop() == 0
    finally:
        await process.kill()


async def test_llama_cpp_is_known_by_its_list(gateway: GatewayProcess, llama_cpp: LlamaCppProcess) -> None:
    line = await gateway.wait_line(event="discovered")
    assert line["upstream"] == "local"
    assert (line["models"], line["profile"]) == (1, "llama_cpp")
    assert line["base_url"] == llama_cpp.base_url
    async with asyncio.timeout(10):
        while "curl" not in gateway.stderr:  # noqa: ASYNC110 - a pipe tells nobody of its end
            await asyncio.sleep(0.01)
    assert "profile: llama_cpp" in gateway.stderr
    async with httpx.AsyncClient(base_url=gateway.api_url, timeout=30) as client:
        listed = (await client.get("/models")).json()
        assert [entry["id"] for entry in listed["data"]] == [NAME]
        chat = await client.post(
            "/chat/completions", json={"model": NAME, "messages": [{"role": "user", "content": "Where?"}]}
        )
        assert chat.status_code == 200
        assert chat.json()["choices"][0]["message"]["content"]
        response = await client.post("/responses", json={"model": NAME, "input": "Where?", "stream": True})
        assert response.status_code == 200
        # llama.cpp's own events have none: they are made anew.
        assert '"sequence_number":0' in response.text.replace(" ", "")
        assert "response.completed" in response.text
