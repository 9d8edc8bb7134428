"""What a request for a response continues, and the items that it refers to."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sluicegate._core import ResponsesRequest
from sluicegate.errors import ParseError
from sluicegate.gateway import errors, stored_errors
from sluicegate.gateway.errors import ErrorReply, Refused
from sluicegate.gateway.state import Serving, State
from sluicegate.responses import (
    Item,
    NotFinished,
    NotFound,
    StoreUnavailable,
    dump,
    given,
    is_reference,
    replace_members,
)
from sluicegate.routing import Model


class Conversations:
    """What the store knows of them. For the event loop; all raise `Refused`.

    What is not ours is left to an upstream that serves Responses itself.
    """

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    async def continued(
        self, serving: Serving, owner: str, model: Model, request: ResponsesRequest
    ) -> tuple[ResponsesRequest | None, bytes | None]:
        """The request with the conversation that it continues and with the items that it refers to, and what
        is kept of it; None where it is as it was.
        """
        earlier = await self.earlier(serving, owner, model, request.previous_response_id)
        kept: bytes | None = None
        changed: ResponsesRequest | None = None
        if request.refers:
            text = request.body
            input = await self.resolved(serving, owner, model, parsed(text))
            if input is not None:
                # Also what is kept: later turns need the items, whatever has become of where they were from.
                kept = with_input(text, input)
                changed = ResponsesRequest(kept)
        if earlier is not None:
            changed = with_earlier(changed or request, earlier)
        return changed, kept

    async def earlier(
        self, serving: Serving, owner: str, model: Model, previous: str | None
    ) -> list[Item] | None:
        """The items up to the response `previous`; None where there is none, or it is not one of ours."""
        if previous is None:
            return None
        store = self._state.responses
        try:
            if store.enabled:
                return await store.context(previous, owner)
            missing, known = previous, False
        except NotFound as error:
            missing, known = error.id, error.known
        except NotFinished as error:
            raise Refused(stored_errors.previous_response_not_finished(error.id, error.status)) from None
        except StoreUnavailable:
            raise Refused(stored_errors.store_unavailable()) from None
        if missing == previous and not known and _speaks_responses(serving, model):
            return None
        raise Refused(stored_errors.previous_response_not_found(missing))

    async def resolved(
        self, serving: Serving, owner: str, model: Model, body: Mapping[str, Any]
    ) -> list[Any] | None:
        """The request's input with items in place of references to them; None where there are none."""
        items = given(body)
        if not any(map(is_reference, items)):
            return None
        return [
            await self._item(serving, owner, model, item) if is_reference(item) else item for item in items
        ]

    async def _item(self, serving: Serving, owner: str, model: Model, reference: Item) -> Item:
        id = str(reference.get("id"))
        try:
            if self._state.responses.enabled:
                return await self._state.responses.item(id, owner)
        except NotFound:
            pass
        except StoreUnavailable:
            raise Refused(stored_errors.store_unavailable()) from None
        if _speaks_responses(serving, model):
            return reference
        raise Refused(stored_errors.item_not_found(id))


def with_earlier(request: ResponsesRequest, earlier: Sequence[Item]) -> ResponsesRequest:
    """The request with `earlier` in front of its input. Raises `Refused`."""
    try:
        return request.with_input_prefix([dump(item).encode() for item in earlier])
    except ParseError as error:
        raise Refused(errors.invalid_body(error)) from None


def with_input(text: bytes, input: Sequence[Any]) -> bytes:
    """The body with another `input`."""
    return replaced(text, {"input": dump(input)})


def replaced(text: bytes, values: Mapping[str, str]) -> bytes:
    """The body with other members: JSON by name."""
    return replace_members(text.decode("utf-8", "replace"), values).encode()


def parsed(body: bytes) -> Mapping[str, Any]:
    """The body, read as Python reads JSON. Raises `Refused`."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(_unreadable()) from None
    if not isinstance(found, dict):
        raise Refused(_unreadable())
    return found


def _unreadable() -> ErrorReply:
    return errors.error_reply(400, "The request's body cannot be read.", code="invalid_body")


def _speaks_responses(serving: Serving, model: Model) -> bool:
    upstreams = serving.config.upstreams
    return any(upstreams[route.upstream.name].api != "chat" for route in model.routes)
