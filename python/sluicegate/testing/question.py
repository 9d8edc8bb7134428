"""What the reply depends on in a request, read leniently: a mock answers what a strict server may refuse."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sluicegate.testing.script import Api


@dataclass(frozen=True, slots=True)
class Question:
    """One request, as far as replies depend on it.

    `digest` (24 hexadecimal digits) is made from what was asked (`messages`, `input`, `prompt`) alone: the
    same question has the same ids whether it was streamed or not, under whatever model name.
    """

    api: Api
    model: str
    stream: bool
    include_usage: bool
    stream_options: bool
    n: int
    logprobs: bool
    top_logprobs: int
    digest: str
    body: Mapping[str, Any]

    def made_id(self, prefix: str, *parts: object) -> str:
        """An id that depends on the question and on `parts` only."""
        if not parts:
            return prefix + self.digest
        return prefix + hashlib.sha256(f"{self.digest}/{parts}".encode()).hexdigest()[:24]


def read_question(api: Api, body: Mapping[str, Any]) -> Question:
    options = body.get("stream_options")
    model = body.get("model")
    asked = [body.get(name) for name in ("messages", "input", "prompt", "instructions", "system")]
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:24]
    # Ollama streams unless told otherwise; the others only when told to.
    stream = body.get("stream", api == "ollama")
    logprobs = body.get("logprobs")
    return Question(
        api=api,
        model=model if isinstance(model, str) else "mock-1",
        stream=stream is True,
        include_usage=isinstance(options, Mapping) and options.get("include_usage") is True,
        stream_options=options is not None,
        n=_count(body.get("n"), 1),
        # A number in completions, a flag in chat.
        logprobs=logprobs is True or (isinstance(logprobs, int) and api == "completions"),
        top_logprobs=_count(body.get("top_logprobs"), 0),
        digest=digest,
        body=body,
    )


def embedding_inputs(body: Mapping[str, Any]) -> int:
    """How many embeddings are asked for: one for a text or a list of token numbers, else one an entry."""
    value = body.get("input")
    if isinstance(value, Sequence) and not isinstance(value, str) and value and not isinstance(value[0], int):
        return len(value)
    return 1


def _count(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 128 else otherwise
