"""The gateway as an ASGI application: where all parts meet."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC
from urllib.parse import quote

from sluicegate import _core
from sluicegate._core import Decisions, Estimates, Front
from sluicegate.admission import (
    Counters,
    Keyring,
    Limiter,
    SharedCounters,
    Standing,
)
from sluicegate.config import NEED_RESTART, Config
from sluicegate.discovery import Discovery, Found, merge
from sluicegate.errors import ConfigurationError
from sluicegate.gateway import errors, exposition, health, models
from sluicegate.gateway.admission import Admission
from sluicegate.gateway.app_request import AppRequest, Endpoint, Methods
from sluicegate.gateway.asgi import ClientDisconnected, Receive, Scope, Send, respond
from sluicegate.gateway.background import Background
from sluicegate.gateway.conversations import Conversations
from sluicegate.gateway.counting import Counting
from sluicegate.gateway.deciding import Deciding, DecidingOnLoop, DecidingThread
from sluicegate.gateway.decisions import Answered, Decider
from sluicegate.gateway.deployments import DeploymentReport
from sluicegate.gateway.door import Door
from sluicegate.gateway.endpoints import RELAYED, RESPONSES_PATH
from sluicegate.gateway.engines import start_engines
from sluicegate.gateway.errors import Refused
from sluicegate.gateway.known_prices import KnownPrices
from sluicegate.gateway.loop_side import LoopSide
from sluicegate.gateway.notices import Notices
from sluicegate.gateway.prices import Prices
from sluicegate.gateway.probing import Probing
from sluicegate.gateway.standings import standings
from sluicegate.gateway.state import Serving, State
from sluicegate.gateway.stored_responses import StoredResponses
from sluicegate.gateway.telling import tell_engines
from sluicegate.gateway.totals import LedgerTotals
from sluicegate.identity import Following, Snapshot
from sluicegate.ledger import Ledger
from sluicegate.pricing import PricePolicy, policy_for
from sluicegate.responses import ResponseStore
from sluicegate.routing import Fleet, ModelTable, Policy
from sluicegate.storage import RedisConnector, redis_faults
from sluicegate.telemetry import ConfigurationReport, Log, Metrics, Recorder, where

# What is left to do for requests once their connections are closed: their records.
CLOSE_SECONDS = 5.0

# Of the time that a drain may take, what background responses may use to end by themselves.
BACKGROUND_SHARE = 0.9

_NO_ENDPOINT = "other"


class Gateway:
    """One gateway in one process. As an ASGI application it serves everything, under any server.

    Its engines, and so their threads, are made by `start`: when a server starts the application, or by the
    first request where the server has no lifespan, never before. All methods are for the event loop.
    """

    def __init__(
        self,
        state: State,
        report: DeploymentReport,
        keys: Following,
        own_prices: PricePolicy | None = None,
        own_policy: Policy | None = None,
        *,
        closes_log: bool = True,
    ) -> None:
        self._state = state
        self._closes_log = closes_log
        self._own_prices = own_prices
        self._own_policy = own_policy
        self.on_death: Callable[[str], None] | None = None
        """Called, on any thread, where an engine or the thread that decides has died: nothing is served any
        more, and the process has to end.
        """
        conversations = Conversations(state)
        self._loop_side = LoopSide(state, conversations)
        self._decider = self._loop_side.decider = Decider(
            state, self._loop_side.begin_continuing, self._loop_side.begin_storing, self._died
        )
        self._totals = _totals(state, self._decider)
        self._counting = _counting(state, self._totals)
        self._discovery = Discovery(state.config, self._prepare, self._serve, state.log)
        self._keys = keys
        self._probing = Probing(state.models.fleet, self._decider.post, report)
        self._probing.adopt(state.config)
        self._door = Door(state)
        self._background = Background(state, self._door, self._decider, conversations)
        self._stored = StoredResponses(state)
        self._deciding: Deciding | None = None
        self._front_fd = -1
        self._closing: asyncio.TimerHandle | None = None
        self._draining: asyncio.Task[None] | None = None
        self._front_closing: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        shown = _get("models", models.ModelsEndpoint(state))
        self._one_model = shown
        self._endpoints: dict[str, Methods] = {
            path: {"POST": (name, self._door.endpoint(path))} for path, name in RELAYED.items()
        }
        self._endpoints |= {
            RESPONSES_PATH: {"POST": (RELAYED[RESPONSES_PATH], self._background.endpoint)},
            models.PATH: shown,
            # What supervisors ask every few seconds is no request of a client: it has no record.
            **dict.fromkeys(health.HEALTH_PATHS, _get("", health.healthz)),
            health.READY_PATH: _get("", health.ReadyEndpoint(state)),
            exposition.PATH: _get("", exposition.MetricsEndpoint(state)),
        }

    @property
    def front(self) -> Front | None:
        """The engines; None before the start."""
        return self._state.front

    @property
    def discovery(self) -> Discovery:
        """Which models the upstreams list that say `discover`."""
        return self._discovery

    @property
    def config(self) -> Config:
        """What is served now, with the models that were found."""
        return self._state.config

    # === for the admin API ===

    @property
    def models(self) -> ModelTable:
        """What is served now."""
        return self._state.models

    @property
    def log(self) -> Log:
        return self._state.log

    @property
    def readiness(self) -> Mapping[str, str]:
        """See `health.readiness`."""
        return health.readiness(self._state)

    @property
    def configuration(self) -> ConfigurationReport:
        return self._state.metrics.configuration

    @property
    def ledger(self) -> Ledger | None:
        """None where none is kept."""
        return self._state.ledger

    async def standings(
        self, name: str, user: str | None, first: str, most: int
    ) -> list[tuple[str, list[Standing]]]:
        """How the limits of a caller stand: see `Watched`."""
        return await standings(self._state, self._decider, name, user, first, most)

    async def decided(self, step: Callable[[], Answered]) -> Answered:
        """What `step` says on the thread that decides. It must not wait."""
        return await self._decider.ask(step)

    def count_wrong_token(self) -> None:
        """Somebody has presented a token to the admin API that is none."""
        self._state.metrics.wrong_admin_token()

    async def exposition(self, accept: str) -> tuple[str, bytes]:
        """Metrics: their content type, and the text. `accept`: the scraper's header."""
        return await exposition.exposition(self._state, accept)

    # === as an ASGI application ===

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self._start_late()
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        method: str = scope["method"]
        path: str = scope["path"]
        methods = self._methods(path) or self._passed(scope)
        if method == "OPTIONS" and methods is not None:
            await respond(send, 204, [(b"allow", _allowed(methods))], b"")
            return
        name, endpoint = (methods or {}).get(method, (_NO_ENDPOINT, None))
        asked = AppRequest(self._state, name, scope, receive, send)
        if endpoint is None:
            asked.wrong_path = path
        try:
            if methods is None:
                raise Refused(errors.unknown_url(method, path))
            if endpoint is None:
                raise Refused(errors.method_not_allowed(method, path, _allowed(methods)))
            await endpoint(asked)
        except Refused as refused:
            await asked.refuse(refused.reply)
        except ClientDisconnected:
            return
        except Exception as error:
            self._state.log.error("unhandled", at=path[:256], error=where(error))
            # The response may have begun, and then the server refuses another: the connection is cut instead.
            with contextlib.suppress(Exception):
                await asked.refuse(errors.internal())

    def _methods(self, path: str) -> Methods | None:
        methods = self._endpoints.get(path)
        if methods is None and path.startswith(models.PATH + "/") and len(path) > len(models.PATH) + 1:
            methods = self._one_model
        return self._stored.methods(path) if methods is None else methods

    def _passed(self, scope: Scope) -> Methods | None:
        """The methods of a path of the operator's own."""
        front = self._state.front
        # As it stands in the URL: what is escaped in it is another path where it is not.
        raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
        path = raw.partition(b"?")[0].decode("latin-1")
        methods = [] if front is None else front.passthrough_methods(path)
        return {method: (name, self._door.endpoint(path)) for method, name in methods} or None

    # === life cycle ===

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    self.start(deciding_thread=False)
                    await self._keys.looked()
                except Exception as error:
                    await send({"type": "lifespan.startup.failed", "message": where(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.shutdown()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def start(self, *, deciding_thread: bool) -> None:
        """Start the engines, and decide: on a thread of its own, or on the event loop. Idempotent."""
        state = self._state
        if state.front is not None or state.draining:
            return
        if state.ledger is not None:
            state.ledger.start()
        self._loop_side.start()
        if self._totals is not None:
            self._totals.start()
        decisions, front = state.start_engines(state.config)
        try:
            tell_engines(front, state.serving)
            deciding: Deciding = (
                DecidingThread(self._decider, decisions, self._counting, self._died)
                if deciding_thread
                else DecidingOnLoop(self._decider, decisions, self._counting)
            )
            self._front_fd = front.fileno()
            deciding.start()
        except BaseException:
            front.close()
            raise
        asyncio.get_running_loop().add_reader(self._front_fd, self._door.pump)
        self._deciding, state.front = deciding, front
        state.responses.start(self._background.execute)
        self._keys.start(lambda: state.config.needs_keys, self._adopt_keys)
        self._discovery.start()
        self._probing.start()
        state.log.info(
            "started",
            pid=os.getpid(),
            version=_core.__version__,
            models=len(state.models),
            upstreams=len(state.config.upstreams),
            keys=len(state.config.keys),
            threads=state.config.server.threads,
        )

    async def looked(self) -> None:
        """Know the callers and keys of the database, where it can be read in time."""
        await self._keys.looked()

    def _start_late(self) -> None:
        """For servers without a lifespan."""
        if self._state.front is None:
            try:
                self.start(deciding_thread=False)
            except Exception as error:
                self._state.notices.warn_once("not_started", error=where(error))

    def reload(self, config: Config) -> None:
        """Serve what `config` says from now on, but for what is taken at the start only (`NEED_RESTART`).

        Requests under way go on with what they began with, and so do the connections of upstreams that are
        the same. Raises `ConfigurationError`, and then nothing has changed.
        """
        self._serve(self._discovery.found(config))
        self._discovery.adopt(config)

    def _prepare(self, found: Found) -> None:
        # Looking up the prices of hundreds of models takes tenths of a second, the first time.
        if self._own_prices is None:
            policy_for(found.config)

    def _serve(self, found: Found) -> None:
        state = self._state
        kept = {name: getattr(state.config, name) for name in NEED_RESTART}
        found = Found(found.config.model_copy(update=kept), found.unlisted)
        serving = _serving(
            found,
            self._own_prices,
            self._own_policy,
            state.notices,
            before=state.models,
            counters=state.counters,
            estimates=state.estimates,
            known=state.known_prices,
            stored=self._keys.known,
        )
        self._begin_serving(serving)
        self._probing.adopt(serving.config)

    def _adopt_keys(self, stored: Snapshot) -> None:
        """The same configuration, with the callers and keys that the database has now."""
        state = self._state
        serving = state.serving
        keys = serving.admission.keys.beside(stored)
        admission = _admission(
            serving.config, keys, serving.models, serving.prices, state.counters, state.estimates
        )
        self._begin_serving(replace(serving, admission=admission))

    def _begin_serving(self, serving: Serving) -> None:
        state = self._state
        missing = serving.admission.missing
        if missing and missing != state.serving.admission.missing:
            state.log.error("limits_missing", names=sorted(missing))
        if state.front is not None:
            tell_engines(state.front, serving)
        state.serving = serving
        if state.ledger is not None:
            state.ledger.counted_as = serving.admission.keys.counted_as
        state.responses.serve(serving.models.names, serving.admission.owners)

    def leave(self) -> None:
        """Report not ready, and serve on: `drain` is to follow once balancers have heard of it."""
        self._state.leaving = True

    def drain(self, seconds: float) -> None:
        """Accept nothing more, report not ready, and end what still runs after `seconds`. Idempotent."""
        state = self._state
        if state.draining:
            return
        state.draining = True
        front = state.front
        state.log.info("draining", open=0 if front is None else front.active, seconds=seconds)
        if front is not None:
            front.drain()
        loop = asyncio.get_running_loop()
        self._closing = loop.call_later(seconds, self._cut_off)
        # Background work ends a little earlier: what becomes of it must still be written.
        self._draining = loop.create_task(state.responses.drain(seconds * BACKGROUND_SHARE))

    def _cut_off(self) -> None:
        state = self._state
        if state.front is not None and state.front.active:
            state.log.warning("drain_deadline", open=state.front.active)
        self._close_front()

    def _close_front(self) -> "asyncio.Task[None]":
        """Ends once, when all exchanges have ended."""
        if self._front_closing is None:
            self._front_closing = asyncio.get_running_loop().create_task(self._end_exchanges())
        return self._front_closing

    async def _end_exchanges(self) -> None:
        front = self._state.front
        if front is None:
            return
        asyncio.get_running_loop().remove_reader(self._front_fd)
        # Not on the loop: what still runs may need it to end.
        await asyncio.to_thread(front.close)
        self._door.close()

    async def shutdown(self) -> None:
        """End every exchange, and record it. Idempotent."""
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._shut_down())
        await asyncio.shield(self._stopping)

    async def _shut_down(self) -> None:
        state = self._state
        state.draining = True
        if self._draining is not None:
            await self._draining
        if self._closing is not None:
            self._closing.cancel()
        await self._discovery.stop()
        await self._keys.stop()
        await self._probing.stop()
        await state.responses.drain(0)
        await self._close_front()
        if self._deciding is not None:
            await self._deciding.stop(CLOSE_SECONDS)
        if state.tasks:
            await asyncio.wait(state.tasks, timeout=CLOSE_SECONDS)
        if self._decider.open:
            state.log.error("requests_lost", open=self._decider.open)
        if self._totals is not None:
            await self._totals.close()
        if self._counting is not None:
            await asyncio.to_thread(self._counting.close)
        await state.responses.close()
        if state.ledger is not None:
            await state.ledger.close()
        state.log.info("gateway_stopped")
        if self._closes_log:
            await asyncio.to_thread(state.log.close)

    def _died(self, message: str) -> None:
        self._state.dead = True
        self._state.log.error("died", message=message)
        if self.on_death is not None:
            self.on_death(message)


def create_app(
    config: Config,
    *,
    prices: PricePolicy | None = None,
    policy: Policy | None = None,
    log: Log | None = None,
    engines: Callable[[Config], tuple[Decisions, Front]] = start_engines,
) -> Gateway:
    """The gateway that `config` describes.

    `prices` and `policy` replace what the configuration says of prices, and of choosing deployments. `log`
    defaults to standard output; one that is given is its owner's to close. `engines` starts the threads that
    move bytes. Raises `ConfigurationError` for an upstream that cannot be used, or a library that is missing.
    """
    settings = config.server.log
    closes_log = log is None
    log = log or Log.configured(settings.level, settings.format)
    metrics = Metrics()
    notices = Notices(log)
    counters = _counters(config)
    estimates = Estimates()
    report = DeploymentReport(log)
    known = KnownPrices()
    keys = Following(config.storage, log, metrics.keys)
    serving = _serving(
        merge(config, {}),
        prices,
        policy,
        notices,
        counters=counters,
        estimates=estimates,
        known=known,
        fleet=Fleet(told=report.changed),
        stored=keys.known,
    )
    state = State(
        serving=serving,
        counters=counters,
        estimates=estimates,
        known_prices=known,
        log=log,
        metrics=metrics,
        recorder=Recorder((log.request, metrics.record), log),
        notices=notices,
        responses=ResponseStore(
            config.responses, serving.models.names, metrics.stored, log, owners=serving.admission.owners
        ),
        ledger=None,
        start_engines=engines,
    )
    if config.ledger is not None:
        state.ledger = Ledger(
            config.ledger,
            config.storage,
            log,
            metrics.ledger,
            lambda record: known.charge(state.serving.prices, record),
            lambda record: known.describe(state.serving.prices, record),
        )
    report.models = lambda: state.models
    metrics.show(report)
    return Gateway(state, report, keys, prices, policy, closes_log=closes_log)


def _counters(config: Config) -> Counters:
    zone = UTC if config.ledger is None else config.ledger.zone
    storage = config.storage
    if storage.counters is None:
        return Counters(zone)
    if faults := redis_faults(storage.counters, storage.counters_ca_file):
        raise ConfigurationError(faults)
    return SharedCounters(zone, storage.counters_lost)


def _totals(state: State, decider: Decider) -> LedgerTotals | None:
    if state.ledger is None:
        return None
    totals = LedgerTotals(state.ledger, state.counters.zone, decider.post, state.log)
    state.counters.seeding.ask = totals.recall
    return totals


def _counting(state: State, totals: LedgerTotals | None) -> Counting | None:
    storage = state.config.storage
    if storage.counters is None or not isinstance(state.counters, SharedCounters):
        return None
    connector = RedisConnector(storage.counters, storage.counters_ca_file)
    return Counting(state.counters, connector, totals, state.log, state.metrics.counters)


def _serving(
    found: Found,
    own_prices: PricePolicy | None,
    own_policy: Policy | None,
    notices: Notices,
    *,
    before: ModelTable | None = None,
    counters: Counters,
    estimates: Estimates,
    known: KnownPrices,
    fleet: Fleet | None = None,
    stored: Snapshot | None = None,
) -> Serving:
    config = found.config

    def complain(model: str, error: Exception) -> None:
        notices.warn_once("policy_failed", model=model, error=where(error))

    table = ModelTable(
        config,
        before,
        found.unlisted,
        matched=found.matched,
        policy=own_policy,
        complain=complain,
        fleet=fleet,
    )
    prices = Prices(own_prices or policy_for(config), config.cost.style, notices, known.note, config.prices)
    admission = _admission(config, Keyring(config, stored), table, prices, counters, estimates)
    return Serving(config, admission, table, prices)


def _admission(
    config: Config, keys: Keyring, table: ModelTable, prices: Prices, counters: Counters, estimates: Estimates
) -> Admission:
    return Admission(keys, table, Limiter(config, counters, estimates, keys.own_limits), prices)


def _allowed(methods: Methods) -> bytes:
    return ", ".join((*methods, "OPTIONS")).encode()


def _get(name: str, endpoint: Endpoint) -> Mapping[str, tuple[str, Endpoint]]:
    # The server leaves the body out of what answers HEAD.
    return {"GET": (name, endpoint), "HEAD": (name, endpoint)}
