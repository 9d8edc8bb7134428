"""Log probabilities: made up, the same for the same token, and shaped as the APIs have them."""

from collections.abc import Sequence
from typing import Any

from sluicegate.testing.question import Question
from sluicegate.testing.script import Script


def wants_logprobs(script: Script, question: Question) -> bool:
    return question.logprobs if script.logprobs is None else script.logprobs


def chat_logprobs(
    script: Script, question: Question, content: Sequence[str], refusal: Sequence[str]
) -> dict[str, Any] | None:
    """None where none are wanted, or nothing was said."""
    if not wants_logprobs(script, question) or not (content or refusal):
        return None
    top = question.top_logprobs
    return {
        "content": [token_logprob(token, top) for token in content] if content else None,
        "refusal": [token_logprob(token, top) for token in refusal] if refusal else None,
    }


def completion_logprobs(script: Script, question: Question, tokens: Sequence[str]) -> dict[str, Any] | None:
    """The older form, of `/completions`."""
    if not wants_logprobs(script, question):
        return None
    offsets: list[int] = []
    offset = 0
    for token in tokens:
        offsets.append(offset)
        offset += len(token)
    return {
        "tokens": list(tokens),
        "token_logprobs": [_logprob(token) for token in tokens],
        "top_logprobs": [{token: _logprob(token)} for token in tokens],
        "text_offset": offsets,
    }


def token_logprob(token: str, top: int) -> dict[str, Any]:
    return {
        **_entry(token, _logprob(token)),
        "top_logprobs": [_entry(token if i == 0 else f"{token}{i}", _logprob(token) - i) for i in range(top)],
    }


def _entry(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


def _logprob(token: str) -> float:
    # Eighths are exact in binary, so that every JSON library writes them alike.
    return -(1 + sum(token.encode()) % 16) / 8
