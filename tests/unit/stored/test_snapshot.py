"""What is open in a response that broke off is closed, once, wherever it broke off."""

from typing import Any

import pytest

from sluicegate.responses import objects
from sluicegate.responses.numbering import payloads
from sluicegate.responses.snapshot import Snapshot

RESPONSE = {"id": "resp_1", "object": "response", "status": "in_progress", "model": "m", "output": []}
PLACE = {"item_id": "i_0", "output_index": 0}
PART = {**PLACE, "content_index": 0}


def text_item(kind: str, item: dict[str, Any], part: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    whole = {**part, "text": "ab"}
    said: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
    return [
        ("response.output_item.added", {"output_index": 0, "item": {"id": "i_0", **item, "content": []}}),
        ("response.content_part.added", {**PART, "part": {**part, "text": ""}}),
        (f"response.{kind}.delta", {**PART, "delta": "a", **said}),
        (f"response.{kind}.delta", {**PART, "delta": "b", **said}),
        (f"response.{kind}.done", {**PART, "text": "ab", **said}),
        ("response.content_part.done", {**PART, "part": whole}),
    ]


MESSAGE = text_item(
    "output_text",
    {"type": "message", "role": "assistant", "status": "in_progress"},
    {"type": "output_text", "annotations": [], "logprobs": []},
)
REASONING = text_item(
    "reasoning_text",
    {"type": "reasoning", "summary": [], "status": "in_progress"},
    {"type": "reasoning_text"},
)
CALL = [
    (
        "response.output_item.added",
        {
            "output_index": 0,
            "item": {"id": "i_0", "type": "function_call", "call_id": "c", "name": "f", "arguments": "",
                     "status": "in_progress"},
        },
    ),
    ("response.function_call_arguments.delta", {**PLACE, "delta": "{}"}),
    ("response.function_call_arguments.done", {**PLACE, "arguments": "{}", "name": "f"}),
]  # fmt: skip


@pytest.mark.parametrize("events", [MESSAGE, REASONING, CALL], ids=["message", "reasoning", "call"])
def test_it_may_break_off_after_any_event(events: list[tuple[str, dict[str, Any]]]) -> None:
    for kept in range(1, len(events) + 1):
        begun = [("response.created", {"response": RESPONSE}), *events[:kept]]
        sent = b"".join(objects.event(number, kind, **said) for number, (kind, said) in enumerate(begun))
        snapshot = Snapshot(RESPONSE)
        snapshot.take(payloads(sent))
        data, response = snapshot.ending("incomplete", None, 0.0)
        kinds = [event["type"] for event in payloads(sent + data)]
        ends = [kind for kind in kinds if kind.endswith(".done")]
        assert sorted(ends) == sorted(set(ends)), f"closed twice after {kinds[kept]}"
        assert ends[-1] == "response.output_item.done"
        assert set(ends) >= {kind for kind, _ in events if kind.endswith(".done") and _needed(kind, kinds)}
        assert response["output"][0]["status"] == "incomplete"


def _needed(done: str, kinds: list[str]) -> bool:
    """Whether what `done` ends has begun."""
    begins = "response.content_part.added" if "call" not in done else "response.output_item.added"
    return begins in kinds
