"""Which models an upstream serves: asking it, and the configuration that follows from its answers."""

from sluicegate.discovery.asking import ASK_SECONDS, Listing, NoListing, ask, endpoint_at
from sluicegate.discovery.fetching import FetchFailed, fetch
from sluicegate.discovery.following import Discovery
from sluicegate.discovery.merging import Found, fitted, merge
from sluicegate.discovery.places import key_variable, local_servers

__all__ = [
    "ASK_SECONDS",
    "Discovery",
    "FetchFailed",
    "Found",
    "Listing",
    "NoListing",
    "ask",
    "endpoint_at",
    "fetch",
    "fitted",
    "key_variable",
    "local_servers",
    "merge",
]
