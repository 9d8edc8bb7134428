"""The endpoints that are relayed to upstreams: the engines' table."""

from sluicegate._core import ENDPOINTS

RESPONSES_PATH = "/v1/responses"

TIMEOUT_HEADER = "x-sluicegate-timeout"
"""How many seconds a client wants to wait for the end of its reply."""

RELAYED = {path: name for path, name, _ in ENDPOINTS}
"""The endpoint at each path, by the name that logs and metrics show."""

OF_ANTHROPIC = frozenset(name for _, name, anthropic in ENDPOINTS if anthropic)
"""Those of the Messages API."""
