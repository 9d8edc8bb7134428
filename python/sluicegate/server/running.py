"""A gateway from its start to its end, on one event loop."""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sluicegate._core import Front, ListenBounds, Tls
from sluicegate.config import Config
from sluicegate.discovery import ASK_SECONDS, Listing, NoListing
from sluicegate.gateway import Gateway
from sluicegate.gateway.app import CLOSE_SECONDS
from sluicegate.server import interpreter
from sluicegate.server.address import Address
from sluicegate.server.admin import AdminListener
from sluicegate.server.application import Application
from sluicegate.server.embedded import STOP_SECONDS
from sluicegate.server.ending import Ending
from sluicegate.server.reload import POLL_SECONDS, Reader
from sluicegate.server.signals import Signals
from sluicegate.telemetry import Log, where

# What the gateway and the server need to end once nothing is waited for any more; then the process is killed.
END_SECONDS = CLOSE_SECONDS + STOP_SECONDS + 3.0
# After the deadline of a drain the gateway ends what is left, and each client is told.
CUT_SECONDS = 3.0
IDLE_POLL_SECONDS = 0.02
# Two questions to an upstream that does not answer.
TELL_SECONDS = 2 * ASK_SECONDS + 0.5


@dataclass(frozen=True, slots=True)
class Ready:
    """A gateway that listens. `answers`: what the upstreams said that were asked for their models."""

    url: str
    config: Config
    answers: Mapping[str, Listing | NoListing | None]


Tell = Callable[[Ready], object]


class Running:
    """One gateway, its front and its application."""

    def __init__(
        self,
        gateway: Gateway,
        config: Config,
        address: Address,
        tls: Tls | None,
        connections: int,
        log: Log,
        tell: Tell | None = None,
        admin: AdminListener | None = None,
    ) -> None:
        self._gateway = gateway
        self._config = config
        self._address = address
        self._tls = tls
        self._connections = connections
        self._log = log
        self._tell = tell
        self._admin = admin
        self._over = asyncio.Event()
        self._died = asyncio.Event()

    async def run(self, signals: Signals, ending: Ending, path: Path | None = None) -> int:
        """Serve until told to stop; the exit status. `path`: the configuration's file, followed from now on.

        0 after a drain; 1 where the gateway died. Raises what keeps it from starting.
        """
        settings = self._config.server
        gateway = self._gateway
        loop = asyncio.get_running_loop()

        def died(_: str) -> None:
            # Any thread; the loop may not come to it any more, or be closed.
            ending.within(END_SECONDS, 1)
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._end_dead)

        def application_ended() -> None:
            self._log.error("died", message="the application's server ended")
            died("")

        gateway.on_death = died
        application = Application(gateway, settings, self._connections)
        ending.also(application.remove)
        if self._admin is not None:
            ending.also(self._admin.release)
        reader: Reader | None = None
        telling: asyncio.Task[None] | None = None
        try:
            gateway.start(deciding_thread=True)
            await gateway.looked()
            await application.start(application_ended)
            front = self._listen(application)
            if self._admin is not None:
                await self._admin.start()
            self._tell_listening()
            interpreter.settle()
            if self._tell is not None:
                telling = loop.create_task(self._tell_ready(self._tell))
            if path is not None:
                reader = self._reader(loop, path)
                reader.start()
            signals.attach(loop, self._over.set, (lambda: None) if reader is None else reader.ask)
            await self._over.wait()
            if reader is not None:
                reader.stop()
            if not self._dead:
                ending.within(
                    settings.drain_delay_seconds + settings.drain_seconds + CUT_SECONDS + END_SECONDS, 1
                )
                await self._leave(settings.drain_delay_seconds)
            if not self._dead:
                gateway.drain(settings.drain_seconds)
                await self._until_idle(front, settings.drain_seconds + CUT_SECONDS)
        finally:
            if reader is not None:
                reader.stop()
            if telling is not None:
                telling.cancel()
            if self._admin is not None:
                await self._admin.stop()
            await gateway.shutdown()
            await application.stop()
        return 1 if self._dead else 0

    @property
    def _dead(self) -> bool:
        return self._died.is_set()

    def _end_dead(self) -> None:
        self._died.set()
        self._over.set()

    # === start ===

    def _listen(self, application: Application) -> Front:
        front = self._gateway.front
        if front is None:
            raise RuntimeError("the gateway has no front")
        settings = self._config.server
        bounds = settings.bounds
        front.listen(
            self._address.host,
            self._address.port,
            str(application.path),
            http2=settings.http == "auto",
            tls=self._tls,
            bounds=ListenBounds(
                head_bytes=bounds.head_bytes,
                url_bytes=bounds.url_bytes,
                headers=bounds.headers,
                head_seconds=bounds.head_seconds,
                body_pause_seconds=bounds.body_pause_seconds,
                body_bytes_per_second=bounds.body_bytes_per_second,
                idle_seconds=bounds.idle_seconds,
                connections=self._connections,
                http2_streams=bounds.http2_streams,
                http2_resets=bounds.http2_resets,
                stall_seconds=bounds.client_stall_seconds,
            ),
        )
        # The front has it now, and one that comes after us may have it as soon as that lets go of it.
        self._address.release()
        return front

    def _tell_listening(self) -> None:
        self._log.info(
            "listening",
            address=self._url,
            host=self._address.host,
            port=self._address.port,
            threads=self._config.server.threads,
        )

    @property
    def _url(self) -> str:
        return f"{'http' if self._tls is None else 'https'}://{self._address}"

    async def _tell_ready(self, tell: Tell) -> None:
        discovery = self._gateway.discovery
        await discovery.first_answers(TELL_SECONDS)
        try:
            tell(Ready(self._url, self._gateway.config, discovery.answers))
        except Exception as error:
            # Standard error may be closed: that is no reason not to serve.
            self._log.warning("not_told", error=where(error))

    # === a changed configuration ===

    def _reader(self, loop: asyncio.AbstractEventLoop, path: Path) -> Reader:
        def take(config: Config) -> None:
            # The reader's thread: it learns what becomes of one before it reads the next.
            done = on_loop(loop, lambda: self._reload(config))
            while not concurrent.futures.wait((done,), POLL_SECONDS).done:
                if reader.stopped:
                    return
            done.result()

        watch = self._config.server.reload_on_change
        reader = Reader(path, self._config, take, self._log, self._gateway.configuration, watch=watch)
        return reader

    def _reload(self, config: Config) -> None:
        self._gateway.reload(config)
        self._log.info("reloaded", models=len(config.models))
        interpreter.settle()

    # === stop ===

    async def _leave(self, seconds: float) -> None:
        """Serve on for `seconds`, or until the gateway dies, while balancers hear that it is not ready."""
        if not seconds:
            return
        self._gateway.leave()
        self._log.info("leaving", seconds=seconds)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._died.wait()

    async def _until_idle(self, front: Front, seconds: float) -> None:
        """Until nobody is served any more, for at most `seconds`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while (  # noqa: ASYNC110 - engine threads tell the loop nothing
            (front.active or front.connections) and not self._dead and loop.time() < deadline
        ):
            await asyncio.sleep(IDLE_POLL_SECONDS)


def on_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> "concurrent.futures.Future[None]":
    """Call it on `loop`, from another thread. Raises `RuntimeError` where the loop is closed."""
    done: concurrent.futures.Future[None] = concurrent.futures.Future()

    def run() -> None:
        try:
            call()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    loop.call_soon_threadsafe(run)
    return done
