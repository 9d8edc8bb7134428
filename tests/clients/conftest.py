"""One gateway in front of one llama.cpp server, for all clients that need no tool of their own."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from clients.stand import MODELS, Stand, gateway_before_llama_cpp
from harness import needed
from harness.gateway_process import GatewayProcess


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def real_gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    pytest.importorskip("xllamacpp", reason=needed.PACKAGES)
    pytest.importorskip("gguf", reason=needed.PACKAGES)
    from harness.tiny_model import write_tiny_model

    model = tmp_path_factory.mktemp("clients") / "tiny.gguf"
    write_tiny_model(model)
    async with gateway_before_llama_cpp(model) as gateway:
        yield gateway


@pytest.fixture(params=MODELS)
def stand(request: pytest.FixtureRequest, real_gateway: GatewayProcess) -> Stand:
    return Stand(real_gateway, request.param)
