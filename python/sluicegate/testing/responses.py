"""Replies of `/responses`: the whole response, and its events in the order and numbering of OpenAI's API.

Each item is opened, filled and closed before the next: reasoning, the message (or refusal), tool calls. An
item, its parts and its ids are the same in every event that shows them and in the final response.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sluicegate.testing.chat import finish_reason
from sluicegate.testing.counts import count, responses_usage
from sluicegate.testing.logprobs import token_logprob, wants_logprobs
from sluicegate.testing.question import Question
from sluicegate.testing.reply import CREATED, Document, Event, Stream
from sluicegate.testing.script import Script
from sluicegate.testing.speech import Call, Speech, speech

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def responses_reply(script: Script, question: Question, *, stream: bool) -> Stream | Document:
    response = _Response(script, question)
    if stream:
        return Stream(tuple(response.events()))
    return Document(response.final())


def failed_events(
    script: Script, question: Question, number: int, error: Mapping[str, Any], *, flat: bool
) -> Iterator[Event]:
    """How a stream fails after `number` events: `error`, then `response.failed`.

    The error is nested as OpenAI's servers send it, or flat as its specification has it.
    """
    named = {"type": "error", "sequence_number": number}
    value = {name: error.get(name) for name in ("code", "message", "param")}
    yield Event({**named, **(value if flat else {"error": dict(error)})}, name="error", kind="end")
    failed = _Response(script, question).shown("failed")
    code = error.get("code")
    failed["error"] = {
        "code": code if isinstance(code, str) else "server_error",
        "message": error.get("message", ""),
    }
    data = {"type": "response.failed", "sequence_number": number + 1, "response": failed}
    yield Event(data, name="response.failed", kind="end")


class _Response:
    def __init__(self, script: Script, question: Question) -> None:
        self.script = script
        self.question = question
        self.said = speech(script, question, 0)
        self.incomplete = _INCOMPLETE.get(finish_reason(script, self.said) or "")
        self.sequence = 0

    @property
    def ending(self) -> str:
        return "incomplete" if self.incomplete else "completed"

    def final(self) -> dict[str, Any]:
        response = self.shown(self.ending)
        response["output"] = [item for item, _ in self._items(self.ending)]
        if self.incomplete:
            response["incomplete_details"] = {"reason": self.incomplete}
        if self.script.usage.placement != "none":
            response["usage"] = responses_usage(self.script, count(self.script, [self.said]))
        return response

    def shown(self, status: str) -> dict[str, Any]:
        """The response without output and usage."""
        asked = self.question.body

        def given(name: str, otherwise: Any) -> Any:
            value = asked.get(name)
            return otherwise if value is None else value

        reasoning = asked.get("reasoning")
        return {
            "id": self.script.reply_id or self.question.made_id("resp_"),
            "object": "response",
            "created_at": CREATED,
            "completed_at": CREATED if status == "completed" else None,
            "status": status,
            "background": given("background", False),
            "error": None,
            "incomplete_details": None,
            "instructions": asked.get("instructions"),
            "max_output_tokens": asked.get("max_output_tokens"),
            "max_tool_calls": asked.get("max_tool_calls"),
            "model": self.script.model or self.question.model,
            "output": [],
            "parallel_tool_calls": given("parallel_tool_calls", True),
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "previous_response_id": asked.get("previous_response_id"),
            "prompt_cache_key": asked.get("prompt_cache_key"),
            "reasoning": {
                "effort": None,
                "summary": None,
                **(reasoning if isinstance(reasoning, Mapping) else {}),
            },
            "safety_identifier": asked.get("safety_identifier"),
            "service_tier": "default",
            "store": given("store", True),
            "temperature": given("temperature", 1.0),
            "text": given("text", {"format": {"type": "text"}}),
            "tool_choice": given("tool_choice", "auto"),
            "tools": given("tools", []),
            "top_logprobs": given("top_logprobs", 0),
            "top_p": given("top_p", 1.0),
            "truncation": given("truncation", "disabled"),
            "usage": None,
            "user": asked.get("user"),
            "metadata": given("metadata", {}),
        }

    def events(self) -> Iterator[Event]:
        yield self._event("response.created", response=self.shown("in_progress"))
        yield self._event("response.in_progress", response=self.shown("in_progress"))
        for index, (item, source) in enumerate(self._items(self.ending)):
            yield from self._item_events(index, item, source)
        if self.script.finish_reason is not None:
            yield self._event(f"response.{self.ending}", "end", response=self.final())

    def _event(self, name: str, kind: Any = "preamble", /, **members: Any) -> Event:
        data = {"type": name, "sequence_number": self.sequence, **members}
        self.sequence += 1
        return Event(data, name=name, kind=kind)

    def _items(self, status: str) -> list[tuple[dict[str, Any], Sequence[str] | Call]]:
        """Whole items, each with the tokens or the call it is made from."""
        said = self.said
        items: list[tuple[dict[str, Any], Sequence[str] | Call]] = []
        if said.reasoning:
            items.append((self._reasoning(said), said.reasoning))
        if said.refusal or said.content or not (said.calls or said.reasoning):
            items.append((self._message(said), said.refusal or said.content))
        items += [(self._call(call, i), call) for i, call in enumerate(said.calls)]
        for position, (item, _) in enumerate(items):
            # What was cut short is the last item.
            item["status"] = status if position == len(items) - 1 else "completed"
        return items

    def _reasoning(self, said: Speech) -> dict[str, Any]:
        part = {"type": "reasoning_text", "text": "".join(said.reasoning)}
        item = {"id": self.question.made_id("rs_"), "type": "reasoning", "summary": [], "content": [part]}
        if self.script.reasoning_signature is not None:
            item["encrypted_content"] = self.script.reasoning_signature
        return item

    def _message(self, said: Speech) -> dict[str, Any]:
        if said.refusal:
            part: dict[str, Any] = {"type": "refusal", "refusal": "".join(said.refusal)}
        else:
            part = {
                "type": "output_text",
                "annotations": [],
                "logprobs": self._logprobs(said.content),
                "text": "".join(said.content),
            }
        return {
            "id": self.question.made_id("msg_"),
            "type": "message",
            "role": "assistant",
            "content": [part],
        }

    def _call(self, call: Call, index: int) -> dict[str, Any]:
        custom = call.kind == "custom"
        return {
            "id": self.question.made_id("ctc_" if custom else "fc_", index),
            "type": "custom_tool_call" if custom else "function_call",
            "call_id": call.id,
            "name": call.name,
            "input" if custom else "arguments": call.arguments,
        }

    def _logprobs(self, tokens: Sequence[str]) -> list[dict[str, Any]]:
        include = self.question.body.get("include")
        asked = isinstance(include, list) and "message.output_text.logprobs" in include
        if not (asked or wants_logprobs(self.script, self.question)):
            return []
        return [token_logprob(token, self.question.top_logprobs) for token in tokens]

    def _item_events(self, index: int, item: dict[str, Any], source: Sequence[str] | Call) -> Iterator[Event]:
        place = {"item_id": item["id"], "output_index": index}
        opened = {**item, "status": "in_progress"}
        if isinstance(source, Call):
            member = "input" if "input" in item else "arguments"
            name = "custom_tool_call_input" if member == "input" else "function_call_arguments"
            opened[member] = ""
            yield self._event("response.output_item.added", output_index=index, item=opened)
            for piece in source.pieces:
                yield self._event(f"response.{name}.delta", "token", **place, delta=piece)
            done = {member: item[member]}
            if member == "arguments":
                done["name"] = item["name"]
            yield self._event(f"response.{name}.done", **place, **done)
        else:
            opened["content"] = []
            yield self._event("response.output_item.added", output_index=index, item=opened)
            yield from self._part_events(place, item["content"][0], source)
        yield self._event("response.output_item.done", output_index=index, item=item)

    def _part_events(
        self, place: dict[str, Any], part: dict[str, Any], tokens: Sequence[str]
    ) -> Iterator[Event]:
        place = {**place, "content_index": 0}
        name = part["type"]
        member = "refusal" if name == "refusal" else "text"
        empty = {**part, member: ""}
        if name == "output_text":
            empty["logprobs"] = []
        yield self._event("response.content_part.added", **place, part=empty)
        for token in tokens:
            logprobs = {"logprobs": self._logprobs((token,))} if name == "output_text" else {}
            yield self._event(f"response.{name}.delta", "token", **place, delta=token, **logprobs)
        logprobs = {"logprobs": part["logprobs"]} if name == "output_text" else {}
        yield self._event(f"response.{name}.done", **place, **{member: part[member]}, **logprobs)
        yield self._event("response.content_part.done", **place, part=part)
