"""Active probes: upstreams that say `probe` are asked again and again whether they are there."""

import asyncio
from asyncio import sleep
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from sluicegate.config import Config, ProbeConfig, UpstreamConfig
from sluicegate.discovery import FetchFailed, endpoint_at, fetch
from sluicegate.gateway.deployments import DeploymentReport
from sluicegate.routing import Breaker, Fleet

FAILURES = 3
"""In a row, after which an upstream is ejected."""

PATIENCE = 5.0
"""Seconds for a reply, or less where probes follow each other faster."""


@dataclass(slots=True)
class _Probed:
    """One upstream. It goes on through changes of the configuration that do not concern it."""

    upstream: UpstreamConfig
    probe: ProbeConfig
    task: asyncio.Task[None] | None = None
    failures: int = 0
    """In a row."""
    reach: Breaker | None = None
    """Kept here, too: no model may have a route to it."""


class Probing:
    """Sends the probes. For the event loop; `post` has what they found taken in by the thread that decides.

    A healthy `/models` proves little: what was ejected is only tried again by it.
    """

    def __init__(
        self, fleet: Fleet, post: Callable[[Callable[[], None]], None], report: DeploymentReport
    ) -> None:
        self._fleet = fleet
        self._post = post
        self._report = report
        self._probed: dict[str, _Probed] = {}
        self._running = False
        # Nothing secret depends on when a probe is sent.
        self._random = Random()  # noqa: S311

    def adopt(self, config: Config) -> None:
        """Probe the upstreams of `config` from now on."""
        upstreams = config.upstreams
        for name, probed in [*self._probed.items()]:
            if upstreams.get(name) != probed.upstream:
                _end(self._probed.pop(name))
        for name, upstream in upstreams.items():
            if upstream.probe is not None and name not in self._probed:
                self._probed[name] = _Probed(upstream, upstream.probe)
        if self._running:
            self.start()

    def start(self) -> None:
        """Begin to probe. Idempotent."""
        self._running = True
        loop = asyncio.get_running_loop()
        for name, probed in self._probed.items():
            if probed.task is None:
                probed.task = loop.create_task(self._follow(name, probed))

    async def stop(self) -> None:
        """Probe no more. Idempotent."""
        self._running = False
        tasks = [probed.task for probed in self._probed.values() if probed.task is not None]
        for probed in self._probed.values():
            _end(probed)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, name: str, probed: _Probed) -> None:
        # Not all at once, of many gateways that start together.
        await sleep(probed.probe.every * self._random.random())
        while True:
            self._take(name, probed, good=await _ask(probed))
            await sleep(probed.probe.every)

    def _take(self, name: str, probed: _Probed, *, good: bool) -> None:
        self._report.probed(name, "ok" if good else "failed")
        probed.failures = 0 if good else probed.failures + 1
        if good or probed.failures >= FAILURES:
            self._post(lambda: self._tell(name, probed, good=good))

    def _tell(self, name: str, probed: _Probed, *, good: bool) -> None:
        # On the thread that decides.
        fleet = self._fleet
        probed.reach = reach = fleet.reach(name)
        if good:
            reach.may_be_back(fleet.clock())
        else:
            reach.eject(fleet.clock(), "probe")


async def _ask(probed: _Probed) -> bool:
    url = probed.upstream.base_url + probed.probe.path
    try:
        reply = await fetch(endpoint_at(probed.upstream, url), min(PATIENCE, probed.probe.every))
    except FetchFailed:
        return False
    return reply.status < 500


def _end(probed: _Probed) -> None:
    if probed.task is not None:
        probed.task.cancel()
        probed.task = None
