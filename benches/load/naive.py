"""The proxy that everyone writes first: Starlette, httpx, uvicorn; a byte relay, no usage, no cost."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

_HOP_BY_HOP = {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}


def application(upstream: str) -> Starlette:
    """Relays every POST to the same path of `upstream`."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(base_url=upstream, limits=limits, timeout=None) as client:
            app.state.client = client
            yield

    async def relay(request: Request) -> StreamingResponse:
        client: httpx.AsyncClient = request.app.state.client
        headers = {name: value for name, value in request.headers.items() if name not in _HOP_BY_HOP}
        outgoing = client.build_request(
            "POST", request.url.path, content=await request.body(), headers=headers
        )
        reply = await client.send(outgoing, stream=True)
        kept = {name: value for name, value in reply.headers.items() if name not in _HOP_BY_HOP}
        return StreamingResponse(
            reply.aiter_raw(), reply.status_code, kept, background=BackgroundTask(reply.aclose)
        )

    return Starlette(routes=[Route("/{path:path}", relay, methods=["POST"])], lifespan=lifespan)


if __name__ == "__main__":
    uvicorn.run(
        application(sys.argv[1]),
        port=int(sys.argv[2]),
        access_log=False,
        log_level="warning",
        loop="uvloop",
        backlog=4096,
    )
