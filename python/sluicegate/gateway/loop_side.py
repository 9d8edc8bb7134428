"""Work that the deciding thread hands to the event loop, because it waits for the store of responses."""

import asyncio
from functools import partial

from sluicegate._core import Ended, ResponsesRequest
from sluicegate.gateway.call import Call
from sluicegate.gateway.conversations import Conversations
from sluicegate.gateway.decisions import Answer, Decider
from sluicegate.gateway.errors import Refused
from sluicegate.gateway.state import State
from sluicegate.telemetry import where


class LoopSide:
    """`begin_continuing` and `begin_storing` are for the thread that decides, the rest for the loop's."""

    def __init__(self, state: State, conversations: Conversations) -> None:
        self._state = state
        self._conversations = conversations
        self._loop: asyncio.AbstractEventLoop | None = None
        self.decider: Decider | None = None
        """Who gets the answers; set before anything comes."""

    def start(self) -> None:
        """On the loop that everything is to be done on."""
        self._loop = asyncio.get_running_loop()

    def begin_continuing(self, call: Call, request: ResponsesRequest) -> None:
        """Find out what `request` continues, and post the answer."""
        self._soon(self._start_continuing, call, request)

    def begin_storing(self, call: Call, ended: Ended, reply: bytes | None) -> None:
        """Store the response whose bytes, as the client got them, are `reply`; None: there is no copy."""
        self._soon(self._store, call, ended, reply)

    def _soon(self, *step: object) -> None:
        if self._loop is None:
            raise RuntimeError("not started")
        self._loop.call_soon_threadsafe(*step)  # type: ignore[arg-type]

    def _start_continuing(self, call: Call, request: ResponsesRequest) -> None:
        arrived = call.arrived
        if arrived is None:
            return  # It has ended meanwhile.
        task = asyncio.get_running_loop().create_task(self._continue(call, arrived.ticket, request))
        tasks = self._state.tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _continue(self, call: Call, ticket: int, request: ResponsesRequest) -> None:
        answer: Answer | None = None
        try:
            model = call.model
            if model is not None:
                answer = await self._conversations.continued(call.serving, call.owner, model, request)
        except Refused as refused:
            answer = refused.reply
        except Exception as error:
            self._state.log.error("unhandled", at="conversation", ticket=ticket, error=where(error))
        finally:
            if self.decider is not None:
                self.decider.post(partial(self.decider.answer, call, ticket, answer))

    def _store(self, call: Call, ended: Ended, reply: bytes | None) -> None:
        if reply is None:
            if ended.not_kept is not None:
                self._state.responses.note_not_kept(ended.not_kept)
            return
        body = call.body
        if body is None and isinstance(ended.request, ResponsesRequest):
            body = ended.request.body
        if body is None or call.model is None:
            return
        self._state.responses.store_live_reply(
            owner=call.owner,
            model=call.model.name,
            request_id=ended.request_id,
            request=body,
            reply=reply,
            streamed=ended.outcome.streamed,
        )
