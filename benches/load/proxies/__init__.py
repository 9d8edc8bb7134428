"""The proxies that are compared. One kind a file; each says how it is found, configured and started."""

from benches.load.proxies.direct import DIRECT
from benches.load.proxies.gateways import LITELLM, NAIVE, SLUICEGATE, SMG, VLLM_ROUTER
from benches.load.proxies.model import Proxy, Setup
from benches.load.proxies.relays import ENVOY, HAPROXY, NGINX

# Those that are measured where none is named.
PEERS = (NGINX, SLUICEGATE, VLLM_ROUTER, SMG, ENVOY)
PROXIES = (*PEERS, HAPROXY, NAIVE, LITELLM)

__all__ = ["DIRECT", "LITELLM", "PEERS", "PROXIES", "SLUICEGATE", "Proxy", "Setup"]
