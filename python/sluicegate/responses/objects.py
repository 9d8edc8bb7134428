"""Response objects that the gateway makes itself: before an upstream speaks, or where none does."""

import json
import secrets
import time
from collections.abc import Mapping
from typing import Any

from sluicegate.responses.entry import Status
from sluicegate.responses.numbering import frame

# What an object says of its request, and what it says where the request is silent (OpenAI's defaults).
_ECHOED: Mapping[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "service_tier": "default",
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
    "metadata": {},
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


def new_id() -> str:
    """128 random bits: an id cannot be guessed."""
    return f"resp_{secrets.token_hex(16)}"


def queued(id: str, request: Mapping[str, Any], model: str) -> dict[str, Any]:
    """The object of a background response that has just been taken on."""
    reasoning = request.get("reasoning")
    echoed = {
        name: default if request.get(name) is None else request[name] for name, default in _ECHOED.items()
    }
    return {
        "id": id,
        "object": "response",
        "created_at": int(time.time()),
        "completed_at": None,
        "status": "queued",
        "background": True,
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": [],
        "reasoning": {
            "effort": None,
            "summary": None,
            **(reasoning if isinstance(reasoning, Mapping) else {}),
        },
        "store": True,
        "usage": None,
        **echoed,
    }


def ended(
    response: Mapping[str, Any], status: Status, error: Mapping[str, Any] | None, now: float
) -> dict[str, Any]:
    """`response` with items so far, as it ends where no upstream ended it."""
    closed = [
        {**item, "status": "incomplete"} if item.get("status") == "in_progress" else item
        for item in response["output"]
    ]
    return {**response, "status": status, "output": closed, "error": error, "completed_at": None}


def beginning(response: Mapping[str, Any]) -> bytes:
    """The first two events of a background response."""
    return b"".join(
        event(number, kind, response=response)
        for number, kind in enumerate(("response.created", "response.queued"))
    )


def event(number: int, kind: str, /, **members: Any) -> bytes:
    return frame(kind, dump({"type": kind, "sequence_number": number, **members}))


def dump(value: Any) -> str:
    """JSON that can be sent: a lone surrogate, which is not UTF-8, stays escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
    return text
