"""Replies of `/completions`, `/embeddings` and `/models`."""

import base64
import struct
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from sluicegate.testing.chat import choices, finish_reason
from sluicegate.testing.counts import Counts, chat_usage, count
from sluicegate.testing.logprobs import completion_logprobs
from sluicegate.testing.question import Question, embedding_inputs
from sluicegate.testing.reply import CREATED, Document, Event, Stream
from sluicegate.testing.script import Script
from sluicegate.testing.speech import Speech, speech


def completions_reply(script: Script, question: Question, *, stream: bool) -> Stream | Document:
    speeches = [speech(script, question, i) for i in range(choices(script, question))]
    counts = count(script, speeches)
    base = {
        "id": script.reply_id or question.made_id("cmpl-"),
        "object": "text_completion",
        "created": CREATED,
        "model": script.model or question.model,
    }
    if stream:
        return Stream(tuple(_events(script, question, base, speeches, counts)))
    completion = {
        **base,
        "choices": [
            {
                "text": "".join(said.content),
                "index": index,
                "logprobs": completion_logprobs(script, question, said.content),
                "finish_reason": _finish(script, said),
            }
            for index, said in enumerate(speeches)
        ],
    }
    if script.usage.placement != "none":
        completion["usage"] = chat_usage(script, counts)
    return Document(completion)


def _events(
    script: Script, question: Question, base: dict[str, Any], speeches: list[Speech], counts: Counts
) -> Iterator[Event]:
    placement = script.usage.placement or script.wire.placement
    spoken = 0

    def chunk(index: int, text: str, finish: str | None) -> dict[str, Any]:
        logprobs = completion_logprobs(script, question, (text,)) if text else None
        choice = {"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish}
        made = {**base, "choices": [choice]}
        if placement == "running":
            made["usage"] = chat_usage(script, counts.spoken(spoken))
        elif question.include_usage and script.usage.nulls is not False:
            made["usage"] = None
        return made

    for words in zip_longest(*(said.content for said in speeches)):
        for index, word in enumerate(words):
            if word is not None:
                spoken += 1
                yield Event(chunk(index, word, None), kind="token")
    if script.finish_reason is not None:
        for index, said in enumerate(speeches):
            end = chunk(index, "", _finish(script, said))
            if placement in ("finish", "second_finish") and index == len(speeches) - 1:
                end["usage"] = chat_usage(script, counts)
            yield Event(end, kind="end")
    usage_only = {**base, "choices": [], "usage": chat_usage(script, counts)}
    if placement in ("always", "twice", "preview") or (
        placement in ("asked", "running") and question.include_usage
    ):
        for _ in range(2 if placement == "twice" else 1):
            yield Event(usage_only, kind="end")


def _finish(script: Script, said: Speech) -> str | None:
    # This API has no tool calls.
    return "stop" if script.finish_reason == "auto" else finish_reason(script, said)


def embeddings_reply(script: Script, question: Question) -> Document:
    as_base64 = question.body.get("encoding_format") == "base64"
    dimensions = question.body.get("dimensions")
    size = dimensions if isinstance(dimensions, int) and 0 < dimensions <= 4096 else 8
    reply: dict[str, Any] = {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": _vector(index, size, as_base64)}
            for index in range(embedding_inputs(question.body))
        ],
        "model": script.model or question.model,
    }
    if script.usage.placement != "none":
        tokens = script.usage.input_tokens
        reply["usage"] = {"prompt_tokens": tokens, "total_tokens": tokens, **script.usage.extra}
    return Document(reply)


def _vector(index: int, size: int, as_base64: bool) -> list[float] | str:
    # Sixteenths are exact in 32 and in 64 bits: the same numbers in both encodings.
    vector = [((index * 5 + i * 3) % 17 - 8) / 16 for i in range(size)]
    return base64.b64encode(struct.pack(f"<{size}f", *vector)).decode() if as_base64 else vector


def model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": CREATED, "owned_by": "sluicegate-mock"}


def models(names: tuple[str, ...]) -> Document:
    return Document({"object": "list", "data": [model(name) for name in names]})
