"""`POST /v1/embeddings`."""

from sluicegate.gateway.relayed import RelayedEndpoint
from sluicegate.gateway.state import State

PATH = "/v1/embeddings"


def embeddings(state: State) -> RelayedEndpoint:
    return RelayedEndpoint(state, "embeddings", "/embeddings")
