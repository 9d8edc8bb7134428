"""The events of a response that was not streamed: what a stream of it would have been, with whole deltas."""

import json
from collections.abc import Iterator
from typing import Any

from sluicegate.responses import objects
from sluicegate.responses.numbering import frame

_BEGUN = ("response.created", "response.in_progress")
_ENDS = {"completed": "response.completed", "failed": "response.failed"}
_TEXT_PARTS = {
    "output_text": ("response.output_text", "text"),
    "reasoning_text": ("response.reasoning_text", "text"),
    "refusal": ("response.refusal", "refusal"),
}
_TEXT_ITEMS = {
    "function_call": ("response.function_call_arguments", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input", "input"),
}


def unfold(response: bytes) -> bytes:
    """The events of a Response object (JSON), without `[DONE]`. Raises `ValueError`."""
    whole = json.loads(response)
    if not isinstance(whole, dict):
        raise ValueError("not a Response object")
    output = whole.get("output")
    items = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
    begun = {
        **whole,
        "status": "in_progress",
        "output": [],
        "usage": None,
        "completed_at": None,
        "error": None,
    }
    frames = [objects.event(number, kind, response=begun) for number, kind in enumerate(_BEGUN)]
    for index, item in enumerate(items):
        for kind, members in _item_events(index, item):
            frames.append(objects.event(len(frames), kind, **members))
    end = _ENDS.get(whole.get("status", ""), "response.incomplete")
    # The object itself goes in as it is written.
    data = f'{{"type":"{end}","sequence_number":{len(frames)},"response":{response.decode()}}}'
    frames.append(frame(end, data))
    return b"".join(frames)


def _item_events(index: int, item: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    place = {"item_id": item.get("id"), "output_index": index}
    kind = item.get("type", "")
    opened = {**item, "status": "in_progress"}
    parts = item.get("content") if kind in ("message", "reasoning") else None
    if isinstance(parts, list):
        opened["content"] = []
    if kind in _TEXT_ITEMS:
        opened[_TEXT_ITEMS[kind][1]] = ""
    yield "response.output_item.added", {"output_index": index, "item": opened}
    if kind in _TEXT_ITEMS:
        name, member = _TEXT_ITEMS[kind]
        text = item.get(member) or ""
        if text:
            yield f"{name}.delta", {**place, "delta": text}
        done = {"name": item.get("name")} if member == "arguments" else {}
        yield f"{name}.done", {**place, member: text, **done}
    for content, part in enumerate(parts if isinstance(parts, list) else []):
        yield from _part_events({**place, "content_index": content}, part)
    yield "response.output_item.done", {"output_index": index, "item": item}


def _part_events(place: dict[str, Any], part: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    found = _TEXT_PARTS.get(part.get("type", ""))
    if found is None:
        yield "response.content_part.added", {**place, "part": part}
        yield "response.content_part.done", {**place, "part": part}
        return
    name, member = found
    text = part.get(member) or ""
    is_text = name == "response.output_text"
    emptied = {**part, member: "", **({"logprobs": []} if is_text else {})}
    yield "response.content_part.added", {**place, "part": emptied}
    logprobs = {"logprobs": part.get("logprobs") or []} if is_text else {}
    if text:
        yield f"{name}.delta", {**place, "delta": text, **logprobs}
    yield f"{name}.done", {**place, member: text, **logprobs}
    yield "response.content_part.done", {**place, "part": part}
