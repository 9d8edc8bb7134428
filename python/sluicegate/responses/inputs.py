"""What a response was made from: the items of a request, listed, continued and referred to."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Item = dict[str, Any]

MAX_PAGE = 100
DEFAULT_PAGE = 20

_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "cto",
    "reasoning": "rs",
}


def given(body: Mapping[str, Any]) -> list[Any]:
    """The items of a request's `input` as the client wrote them; a string is one message."""
    found = body.get("input")
    if isinstance(found, str):
        return [{"type": "message", "role": "user", "content": found}]
    return list(found) if isinstance(found, list) else []


def items_of(id: str, body: Mapping[str, Any]) -> list[Item]:
    """The items of a request as they are listed: each with an id, messages with parts.

    An item without an id gets one that depends on the response and its place: the same each time.
    """
    return [
        _listed(item, _made_id(id, place, item))
        for place, item in enumerate(given(body))
        if isinstance(item, dict) and not is_reference(item)
    ]


def _listed(item: Item, made: str) -> Item:
    kind = item.get("type") or "message"
    listed: Item = {"id": made, **item, "type": kind}
    if not isinstance(listed["id"], str):
        listed["id"] = made
    if kind == "message":
        content = item.get("content")
        if isinstance(content, str):
            part: Item = {"type": "input_text", "text": content}
            if item.get("role") == "assistant":
                part = {"type": "output_text", "text": content, "annotations": [], "logprobs": []}
            listed["content"] = [part]
        listed.setdefault("status", "completed")
    elif kind in ("function_call", "function_call_output"):
        listed.setdefault("status", "completed")
    return listed


def _made_id(id: str, place: int, item: Item) -> str:
    prefix = _PREFIXES.get(item.get("type") or "message", "item")
    return f"{prefix}_{hashlib.sha256(f'{id}/{place}'.encode()).hexdigest()[:32]}"


def is_reference(item: Any) -> bool:
    """OpenAI's clients may leave the type out: an id and nothing else."""
    return isinstance(item, dict) and (
        item.get("type") == "item_reference"
        or ("id" in item and item.keys() <= {"id", "type"} and item.get("type") is None)
    )


def references(body: Mapping[str, Any]) -> list[str]:
    """The ids that the request's input refers to."""
    return [str(item.get("id")) for item in given(body) if is_reference(item)]


def find(id: str, item_id: str, request: bytes, response: bytes) -> Item | None:
    """The item with `item_id` of a stored response: one of its output, or of its input."""
    for item in (*output_of(response), *items_of(id, json.loads(request))):
        if item.get("id") == item_id:
            return item
    return None


def output_of(response: bytes) -> list[Item]:
    found = json.loads(response).get("output")
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


@dataclass(frozen=True, slots=True)
class Page:
    """What a client asks of a list."""

    order: Literal["asc", "desc"] = "desc"
    after: str | None = None
    limit: int = DEFAULT_PAGE


def page(found: Sequence[Item], asked: Page) -> dict[str, Any] | None:
    """OpenAI's list object; None where `after` is not in it."""
    ordered = list(found) if asked.order == "asc" else list(reversed(found))
    start = 0
    if asked.after is not None:
        places = [place for place, item in enumerate(ordered) if item["id"] == asked.after]
        if not places:
            return None
        start = places[0] + 1
    shown = ordered[start : start + asked.limit]
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": start + asked.limit < len(ordered),
    }
