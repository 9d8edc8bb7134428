"""The `openai` package in front of a real gateway in front of a scripted upstream: fixtures.

A test module imports them (`from harness.openai_stand import sdk, stand`), names them in its `__all__`, and
runs its tests on the module's event loop, where the upstream runs, too.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, TypeVar

import openai
import pytest
import pytest_asyncio
from pydantic import BaseModel

from harness.gateway_process import GatewayProcess, Line
from harness.shared_gateway import shared_gateway
from sluicegate.testing import Script, ScriptedUpstream

KEY = "sk-team-key"
MODEL = "small"
IMPATIENT = "impatient"
"""The same model; its upstream must not be silent between tokens for longer than `PATIENCE`."""
NATIVE = "native"
"""The same model; its upstream serves Responses. That of the others serves Chat Completions."""
PATIENCE = 0.5

MESSAGES: Any = [{"role": "user", "content": "Say something."}]

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True)
class Stand:
    """Both clients call the same gateway with the right key, and try once only."""

    upstream: ScriptedUpstream
    gateway: GatewayProcess
    client: openai.AsyncOpenAI
    sync_client: openai.OpenAI

    async def line(self, request_id: str | None) -> Line:
        """The log line of a request."""
        assert request_id
        return await self.gateway.wait_request(request_id=request_id)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    async with ScriptedUpstream() as upstream:
        config: dict[str, Any] = {
            "keys": [{"name": "team", "key": "${TEAM_KEY}"}],
            "upstreams": {
                "local": {"base_url": upstream.base_url},
                "hurried": {"base_url": upstream.base_url, "deadlines": {"between_tokens": PATIENCE}},
                "native": {"base_url": upstream.base_url, "api": "responses"},
            },
            "models": {MODEL: "local", IMPATIENT: f"hurried/{MODEL}", NATIVE: f"native/{MODEL}"},
            "prices": {MODEL: {"input": 1, "cached_input": 0.1, "output": 4}},
            "cost": {"genai_prices": False},
        }
        async with shared_gateway(config, tmp_path_factory.mktemp("gateway"), TEAM_KEY=KEY) as gateway:
            access: dict[str, Any] = {"base_url": gateway.api_url, "api_key": KEY, "max_retries": 0}
            async with openai.AsyncOpenAI(**access, timeout=30) as client:
                with openai.OpenAI(**access, timeout=30) as sync_client:
                    yield Stand(upstream, gateway, client, sync_client)


@pytest.fixture
def sdk(stand: Stand) -> Stand:
    """The stand with a healthy upstream that has seen nothing."""
    stand.upstream.script = Script()
    stand.upstream.requests.clear()
    return stand


def valid(value: _Model) -> _Model:
    """`value`, once it is certain that it is one of its type: the package itself takes whatever comes."""
    type(value).model_validate(value.model_dump(warnings=False, exclude_unset=True))
    return value


def extra(value: BaseModel | None) -> dict[str, Any]:
    """The members that the package does not know."""
    assert value is not None
    return value.model_extra or {}
