"""`POST /v1/completions`: the API before chat, still how base models are served."""

from sluicegate.gateway.relayed import RelayedEndpoint
from sluicegate.gateway.state import State

PATH = "/v1/completions"


def completions(state: State) -> RelayedEndpoint:
    return RelayedEndpoint(state, "completions", "/completions")
