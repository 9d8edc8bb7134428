"""What a request for a response continues, and the items that it refers to."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from sluicegate._core import ResponsesRequest
from sluicegate.errors import ParseError
from sluicegate.gateway import errors, stored_errors
from sluicegate.gateway.errors import Refused
from sluicegate.gateway.state import Serving, State
from sluicegate.offload import offload
from sluicegate.responses import Chain, Hold, Holders, LoadingBusy, NotFinished, NotFound, TooLong
from sluicegate.routing import Model
from sluicegate.storage import StoreUnavailable

_MAX_REFERENCES = 1000


@dataclass(frozen=True, slots=True)
class _References:
    """The items that a request refers to, and where the store has those that it knows."""

    ids: list[str]
    holders: Holders


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
        references = await self._references(owner, request)
        # Also what is kept: later turns need the items, whatever has become of where they were from.
        changed = kept = None
        # Room is taken once for all: whoever waits for more while holding some can wait for itself.
        async with self._room(owner, references, earlier) as hold:
            if references is not None:
                changed = await self._with_items(serving, owner, model, request, references, hold)
                kept = changed.body
            if earlier is not None:
                changed = await self._with_earlier(owner, changed or request, earlier, hold)
        return changed, kept

    async def earlier(self, serving: Serving, owner: str, model: Model, previous: str | None) -> Chain | None:
        """The turns up to the response `previous`; None where there is none, or it is not one of ours."""
        if previous is None:
            return None
        store = self._state.responses
        try:
            if store.enabled:
                return await store.conversation(previous, owner)
            missing, known = previous, False
        except NotFound as error:
            missing, known = error.id, error.known
        except NotFinished as error:
            raise Refused(stored_errors.previous_response_not_finished(error.id, error.status)) from None
        except TooLong:
            raise Refused(stored_errors.conversation_too_long(previous)) from None
        except StoreUnavailable:
            raise Refused(stored_errors.store_unavailable()) from None
        if missing == previous and not known and _speaks_responses(serving, model):
            return None
        raise Refused(stored_errors.previous_response_not_found(missing))

    async def resolved(
        self, serving: Serving, owner: str, model: Model, request: ResponsesRequest
    ) -> ResponsesRequest | None:
        """The request with items in place of references to them; None where it has none."""
        references = await self._references(owner, request)
        if references is None:
            return None
        async with self._room(owner, references, None) as hold:
            return await self._with_items(serving, owner, model, request, references, hold)

    async def with_earlier(self, owner: str, request: ResponsesRequest, earlier: Chain) -> ResponsesRequest:
        """The request with `earlier` in front of its input."""
        async with self._room(owner, None, earlier) as hold:
            return await self._with_earlier(owner, request, earlier, hold)

    async def _references(self, owner: str, request: ResponsesRequest) -> _References | None:
        """What the request refers to; None where it refers to nothing."""
        if not request.refers:
            return None
        ids = await offload(request.size, lambda: request.references)
        if len(ids) > _MAX_REFERENCES:
            raise Refused(stored_errors.too_many_references(_MAX_REFERENCES))
        store = self._state.responses
        if not store.enabled:
            return _References(ids, Holders({}, 0))
        try:
            return _References(ids, await store.holders(ids, owner))
        except TooLong:
            raise Refused(stored_errors.references_too_large()) from None
        except StoreUnavailable:
            raise Refused(stored_errors.store_unavailable()) from None

    @contextlib.asynccontextmanager
    async def _room(
        self, owner: str, references: _References | None, earlier: Chain | None
    ) -> AsyncIterator[Hold]:
        """Room for all that a request loads."""
        size = 0 if references is None else references.holders.size
        if earlier is not None:
            size += earlier.size
        try:
            with self._state.responses.hold(owner) as hold:
                await hold.take(size)
                yield hold
        except ParseError as error:
            raise Refused(errors.invalid_body(error)) from None
        except LoadingBusy:
            raise Refused(stored_errors.loading_busy()) from None
        except StoreUnavailable:
            raise Refused(stored_errors.store_unavailable()) from None

    async def _with_items(
        self,
        serving: Serving,
        owner: str,
        model: Model,
        request: ResponsesRequest,
        references: _References,
        hold: Hold,
    ) -> ResponsesRequest:
        found = await self._state.responses.items(references.holders, owner)
        missing = [id for id in references.ids if id not in found]
        if missing and _speaks_responses(serving, model):
            # An upstream knows all callers by one account, and would not tell their items apart.
            missing = await self._of_others(owner, missing)
        if missing:
            raise Refused(stored_errors.item_not_found(missing[0]))
        size = sum(map(len, found.values()))
        limit = serving.config.server.max_body_bytes
        if size > limit:
            raise Refused(errors.body_too_large(limit))
        return await offload(request.size + size, request.with_items, found, hold.share)

    async def _with_earlier(
        self, owner: str, request: ResponsesRequest, earlier: Chain, hold: Hold
    ) -> ResponsesRequest:
        try:
            items = await self._state.responses.context(earlier, owner, hold)
        except NotFound as error:
            raise Refused(stored_errors.previous_response_not_found(error.id)) from None
        return await offload(request.size + len(items), request.with_input_prefix, items, hold.share)

    async def _of_others(self, owner: str, ids: list[str]) -> list[str]:
        """Those of these items that somebody else has; one is enough."""
        if not self._state.responses.enabled:
            return []
        try:
            found = await self._state.responses.any_item_of_another(ids, owner)
        except StoreUnavailable:
            raise Refused(stored_errors.store_unavailable()) from None
        return [] if found is None else [found]


async def parsed(body: bytes) -> ResponsesRequest:
    """Raises `Refused`."""
    try:
        return await offload(len(body), ResponsesRequest, body)
    except ParseError as error:
        raise Refused(errors.invalid_body(error)) from None


def _speaks_responses(serving: Serving, model: Model) -> bool:
    upstreams = serving.config.upstreams
    return any("responses" in upstreams[deployment.upstream].api for deployment in model.deployments)
