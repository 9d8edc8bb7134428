"""Real servers that hang, die and are overloaded, under load: what others can do for a client is done."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from harness import needed

pytest.importorskip("xllamacpp", reason=needed.PACKAGES)
pytest.importorskip("gguf", reason=needed.PACKAGES)

from fakes.exposition import Samples
from harness.gateway_process import StartGateway, StartUpstream
from harness.llama_cpp import NAME, LlamaCppProcess
from harness.tiny_model import write_tiny_model
from sluicegate.testing import Script

pytestmark = pytest.mark.real

WORKERS = 6
DEADLINE = 8.0
"""Seconds in which a server that works sends something, however busy the machine is."""
LONG = 120.0
UPSTREAMS = ("hangs", "dies", "works", "overloaded")


class Load:
    """Clients that ask again and again, each after its last reply."""

    def __init__(self, base_url: str) -> None:
        self.client = openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=LONG)
        self.replies = 0
        self.broken_off = 0
        """Streams that failed after their first output: nobody could have taken over."""
        self.failures: list[str] = []
        """All others."""
        self._stopping = False

    async def run(self) -> None:
        await asyncio.gather(*(self._work() for _ in range(WORKERS)))

    def stop(self) -> None:
        self._stopping = True

    async def _work(self) -> None:
        while not self._stopping:
            text = ""
            try:
                stream = await self.client.chat.completions.create(
                    model="m",
                    messages=[{"role": "user", "content": "Where does it go?"}],
                    max_tokens=6,
                    stream=True,
                )
                async for chunk in stream:
                    for choice in chunk.choices:
                        delta = choice.delta
                        text += (delta.content or "") + (getattr(delta, "reasoning_content", None) or "")
                self.replies += 1
            except openai.APIError as error:
                if text:
                    self.broken_off += 1
                else:
                    self.failures.append(repr(error))


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_model(path)
    return path


def served(samples: Samples, upstream: str) -> float:
    return samples.value("sluicegate_requests_total", upstream=upstream, result="ok") or 0.0


@contextlib.contextmanager
def server(model: Path, name: str, port: int = 0) -> Iterator[LlamaCppProcess]:
    process = LlamaCppProcess.start(model, model.with_name(f"{name}.log"), port)
    try:
        yield process
    finally:
        process.thaw()
        process.kill()


async def test_no_client_sees_what_another_server_can_prevent(
    model_file: Path, gateway: StartGateway, start_upstream: StartUpstream
) -> None:
    overloaded = await start_upstream()
    with contextlib.ExitStack() as stack:
        hangs, dies, works = (
            stack.enter_context(server(model_file, name)) for name in ("hangs", "dies", "works")
        )
        urls = (hangs.base_url, dies.base_url, works.base_url, overloaded.base_url)
        deadlines = {"first_byte": DEADLINE, "first_token": DEADLINE, "between_tokens": DEADLINE}
        config: dict[str, Any] = {
            "upstreams": {
                name: {"base_url": url, "deadlines": deadlines}
                for name, url in zip(UPSTREAMS, urls, strict=True)
            },
            "models": {"m": {"routes": [f"{name}/{NAME}" for name in UPSTREAMS], "policy": "round_robin"}},
            "health": {"consecutive": 2, "eject": 1, "eject_at_most": 4, "eject_timeouts_at_most": 4},
        }
        process = await gateway(config)

        async def wait_states(**states: bool) -> None:
            """Wait until each upstream is usable, or not, as `states` says."""
            await process.wait_metrics(
                lambda samples: all(
                    (samples.value("sluicegate_breaker_open", upstream=name) == 0) is usable
                    for name, usable in states.items()
                ),
                LONG,
            )

        async def wait_served(*names: str) -> None:
            """Wait until each of these has served more than now."""
            now = await process.metrics()
            before = {name: served(now, name) for name in names}
            await process.wait_metrics(
                lambda samples: all(served(samples, name) > before[name] for name in names), LONG
            )

        load = Load(process.api_url)
        running = asyncio.ensure_future(load.run())
        try:
            await wait_served(*UPSTREAMS)

            hangs.freeze()
            dies.kill()
            overloaded.script = Script(status=503)
            await wait_states(hangs=False, dies=False, overloaded=False, works=True)
            await wait_served("works")

            hangs.thaw()
            stack.enter_context(server(model_file, "again", dies.port))
            overloaded.script = Script()
            await wait_states(**dict.fromkeys(UPSTREAMS, True))
            await wait_served(*UPSTREAMS)
        finally:
            load.stop()
            await asyncio.wait_for(running, LONG)
            await load.client.close()

        assert load.failures == []
        # Each of them broke off what it was sending, and no more than it could have had.
        assert load.broken_off <= 2 * WORKERS
        assert load.replies > 0
        for name in ("hangs", "dies", "overloaded"):
            lines = [
                line
                for line in process.find(event="ejected")
                if name in (line.get("upstream"), line.get("deployment", "").partition("/")[0])
            ]
            assert lines, name
