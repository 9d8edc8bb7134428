"""Which models an upstream serves: asking it, and the configuration that follows from its answers."""

from sluicegate.discovery.asking import ASK_SECONDS, Listing, NoListing, ask
from sluicegate.discovery.following import Discovery
from sluicegate.discovery.merging import Found, merge, settings_of
from sluicegate.discovery.places import LOCAL_SERVERS, PROVIDERS, Provider, key_variable

__all__ = [
    "ASK_SECONDS",
    "LOCAL_SERVERS",
    "PROVIDERS",
    "Discovery",
    "Found",
    "Listing",
    "NoListing",
    "Provider",
    "ask",
    "key_variable",
    "merge",
    "settings_of",
]
