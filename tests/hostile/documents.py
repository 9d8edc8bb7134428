"""Upstreams whose chat completions and Responses are hostile: nesting, counts, order, duplicates, sizes."""

import json
from typing import Any

from hostile.case import CHAT, RESPONSES, Case, labels
from hostile.replies import document, streamed

MIB = 1 << 20
_BORNE = labels("served", 502, "error in stream", "cut")
_BROKEN = labels(502, "error in stream", "cut")
_SERVED = labels("served")
_LARGE = _BORNE | {"504"}
"""On a busy machine so much may take longer than a deadline."""
_DONE = b"data: [DONE]\n\n"


def _event(payload: Any, name: str | None = None) -> bytes:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return (b"" if name is None else b"event: " + name.encode() + b"\n") + b"data: " + data + b"\n\n"


def _delta(finish: str | None = None, **delta: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _event({"id": "c", "object": "chat.completion.chunk", "choices": [choice]})


_LAST = _delta("stop") + _DONE


def response_event(kind: str, **members: Any) -> bytes:
    return _event({"type": kind, "sequence_number": 0, **members}, kind)


def response_object(status: str, output: list[Any]) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 0,
        "status": status,
        "model": "m",
        "output": output,
    }


CREATED = response_event("response.created", response=response_object("in_progress", []))
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
    "content": [{"type": "output_text", "text": "a", "annotations": []}],
}  # fmt: skip
COMPLETED = response_event("response.completed", response=response_object("completed", [MESSAGE]))


def _many_items() -> bytes:
    items = [{**MESSAGE, "id": f"msg_{number}"} for number in range(100_000)]
    return streamed(
        CREATED + response_event("response.completed", response=response_object("completed", items))
    )


def _far_part() -> bytes:
    added = response_event("response.output_item.added", output_index=0, item={**MESSAGE, "content": []})
    delta = response_event(
        "response.output_text.delta", item_id="msg_1", output_index=0, content_index=1_000_000_000, delta="a"
    )
    return streamed(CREATED + added + delta + COMPLETED)


def _calls(count: int, first: int = 0) -> bytes:
    calls = [
        {
            "index": first + n,
            "id": f"call_{n}",
            "type": "function",
            "function": {"name": "f", "arguments": "{}"},
        }
        for n in range(count)
    ]
    return streamed(_delta(tool_calls=calls) + _LAST)


