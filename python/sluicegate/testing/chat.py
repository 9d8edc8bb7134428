"""Replies of `/chat/completions`: the whole completion, and its chunks in a dialect."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from sluicegate.testing.counts import Counts, chat_usage, count
from sluicegate.testing.logprobs import chat_logprobs
from sluicegate.testing.question import Question
from sluicegate.testing.reply import CREATED, Document, Event, Stream
from sluicegate.testing.script import Script
from sluicegate.testing.speech import Call, Speech, speech


def chat_reply(script: Script, question: Question, *, stream: bool) -> Stream | Document:
    speeches = [speech(script, question, i) for i in range(choices(script, question))]
    counts = count(script, speeches)
    if stream:
        return Stream(tuple(_Chunks(script, question, speeches, counts).events()))
    return Document(_completion(script, question, speeches, counts))


def choices(script: Script, question: Question) -> int:
    return script.n if script.n is not None else question.n


def _completion(
    script: Script, question: Question, speeches: Sequence[Speech], counts: Counts
) -> dict[str, Any]:
    wire = script.wire
    completion: dict[str, Any] = {
        "id": script.reply_id or question.made_id("chatcmpl-"),
        "object": "chat.completion",
        "created": CREATED,
        "model": script.model or question.model,
        "choices": [
            {
                "index": index,
                "message": _message(script, said),
                "logprobs": chat_logprobs(script, question, said.content, said.refusal),
                "finish_reason": finish_reason(script, said),
            }
            for index, said in enumerate(speeches)
        ],
    }
    if script.usage.placement != "none":
        completion["usage"] = chat_usage(script, counts)
    if wire.x_groq:
        completion["x_groq"] = {"id": question.made_id("req_")}
    if wire.timings:
        completion["timings"] = _timings(counts)
    if wire.system_fingerprint is not None:
        completion["system_fingerprint"] = wire.system_fingerprint
    return completion


def finish_reason(script: Script, said: Speech) -> str | None:
    if script.finish_reason == "auto":
        return "tool_calls" if said.calls else "stop"
    return script.finish_reason


def _message(script: Script, said: Speech) -> dict[str, Any]:
    text: Any = "".join(said.content)
    message: dict[str, Any] = {"role": "assistant"}
    thought = "".join(said.reasoning)
    match script.wire.reasoning_field:
        case _ if not thought:
            pass
        case "content_parts":
            text = [_thinking(thought), {"type": "text", "text": text}]
        case "think_tags":
            text = f"<think>{thought}</think>{text}"
        case name:
            message[name] = thought
    if thought and script.reasoning_signature is not None:
        message["reasoning_details"] = [_detail(text=thought, signature=script.reasoning_signature)]
    message["content"] = text or None
    message["refusal"] = "".join(said.refusal) or None
    message["annotations"] = []
    if said.calls:
        message["tool_calls"] = [_whole_call(call) for call in said.calls]
    return message


def _detail(**members: str) -> dict[str, Any]:
    """An entry of OpenRouter's `reasoning_details`, or a part of it."""
    return {"type": "reasoning.text", **members, "format": "anthropic-claude-v1", "index": 0}


def _thinking(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}


def _whole_call(call: Call) -> dict[str, Any]:
    if call.kind == "custom":
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _timings(counts: Counts) -> dict[str, Any]:
    return {
        "cache_n": counts.cached,
        "prompt_n": counts.input - counts.cached,
        "prompt_ms": 9.0,
        "predicted_n": counts.output,
        "predicted_ms": 8.5 * counts.output,
    }


