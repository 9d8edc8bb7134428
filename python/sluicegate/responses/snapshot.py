"""A response as its events tell it: what it looks like so far, and the events that close what is open."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sluicegate.responses import objects
from sluicegate.responses.entry import Status

Event = dict[str, Any]

# The member of an item, or of a content part, that a kind of delta adds to.
_TEXT_OF_PART = {
    "response.output_text": "text",
    "response.reasoning_text": "text",
    "response.refusal": "refusal",
}
_TEXT_OF_ITEM = {
    "response.function_call_arguments": "arguments",
    "response.custom_tool_call_input": "input",
    "response.mcp_call_arguments": "arguments",
}
_SUMMARY = "response.reasoning_summary_text"


class Snapshot:
    """The fold of a response's events, in their order. What is not understood changes nothing."""

    def __init__(self, response: Mapping[str, Any]) -> None:
        self._response: dict[str, Any] = dict(response)
        self._items: dict[int, dict[str, Any]] = {}
        self._open: set[int] = set()
        self._open_parts: set[tuple[int, int]] = set()
        self._text: dict[tuple[int, int | str], list[str]] = {}
        """Deltas that are not joined yet: a long text is joined once a look, not once a delta."""
        self._said: set[tuple[int, int | str]] = set()
        """Texts that are done, in what is still open: nobody may be told so twice."""
        self.following = 0
        """The sequence number after the last event taken."""

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            self.following = event.get("sequence_number", self.following) + 1
            kind = event.get("type", "")
            if isinstance(event.get("response"), dict):
                self._response = dict(event["response"])
                continue
            index = event.get("output_index")
            if isinstance(index, int):
                self._take_item_event(kind, index, event)

    def _take_item_event(self, kind: str, index: int, event: Event) -> None:
        if kind == "response.output_item.added":
            self._items[index] = dict(event["item"])
            self._open.add(index)
            return
        if kind == "response.output_item.done":
            self._items[index] = dict(event["item"])
            self._open.discard(index)
            self._forget(index)
            return
        item = self._items.get(index)
        if item is None:
            return
        name, _, what = kind.rpartition(".")
        content = event.get("content_index")
        if name == "response.content_part" and isinstance(content, int):
            self._take_part(item, index, content, event["part"], done=what == "done")
        elif name in _TEXT_OF_PART and isinstance(content, int):
            if what == "delta":
                self._text.setdefault((index, content), []).append(event["delta"])
                self._add_logprobs(item, content, event)
            elif what == "done":
                self._text.pop((index, content), None)
                _part(item, content)[_TEXT_OF_PART[name]] = event[_TEXT_OF_PART[name]]
                self._said.add((index, content))
        elif name in _TEXT_OF_ITEM:
            member = _TEXT_OF_ITEM[name]
            if what == "delta":
                self._text.setdefault((index, member), []).append(event["delta"])
            elif what == "done":
                self._text.pop((index, member), None)
                item[member] = event[member]
                self._said.add((index, member))
        elif name == _SUMMARY or name == "response.reasoning_summary_part":
            self._take_summary(item, name, what, event)

    def _take_part(
        self, item: dict[str, Any], index: int, content: int, part: dict[str, Any], *, done: bool
    ) -> None:
        parts = item["content"] = list(item.get("content") or [])
        while len(parts) <= content:
            parts.append({})
        parts[content] = dict(part)
        self._text.pop((index, content), None)
        self._said.discard((index, content))
        (self._open_parts.discard if done else self._open_parts.add)((index, content))

    def _add_logprobs(self, item: dict[str, Any], content: int, event: Event) -> None:
        if event.get("logprobs"):
            part = _part(item, content)
            part["logprobs"] = [*(part.get("logprobs") or []), *event["logprobs"]]

    def _take_summary(self, item: dict[str, Any], name: str, what: str, event: Event) -> None:
        at = event.get("summary_index")
        if not isinstance(at, int):
            return
        parts = item["summary"] = list(item.get("summary") or [])
        while len(parts) <= at:
            parts.append({"type": "summary_text", "text": ""})
        if name != _SUMMARY:
            parts[at] = dict(event["part"])
        elif what == "delta":
            parts[at] = {**parts[at], "text": parts[at].get("text", "") + event["delta"]}
        elif what == "done":
            parts[at] = {**parts[at], "text": event["text"]}

    def _forget(self, index: int) -> None:
        self._text = {place: text for place, text in self._text.items() if place[0] != index}
        self._open_parts = {place for place in self._open_parts if place[0] != index}
        self._said = {place for place in self._said if place[0] != index}

    def response(self, status: Status | None = None) -> dict[str, Any]:
        """The Response object as it stands; `status` in place of its own."""
        self._join()
        shown = dict(self._response)
        if self._items:
            shown["output"] = [self._items[index] for index in sorted(self._items)]
        if status is not None:
            shown["status"] = status
        return shown

    def _join(self) -> None:
        for (index, place), deltas in self._text.items():
            item = self._items[index]
            if isinstance(place, str):
                item[place] = (item.get(place) or "") + "".join(deltas)
            else:
                part = _part(item, place)
                member = "refusal" if part.get("type") == "refusal" else "text"
                part[member] = (part.get(member) or "") + "".join(deltas)
        self._text.clear()

    def ending(
        self, status: Status, error: Mapping[str, Any] | None, now: float
    ) -> tuple[bytes, dict[str, Any]]:
        """The events that end the response here, and its object.

        What is open is closed, as incomplete. A failure has an `error` event before its last one. A stream
        has no event for `cancelled`: it ends with `response.incomplete`, and the object says what happened.
        """
        self._join()
        frames = [objects.event(self._next(), kind, **members) for kind, members in self._closing()]
        response = objects.ended(self.response(), status, error, now)
        if error is not None:
            said = {"code": error["code"], "message": error["message"], "param": None}
            frames.append(objects.event(self._next(), "error", **said))
        kind = "response.failed" if status == "failed" else "response.incomplete"
        frames.append(objects.event(self._next(), kind, response=response))
        return b"".join(frames), response

    def _next(self) -> int:
        number, self.following = self.following, self.following + 1
        return number

    def _closing(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for index in sorted(self._open):
            item = self._items[index]
            place = {"item_id": item.get("id"), "output_index": index}
            for _, content in sorted(part for part in self._open_parts if part[0] == index):
                where, part = {**place, "content_index": content}, _part(item, content)
                if (index, content) not in self._said:
                    yield from _closing_text(where, part)
                yield "response.content_part.done", {**where, "part": part}
            for name, member in _TEXT_OF_ITEM.items():
                if name == f"response.{item.get('type')}_{member}" and (index, member) not in self._said:
                    done = {"name": item.get("name")} if member == "arguments" else {}
                    yield f"{name}.done", {**place, member: item.get(member) or "", **done}
            item = self._items[index] = {**item, "status": "incomplete"}
            yield "response.output_item.done", {"output_index": index, "item": item}
        self._open.clear()
        self._open_parts.clear()
        self._said.clear()


def _closing_text(place: dict[str, Any], part: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    kind = part.get("type")
    if kind == "refusal":
        yield "response.refusal.done", {**place, "refusal": part.get("refusal") or ""}
    elif kind == "reasoning_text":
        yield "response.reasoning_text.done", {**place, "text": part.get("text") or ""}
    elif kind == "output_text":
        said = {"text": part.get("text") or "", "logprobs": part.get("logprobs") or []}
        yield "response.output_text.done", {**place, **said}


def _part(item: dict[str, Any], content: int) -> dict[str, Any]:
    """A part of an item's content, made where the events left it out."""
    parts = item.get("content")
    if not isinstance(parts, list):
        parts = item["content"] = []
    while len(parts) <= content:
        parts.append({"type": "output_text", "text": "", "annotations": []})
    part: dict[str, Any] = parts[content]
    return part
