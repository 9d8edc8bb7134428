"""`POST /v1/responses`."""

from sluicegate.gateway.relayed import RelayedEndpoint
from sluicegate.gateway.state import State

PATH = "/v1/responses"


def responses(state: State) -> RelayedEndpoint:
    chat_only = (name for name, upstream in state.config.upstreams.items() if upstream.api == "chat")
    return RelayedEndpoint(state, "responses", "/responses", frozenset(chat_only))
