"""Where a configuration is if nobody says, and which inference servers answer on this machine."""

import asyncio
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluicegate.config import UpstreamConfig
    from sluicegate.discovery import Listing, NoListing

LOCAL_SECONDS = 1.0


def configuration_paths() -> list[Path]:
    """The files that are looked for, in this order."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return [
        Path("sluicegate.yaml"),
        Path(home).expanduser() / "sluicegate" / "config.yaml",
        Path("/etc/sluicegate/config.yaml"),
    ]


def find_configuration() -> Path | None:
    """The first of them that is there."""
    return next((path for path in configuration_paths() if path.is_file()), None)


def ask_all(upstreams: "Mapping[str, UpstreamConfig]") -> "dict[str, Listing | NoListing]":
    """What each upstream says of its models, all asked at once."""
    from sluicegate.discovery import ask

    async def answers() -> "list[Listing | NoListing]":
        return await asyncio.gather(*(ask(upstream) for upstream in upstreams.values()))

    return dict(zip(upstreams, asyncio.run(answers()), strict=True))


def local_servers(ports: Iterable[int] | None = None) -> "dict[int, Listing]":
    """The servers on this machine's loopback address that list models, by port."""
    from sluicegate import discovery
    from sluicegate.config import UpstreamConfig
    from sluicegate.discovery import Listing, ask

    asked = tuple(discovery.local_servers() if ports is None else ports)

    async def answers() -> "list[Listing | NoListing]":
        upstreams = (UpstreamConfig(base_url=f"http://127.0.0.1:{port}") for port in asked)
        return await asyncio.gather(*(ask(upstream, LOCAL_SECONDS) for upstream in upstreams))

    found = zip(asked, asyncio.run(answers()), strict=True)
    return {port: answer for port, answer in found if isinstance(answer, Listing)}
