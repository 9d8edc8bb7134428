"""`POST /v1/responses`.

Where the upstream serves it the request is forwarded; where it serves Chat Completions only both ways are
translated, on the relay's side.
"""

from sluicegate._core import Exchange, Relay, Request, ResponsesRequest, Route
from sluicegate.gateway.asgi import new_response_id
from sluicegate.gateway.relayed import Call, RelayedEndpoint
from sluicegate.gateway.reply import Reply
from sluicegate.gateway.state import State

PATH = "/v1/responses"


class ResponsesEndpoint(RelayedEndpoint):
    """One response for each request."""

    __slots__ = ()

    # What is kept is the event loop's.
    any_thread = False

    def __init__(self, state: State) -> None:
        super().__init__(state, "responses", "/responses")

    def _read(self, body: bytes) -> ResponsesRequest:
        return ResponsesRequest(body)

    def _submit(
        self, relay: Relay, request: Request | ResponsesRequest, route: Route, call: Call, reply: Reply
    ) -> Exchange:
        return relay.forward(
            request,
            self._path,
            route,
            call.scope["headers"],
            call.request_id,
            reply,
            response_id=call.response_id or new_response_id(),
            keep=call.keep,
        )
