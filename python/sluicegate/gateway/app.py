"""The gateway as an ASGI application: where all parts meet."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

from sluicegate import _core
from sluicegate._core import Relay
from sluicegate.config import Config
from sluicegate.gateway import (
    chat_completions,
    completions,
    embeddings,
    errors,
    exposition,
    health,
    models,
    responses,
)
from sluicegate.gateway.asgi import Application, Receive, Scope, Send, request_id_of, respond
from sluicegate.gateway.keys import Keyring
from sluicegate.gateway.refusal import refuse
from sluicegate.gateway.state import Serving, State
from sluicegate.gateway.stored_creation import StoringEndpoint
from sluicegate.gateway.stored_responses import StoredResponses
from sluicegate.pricing import PricePolicy, policy_for
from sluicegate.responses import ResponseStore
from sluicegate.routing import ModelTable, Ordered, Policy
from sluicegate.telemetry import Log, Metrics, RequestRecord, where

# What is left to do for a request once its connections are closed: its record.
CLOSE_SECONDS = 5.0

# Of the time that a drain may take, what background responses may use to end by themselves.
BACKGROUND_SHARE = 0.9


class Gateway:
    """One gateway in one process, for any ASGI server.

    Its relay, and so its thread, is made when the server starts the application (or by the first request,
    where the server has no lifespan), never before.
    """

    def __init__(self, state: State, own_prices: PricePolicy | None = None) -> None:
        self._state = state
        self.on_startup: Callable[[], None] | None = None
        """Called on the event loop once the relay runs."""
        self._closing: asyncio.TimerHandle | None = None
        self._own_prices = own_prices
        self._kept: list[asyncio.Task[None]] = []
        self._draining: asyncio.Task[None] | None = None
        shown = models.ModelsEndpoint(state)
        self._responses = StoringEndpoint(state)
        self._stored = StoredResponses(state)
        self._endpoints: dict[str, Mapping[str, Application]] = {
            chat_completions.PATH: {"POST": chat_completions.chat_completions(state)},
            responses.PATH: {"POST": self._responses},
            completions.PATH: {"POST": completions.completions(state)},
            embeddings.PATH: {"POST": embeddings.embeddings(state)},
            models.PATH: _get(shown),
            health.HEALTH_PATH: _get(health.healthz),
            health.READY_PATH: _get(health.ReadyEndpoint(state)),
            exposition.PATH: _get(exposition.MetricsEndpoint(state)),
        }
        self._one_model = _get(shown)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._state.onto_loop()
            await self._not_http(scope, receive, send)
            return
        path: str = scope["path"]
        methods = self._endpoints.get(path)
        if methods is None and path.startswith(models.PATH + "/") and len(path) > len(models.PATH) + 1:
            methods = self._one_model
        if methods is None:
            methods = self._stored.methods(path)
        if methods is None:
            await self._refuse(scope, receive, send, errors.unknown_url(scope["method"], path))
            return
        endpoint = methods.get(scope["method"])
        if endpoint is None:
            allow = ", ".join((*methods, "OPTIONS")).encode()
            if scope["method"] == "OPTIONS":
                await respond(send, 204, [(b"allow", allow)], b"")
            else:
                error = errors.method_not_allowed(scope["method"], path, allow)
                await self._refuse(scope, receive, send, error)
            return
        try:
            if not getattr(endpoint, "any_thread", False):
                await self._state.onto_loop()
            await endpoint(scope, receive, send)
        except Exception as error:
            self._state.log.error("unhandled", path=path, error=where(error))
            # The response may have begun, and then the server refuses another: the connection is cut instead.
            with contextlib.suppress(Exception):
                reply = errors.internal()
                await respond(send, reply.status, reply.headers, reply.body)

    async def _not_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, error: errors.ErrorReply) -> None:
        started = perf_counter()
        await self._state.onto_loop()
        headers = dict(scope["headers"])
        request_id = request_id_of(headers)
        await refuse(receive, send, error, headers, request_id)
        record = RequestRecord(
            request_id, "other", error.status, "refused", perf_counter() - started, code=error.code
        )
        self._state.metrics.record(record)
        self._state.log.request(record)

    # === life cycle ===

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    self.startup()
                except Exception as error:
                    await send({"type": "lifespan.startup.failed", "message": where(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.shutdown()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def startup(self) -> None:
        """Start the relay."""
        state = self._state
        state.loop()
        state.running_relay()
        state.responses.start(self._responses.execute)
        state.log.info(
            "worker_started",
            pid=os.getpid(),
            version=_core.__version__,
            models=len(state.models),
            upstreams=len(state.config.upstreams),
            keys=len(state.config.keys),
        )
        if self.on_startup is not None:
            self.on_startup()

    def keep(self, task: asyncio.Task[None]) -> None:
        """`task` runs as long as the gateway: it is cancelled at its end."""
        self._kept.append(task)

    def reload(self, config: Config) -> None:
        """Serve what `config` says from now on, but for its `server` and `responses`, which stay as they are.

        On the event loop. Requests under way go on with what they began with, and so do the connections of
        upstreams that are the same. Raises `ConfigurationError`, and then nothing has changed.
        """
        state = self._state
        state.serving = Serving(
            config.model_copy(update={"server": state.config.server, "responses": state.config.responses}),
            Keyring(config.keys),
            ModelTable(config, state.models),
            self._own_prices or policy_for(config),
        )
        state.responses.serve(model.name for model in state.models)

    def drain(self, seconds: float) -> None:
        """Report not ready from now on, and end what still runs after `seconds`. Idempotent.

        On the event loop. Requests are still served: closing the listening socket is the server's part.
        """
        state = self._state
        if state.draining:
            return
        state.draining = True
        state.log.info("draining", open=state.open, seconds=seconds)
        loop = asyncio.get_running_loop()
        self._closing = loop.call_later(seconds, self._cut_off)
        # Background work ends a little earlier: what becomes of it must still be written.
        self._draining = loop.create_task(state.responses.drain(seconds * BACKGROUND_SHARE))

    def _cut_off(self) -> None:
        state = self._state
        if state.open:
            state.log.warning("drain_deadline", open=state.open)
        task = asyncio.get_running_loop().create_task(self._close_relay())
        state.tasks.add(task)
        task.add_done_callback(state.tasks.discard)

    async def _close_relay(self) -> None:
        relay = self._state.relay
        if relay is not None:
            # Not on the loop: what still runs may need it to end.
            await asyncio.to_thread(relay.close)

    async def shutdown(self) -> None:
        """End every exchange, and record it. Idempotent."""
        state = self._state
        state.draining = True
        for task in self._kept:
            task.cancel()
        await asyncio.gather(*self._kept, return_exceptions=True)
        if self._draining is not None:
            await self._draining
        if self._closing is not None:
            self._closing.cancel()
        await state.responses.drain(0)
        await self._close_relay()
        state.idle = asyncio.Event()
        if state.open:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(state.idle.wait(), CLOSE_SECONDS)
        if state.open:
            state.log.error("requests_lost", open=state.open)
        await state.responses.close()
        state.metrics.flush()
        state.log.info("worker_stopped")
        await asyncio.to_thread(state.log.close)


def create_app(
    config: Config,
    *,
    prices: PricePolicy | None = None,
    policy: Policy | None = None,
    log: Log | None = None,
    start_relay: Callable[[], Relay] | None = None,
) -> Gateway:
    """The gateway that `config` describes.

    `prices` and `policy` replace what the configuration says of prices, and the order of routes. `log`
    defaults to standard output. Raises `ConfigurationError` for an upstream that cannot be used.
    """
    settings = config.server.log
    log = log or Log.configured(settings.level, settings.format)
    metrics = Metrics()
    models = ModelTable(config)
    return Gateway(
        State(
            serving=Serving(config, Keyring(config.keys), models, prices or policy_for(config)),
            policy=policy or Ordered(),
            log=log,
            metrics=metrics,
            responses=ResponseStore(config.responses, [model.name for model in models], metrics.stored, log),
            start_relay=start_relay or (lambda: _relay(config)),
        ),
        prices,
    )


def _relay(config: Config) -> Relay:
    server = config.server
    return Relay(
        max_event_bytes=server.max_event_bytes,
        max_reply_bytes=server.max_reply_bytes,
        client_buffer_bytes=server.client_buffer_bytes,
        keepalive_seconds=server.keepalive_seconds,
        drain_seconds=server.disconnect_drain.seconds,
        drain_bytes=server.disconnect_drain.bytes,
        drain_replies=server.disconnect_drain.replies,
    )


def _get(endpoint: Any) -> Mapping[str, Application]:
    # The server leaves the body out of what answers HEAD.
    return {"GET": endpoint, "HEAD": endpoint}
