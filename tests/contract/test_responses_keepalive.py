"""Comments to a client of the Responses interface while an upstream is silent, and what may follow them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from harness.responses_stand import ResponsesStand, responses_stand
from harness.responses_stream import check
from harness.wire_stand import MODEL
from sluicegate.testing import Fault, Script

pytestmark = pytest.mark.asyncio(loop_scope="module")

BEAT = 0.05
SILENCE = 0.4
NATIVE = "native"
MODELS = [MODEL, NATIVE]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ResponsesStand]:
    config: dict[str, Any] = {
        "server": {"keepalive_seconds": BEAT},
        "upstreams": {"native": {"api": "responses"}},
        "models": {NATIVE: f"native/{MODEL}"},
    }
    async with responses_stand(tmp_path_factory.mktemp("gateway"), config) as stand:
        yield stand


@pytest.mark.parametrize("model", MODELS)
async def test_comments_come_before_and_between_events(stand: ResponsesStand, model: str) -> None:
    script = Script(tokens=2, head_delay=SILENCE, first_token_delay=SILENCE)
    exchange = await stand.ask(script, model=model, stream=True)
    assert exchange.body.startswith(b":")
    assert exchange.body.count(b"\n:") >= 2
    assert check(exchange.body).text == "A sluice"


@pytest.mark.parametrize("model", MODELS)
async def test_a_failure_behind_comments_is_a_failed_response(stand: ResponsesStand, model: str) -> None:
    script = Script(head_delay=SILENCE, faults=(Fault(action="reset", at="before_head"),))
    exchange = await stand.ask(script, model=model, stream=True, instructions="Be brief.")
    assert exchange.reply.status == 200
    assert exchange.body.startswith(b":")
    streamed = check(exchange.body, complete=True)
    assert streamed.types == ["created", "in_progress", "error", "failed"]
    assert streamed.response["instructions"] == "Be brief."
    assert streamed.response["id"].startswith("resp_")
    assert streamed.events[2]["code"] == "reset"
    assert (exchange.line["result"], exchange.line["fault"]) == ("failed", "reset")