class _Chunks:
    """The chunks of one completion."""

    def __init__(
        self, script: Script, question: Question, speeches: Sequence[Speech], counts: Counts
    ) -> None:
        self.script = script
        self.wire = script.wire
        self.question = question
        self.speeches = speeches
        self.counts = counts
        self.placement = script.usage.placement or self.wire.placement
        if script.usage.nulls is not None:
            self.nulls = script.usage.nulls
        else:
            self.nulls = self.wire.nulls == "always" or (
                self.wire.nulls == "asked" and question.include_usage
            )
        self.base: dict[str, Any] = {
            "id": script.reply_id or question.made_id("chatcmpl-"),
            "object": "chat.completion.chunk",
            "created": CREATED,
            "model": script.model or question.model,
        }
        if self.wire.system_fingerprint is not None:
            self.base["system_fingerprint"] = self.wire.system_fingerprint
        self.spoken = 0
        self.heard = [""] * len(speeches)

    def events(self) -> Iterator[Event]:
        for number, event in enumerate(self._events()):
            if number == 0 and self.wire.x_groq and not isinstance(event.data, str):
                event = replace(event, data={**event.data, "x_groq": {"id": self.question.made_id("req_")}})
            yield event

    def _events(self) -> Iterator[Event]:
        if self.wire.filter_preamble:
            yield Event(_filter_preamble())
        if self.placement == "preview":
            yield Event(self._usage_only(self.counts.spoken(1)))
        spoken = [list(self._spoken_deltas(said)) for said in self.speeches]
        role_chunk = self.wire.role_chunk if self.script.role is None else self.script.role
        if role_chunk:
            for index, said in enumerate(self.speeches):
                delta: dict[str, Any] = {"role": "assistant", "content": None if said.calls else ""}
                if self.wire.refusal_null:
                    delta["refusal"] = None
                yield Event(self._chunk(index, delta, None, None))
        for index, number, delta, logprobs in _taking_turns(spoken):
            if self.wire.role_everywhere or (number == 0 and not role_chunk):
                delta = {"role": "assistant", **delta}
            self.spoken += 1
            last = not self.wire.finish_apart and number == len(spoken[index]) - 1
            chunk = self._chunk(index, delta, logprobs, self._finish(index) if last else None)
            if last and self.placement == "finish":
                self._give_usage(chunk)
            yield Event(chunk, kind="token")
        yield from self._end([i for i, deltas in enumerate(spoken) if self.wire.finish_apart or not deltas])

    def _end(self, unfinished: Sequence[int]) -> Iterator[Event]:
        ends: list[dict[str, Any]] = []
        if self.script.finish_reason is not None:
            ends = [self._finish_chunk(index) for index in unfinished]
            if ends and self.placement == "second_finish":
                ends.append(self._finish_chunk(unfinished[-1]))
            if ends and self.placement in ("finish", "second_finish"):
                self._give_usage(ends[-1])
        for _ in range(self._usage_chunks()):
            ends.append(self._usage_only(self.counts))
        if ends and self.wire.timings:
            ends[-1]["timings"] = _timings(self.counts)
        if ends and self.wire.cumulative_message:
            ends[-1]["object"] = "chat.completion.done"
        for end in ends:
            yield Event(end, kind="end")

    def _usage_chunks(self) -> int:
        asked = int(self.question.include_usage)
        match self.placement:
            case "always" | "preview":
                return 1
            case "twice":
                return 2
            case "asked":
                return asked
            case "running":
                return 0 if self.wire.cumulative_message else asked
            case "finish":
                return asked if self.wire.x_groq else 0
            case _:
                return 0

    def _finish(self, index: int) -> str | None:
        reason = finish_reason(self.script, self.speeches[index])
        return self.wire.tool_finish if reason == "tool_calls" else reason

    def _finish_chunk(self, index: int) -> dict[str, Any]:
        delta = {"role": "assistant", "content": ""} if self.wire.role_everywhere else {}
        return self._chunk(index, delta, None, self._finish(index))

    def _spoken_deltas(self, said: Speech) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
        signature = self.script.reasoning_signature
        for i, word in enumerate(said.reasoning):
            delta = self._reasoning_delta(word, i == 0, i == len(said.reasoning) - 1)
            if signature is not None:
                delta["reasoning_details"] = [_detail(text=word)]
            yield delta, None
        if said.reasoning and signature is not None:
            yield {"reasoning_details": [_detail(signature=signature)]}, None
        for word in said.content:
            delta = {"content": word}
            if self.wire.nil_deltas and said.reasoning:
                delta["reasoning_content"] = None
            yield delta, chat_logprobs(self.script, self.question, (word,), ())
        for word in said.refusal:
            yield {"refusal": word}, chat_logprobs(self.script, self.question, (), (word,))
        for index, call in enumerate(said.calls):
            for part in self._call_deltas(index, call):
                yield {"tool_calls": [part]}, None

    def _reasoning_delta(self, word: str, first: bool, last: bool) -> dict[str, Any]:
        match self.wire.reasoning_field:
            case "content_parts":
                return {"content": [_thinking(word)]}
            case "think_tags":
                return {"content": ("<think>" if first else "") + word + ("</think>" if last else "")}
            case name:
                if self.wire.nil_deltas:
                    return {"content": None, name: word}
                return {"content": "", name: word} if self.wire.role_everywhere else {name: word}

    def _call_deltas(self, index: int, call: Call) -> Iterator[dict[str, Any]]:
        head: dict[str, Any] = {}
        if self.wire.tool_index != "absent":
            head["index"] = index if self.wire.tool_index == "count" else 0
        if self.wire.tool_whole:
            yield head | _whole_call(call)
            return
        group, member = ("custom", "input") if call.kind == "custom" else ("function", "arguments")
        yield head | {"id": call.id, "type": call.kind, group: {"name": call.name, member: ""}}
        for piece in call.pieces:
            part = {"name": call.name, member: piece} if self.wire.tool_name_everywhere else {member: piece}
            yield head | {group: part}

    def _chunk(
        self, index: int, delta: dict[str, Any], logprobs: dict[str, Any] | None, finish: str | None
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, "delta": delta}
        if self.wire.cumulative_message:
            self.heard[index] += delta.get("content") or ""
            choice["message"] = {"role": "assistant", "content": self.heard[index]}
        if logprobs is not None or self.wire.logprobs_null:
            choice["logprobs"] = logprobs
        if finish is not None or self.wire.finish_null:
            choice["finish_reason"] = finish
        if self.wire.filter_preamble:
            choice["content_filter_results"] = {}
        chunk = {**self.base, "choices": [choice]}
        if self.placement == "running":
            chunk["usage"] = chat_usage(self.script, self.counts.spoken(self.spoken))
        elif self.nulls:
            chunk["usage"] = None
        return chunk

    def _give_usage(self, chunk: dict[str, Any]) -> None:
        chunk["usage"] = chat_usage(self.script, self.counts)
        if self.wire.x_groq:
            chunk["x_groq"] = {"id": self.question.made_id("req_"), "usage": chunk["usage"]}

    def _usage_only(self, counts: Counts) -> dict[str, Any]:
        return {**self.base, "choices": [], "usage": chat_usage(self.script, counts)}


def _taking_turns(
    spoken: Sequence[Sequence[tuple[dict[str, Any], dict[str, Any] | None]]],
) -> Iterator[tuple[int, int, dict[str, Any], dict[str, Any] | None]]:
    """Choice, number within it, delta and logprobs: one of each choice, then the next of each."""
    for number, turn in enumerate(zip_longest(*spoken)):
        for index, delta in enumerate(turn):
            if delta is not None:
                yield index, number, *delta


def _filter_preamble() -> dict[str, Any]:
    safe = {"filtered": False, "severity": "safe"}
    results = {name: dict(safe) for name in ("hate", "self_harm", "sexual", "violence")}
    results["jailbreak"] = {"filtered": False, "detected": False}
    return {
        "choices": [],
        "created": 0,
        "id": "",
        "model": "",
        "object": "",
        "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": results}],
    }
