"""Asking upstreams again and again, and telling when something has changed."""

import asyncio
from asyncio import sleep
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sluicegate.config import Config, UpstreamConfig
from sluicegate.discovery.asking import Listing, NoListing, ask
from sluicegate.discovery.merging import Found, fitted, merge
from sluicegate.telemetry import Log, where

# An inference server that starts is there within seconds or minutes; a refused connection costs nothing.
RETRY_SECONDS = 5.0


@dataclass(slots=True)
class _Followed:
    """One upstream. It goes on through changes of the configuration that do not concern it."""

    upstream: UpstreamConfig
    task: asyncio.Task[None] | None = None
    answer: Listing | NoListing | None = None
    """The last one; None before the first."""
    listing: Listing | None = None
    """The last good list; None without one, or where it is stale."""
    listed: bool = False
    """There has been a list."""
    listed_at: float = 0.0
    first: asyncio.Event = field(default_factory=asyncio.Event)
    """There has been an answer."""


class Discovery:
    """Follows the upstreams of a configuration that say `discover`. For the event loop's thread.

    `take` is called, once `start` has been, with what is to be served each time that this is another, and
    `prepare` before it, on a thread that may take its time. Either may raise, and then this is logged and
    tried again with the next answer.
    """

    def __init__(
        self, config: Config, prepare: Callable[[Found], object], take: Callable[[Found], None], log: Log
    ) -> None:
        self._config = config
        self._prepare = prepare
        self._take = take
        self._log = log
        self._followed: dict[str, _Followed] = {}
        self._taken: Found | None = None
        self._running = False
        self.adopt(config)

    @property
    def answers(self) -> Mapping[str, Listing | NoListing | None]:
        """Each upstream's last answer; None: it has not answered yet."""
        return {name: followed.answer for name, followed in self._followed.items()}

    def found(self, config: Config) -> Found:
        """What is to be served with `config` in place of the one that is followed."""
        listings = {
            name: followed.listing
            for name, followed in self._followed.items()
            if followed.listed and config.upstreams.get(name) == followed.upstream
        }
        return merge(config, listings)

    def adopt(self, config: Config) -> None:
        """Follow the upstreams of `config` from now on."""
        wanted = {
            name: upstream for name, upstream in config.upstreams.items() if upstream.discover is not None
        }
        for name, followed in [*self._followed.items()]:
            if wanted.get(name) != followed.upstream:
                self._end(self._followed.pop(name))
        self._config = config
        for name, upstream in wanted.items():
            if name not in self._followed:
                self._followed[name] = _Followed(upstream)
        self._taken = self.found(config)
        if self._running:
            self.start()

    def start(self) -> None:
        """Begin to ask. Idempotent."""
        self._running = True
        loop = asyncio.get_running_loop()
        for name, followed in self._followed.items():
            if followed.task is None:
                followed.task = loop.create_task(self._follow(name, followed))

    async def stop(self) -> None:
        """Ask no more. Idempotent."""
        self._running = False
        tasks = [followed.task for followed in self._followed.values() if followed.task is not None]
        for followed in self._followed.values():
            self._end(followed)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def first_answers(self, seconds: float) -> None:
        """Wait until each upstream has answered, or has not in time, for `seconds` at most."""
        waiting = [asyncio.ensure_future(followed.first.wait()) for followed in self._followed.values()]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=seconds)
            for task in late:
                task.cancel()

    def _end(self, followed: _Followed) -> None:
        if followed.task is not None:
            followed.task.cancel()
            followed.task = None

    async def _follow(self, name: str, followed: _Followed) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                answer = await ask(followed.upstream)
            except Exception as error:  # A server that breaks the asking must not end it for good.
                answer = NoListing("no_list", where(error))
            before = followed.answer
            self._learn(followed, answer, loop.time())
            if await self._serve(name) and answer != before:
                self._tell(name, followed, answer)
            followed.first.set()
            unreachable = isinstance(answer, NoListing) and answer.kind == "unreachable"
            await sleep(RETRY_SECONDS if unreachable else self._interval(followed))

    @staticmethod
    def _interval(followed: _Followed) -> float:
        discover = followed.upstream.discover
        return RETRY_SECONDS if discover is None else discover.interval

    def _learn(self, followed: _Followed, answer: Listing | NoListing, now: float) -> None:
        followed.answer = answer
        if isinstance(answer, Listing):
            followed.listing, followed.listed, followed.listed_at = answer, True, now
        elif self._is_stale(followed, now):
            followed.listing = None

    async def _serve(self, name: str) -> bool:
        """Serve what is known now; whether that is done."""
        found = self.found(self._config)
        if found == self._taken:
            return True
        try:
            await asyncio.to_thread(self._prepare, found)
            # Others may have answered meanwhile, and the configuration may be another.
            found = self.found(self._config)
            self._take(found)
        except Exception as error:
            self._log.error("discovery_failed", upstream=name, reason=where(error))
            return False
        self._taken = found
        return True

    @staticmethod
    def _is_stale(followed: _Followed, now: float) -> bool:
        discover = followed.upstream.discover
        return discover is not None and now - followed.listed_at >= discover.stale_after

    def _tell(self, name: str, followed: _Followed, answer: Listing | NoListing) -> None:
        if isinstance(answer, Listing):
            served = fitted(followed.upstream, answer)
            self._log.info(
                "discovered",
                upstream=name,
                models=len(answer.models),
                profile=served.profile,
                base_url=served.base_url,
            )
        else:
            self._log.warning("discovery_failed", upstream=name, reason=answer.reason)
