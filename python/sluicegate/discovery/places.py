"""Where inference servers usually are, and where their keys usually are: as the profiles have it."""

from collections.abc import Mapping
from functools import cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from sluicegate.config import UpstreamConfig, profile, profile_at, profiles


@cache
def local_servers() -> Mapping[int, tuple[str, ...]]:
    """The profiles of servers on this machine, by the port that each has where nobody says otherwise."""
    found: dict[int, tuple[str, ...]] = {}
    for one in profiles():
        url = urlsplit(one.base_url or "")
        if url.port is not None and ip_address(url.hostname or "").is_loopback:
            found[url.port] = (*found.get(url.port, ()), one.name)
    return found


def key_variable(upstream: UpstreamConfig) -> str | None:
    """The variable that usually holds the key for this server; None where it is not known."""
    at = profile_at(upstream.base_url)
    return profile(upstream.profile).key_variable or (at.key_variable if at is not None else None)