def _usage(**usage: Any) -> bytes:
    chunk = {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": usage}
    return streamed(_delta(content="a") + _delta("stop") + _event(chunk) + _DONE)


def _pair(name: str, sends: Any, expected: frozenset[str], *, model: str) -> tuple[Case, Case]:
    """The same reply for a client of each API."""
    return (
        Case(f"{name}, to chat", "upstream", sends, expected, model=model, path=CHAT),
        Case(f"{name}, to Responses", "upstream", sends, expected, model=model, path=RESPONSES),
    )


def _chat(
    name: str, sends: Any, expected: frozenset[str], *, stream: bool = True, quick: bool = False
) -> Case:
    return Case(name, "upstream", sends, expected, stream=stream, quick=quick)


def _repaired(name: str, sends: Any, expected: frozenset[str]) -> Case:
    """From a server whose Responses are written anew."""
    return Case(f"{name}, repaired", "upstream", sends, expected, model="bad-repaired", path=RESPONSES)


_HUGE_ERROR = b'{"error":{"message":"' + b"m" * 16 * MIB + b'","type":"server_error","code":null}}'

DOCUMENTS = (
    # === chat ===
    _chat("reasoning_text as the only output", streamed(_delta(reasoning_text="a") * 50 + _LAST), _SERVED),
    _chat("event 300,000 lists deep", lambda: streamed(_event(b"[" * 300_000) + _LAST), _BORNE, quick=True),
    _chat(
        "content 300,000 objects deep",
        lambda: streamed(
            _event(b'{"choices":[{"delta":' + b'{"a":' * 300_000 + b"1" + b"}" * 300_000 + b"}]}") + _LAST
        ),
        _BORNE,
    ),
    _chat("document a million lists deep", lambda: document(b"[" * MIB), labels(502), stream=False),
    _chat(
        "the same member 10,000 times",
        lambda: streamed(
            _delta(content="a")
            + _event(b'{"choices":[],"usage":{' + b'"prompt_tokens":1,' * 10_000 + b'"completion_tokens":2}}')
            + _LAST
        ),
        _BORNE,
    ),
    _chat(
        "error.message of 16 MiB, a status",
        lambda: (
            b"HTTP/1.1 500 Error\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n" % len(_HUGE_ERROR) + _HUGE_ERROR
        ),
        labels(500, 502),
        stream=False,
        quick=True,
    ),
    _chat(
        "error.message of 16 MiB, in the stream",
        lambda: streamed(_event(_HUGE_ERROR) + _DONE),
        _BROKEN | {"504"},
    ),
    _chat(
        "60,000 choices",
        lambda: streamed(
            _event({"id": "c", "choices": [{"index": n, "delta": {"content": "a"}} for n in range(60_000)]})
            + _LAST
        ),
        _LARGE,
    ),
    _chat(
        "choice with the index 10^9",
        streamed(_event({"id": "c", "choices": [{"index": 10**9, "delta": {"content": "a"}}]}) + _LAST),
        _BORNE,
    ),
    _chat("usage of 400 digits", _usage(prompt_tokens=10**400, completion_tokens=1), labels("served")),
    _chat("usage below zero", _usage(prompt_tokens=-5, completion_tokens=-1), labels("served")),
    _chat("usage that is text", _usage(prompt_tokens="1e9", completion_tokens=None), labels("served")),
    _chat(
        "usage in each of 20,000 chunks",
        lambda: _usage(prompt_tokens=1, completion_tokens=1).replace(
            _DONE,
            _event({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}) * 20_000 + _DONE,
        ),
        labels("served", "error in stream", 504),
    ),
    Case(
        "harmony: constrain 60,000 times",
        "upstream",
        lambda: streamed(
            _delta(content="<|channel|>commentary to=f " + "<|constrain|>" * 60_000 + "json<|message|>{}")
            + _LAST
        ),
        _SERVED,
        model="bad-harmony",
        quick=True,
    ),
    Case(
        "harmony: a channel that never ends",
        "upstream",
        lambda: streamed(_delta(content="<|channel|>" + "a" * MIB) + _LAST),
        _SERVED,
        model="bad-harmony",
    ),
    Case(
        "harmony: start 60,000 times",
        "upstream",
        lambda: streamed(_delta(content="<|start|>assistant" * 60_000) + _LAST),
        _SERVED,
        model="bad-harmony",
    ),
    # === chat for clients of Responses, and the other way round ===
    *_pair("100,000 tool calls", lambda: _calls(100_000), _LARGE, model="bad-chat"),
    *_pair("tool call with the index 10^9", _calls(1, 10**9), _SERVED, model="bad-chat"),
    *_pair(
        "reasoning_text as the only output",
        streamed(_event(b'{"delta":{"reasoning_text":"a"}}') * 50 + _DONE),
        _SERVED,
        model="bad-responses",
    ),
    *_pair("completed with 100,000 items", _many_items, _LARGE, model="bad-responses"),
    _repaired("completed with 100,000 items", _many_items, _LARGE),
    *_pair(
        "item added without an item",
        streamed(CREATED + response_event("response.output_item.added", output_index=0) + COMPLETED),
        _SERVED,
        model="bad-responses",
    ),
    _repaired(
        "item added without an item",
        streamed(CREATED + response_event("response.output_item.added", output_index=0) + COMPLETED),
        _SERVED,
    ),
    *_pair("content_index 10^9", _far_part(), _SERVED, model="bad-responses"),
    _repaired("content_index 10^9", _far_part(), _SERVED),
    *_pair(
        "created 20,000 times",
        lambda: streamed(CREATED * 20_000 + COMPLETED),
        _SERVED | {"504"},
        model="bad-responses",
    ),
    *_pair(
        "completed before it is created",
        streamed(COMPLETED + CREATED + COMPLETED),
        _SERVED,
        model="bad-responses",
    ),
    *_pair(
        "events without a type",
        streamed(_event({"a": 1}) * 5_000 + COMPLETED),
        _SERVED,
        model="bad-responses",
    ),
    *_pair(
        "half of a surrogate pair in the text",
        streamed(
            CREATED
            + response_event(
                "response.output_text.delta", item_id="msg_1", output_index=0, content_index=0, delta="\ud800"
            )
            + COMPLETED
        ),
        _SERVED,
        model="bad-responses",
    ),
)
