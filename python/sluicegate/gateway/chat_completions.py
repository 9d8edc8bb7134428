"""`POST /v1/chat/completions`."""

from sluicegate.gateway.relayed import RelayedEndpoint
from sluicegate.gateway.state import State

PATH = "/v1/chat/completions"


def chat_completions(state: State) -> RelayedEndpoint:
    return RelayedEndpoint(state, "chat_completions", "/chat/completions")
