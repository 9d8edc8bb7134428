"""The proxies that are compared. One kind a file; each says how it is found, configured and started."""

from benches.load.proxies.direct import DIRECT
from benches.load.proxies.gateways import LITELLM, NAIVE, SLUICEGATE, SMG
from benches.load.proxies.model import Proxy, Setup
from benches.load.proxies.relays import ENVOY, HAPROXY, NGINX

PROXIES = (NGINX, SLUICEGATE, HAPROXY, ENVOY, SMG, NAIVE, LITELLM)

__all__ = ["DIRECT", "PROXIES", "Proxy", "Setup"]
