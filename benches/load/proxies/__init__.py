"""The proxies that are compared. One kind a file; each says how it is found, configured and started."""

from benches.load.proxies.direct import DIRECT
from benches.load.proxies.gateways import (
    ACCOUNTS,
    AFFINITY,
    LEAST_BUSY,
    LITELLM,
    NAIVE,
    SLUICEGATE,
    SMG,
    VLLM_ROUTER,
)
from benches.load.proxies.model import Proxy, Setup
from benches.load.proxies.relays import ENVOY, HAPROXY, NGINX

# Those that are measured where none is named.
PEERS = (NGINX, SLUICEGATE, VLLM_ROUTER, SMG, ENVOY)
# sluicegate with more to do: what that costs is seen beside sluicegate itself.
VARIANTS = (LEAST_BUSY, AFFINITY, ACCOUNTS)
PROXIES = (*PEERS, *VARIANTS, HAPROXY, NAIVE, LITELLM)

__all__ = [
    "ACCOUNTS",
    "AFFINITY",
    "DIRECT",
    "LEAST_BUSY",
    "LITELLM",
    "PEERS",
    "PROXIES",
    "SLUICEGATE",
    "VARIANTS",
    "Proxy",
    "Setup",
]
