"""From an upstream's chat deltas to the items of a response."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from harness.responses_stand import ResponsesStand, responses_stand
from harness.responses_stream import Streamed, check
from harness.wire_stand import DONE, event
from sluicegate.testing import body

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ResponsesStand]:
    async with responses_stand(tmp_path_factory.mktemp("gateway")) as stand:
        yield stand


def delta(finish: str | None = None, **members: Any) -> bytes:
    choice = {"index": 0, "delta": members, "finish_reason": finish}
    return event({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]})


def call(index: int | None = 0, arguments: str | None = None, **members: Any) -> dict[str, Any]:
    """One entry of `tool_calls`."""
    entry: dict[str, Any] = {} if index is None else {"index": index}
    function = {} if arguments is None else {"arguments": arguments}
    if "name" in members:
        function["name"] = members.pop("name")
    return entry | members | {"function": function}


async def stream(
    stand: ResponsesStand, *deltas: bytes, finish: str | None = "stop", **asked: Any
) -> Streamed:
    ending = () if finish is None else (delta(finish),)
    return await stand.stream(body(*deltas, *ending, DONE), **asked)


def said(streamed: Streamed) -> list[Any]:
    """The items, each as (kind, what it says)."""
    found: list[Any] = []
    for item in streamed.output:
        if item["type"] in ("message", "reasoning"):
            text = "".join(part.get("text", part.get("refusal")) for part in item["content"])
            found.append((item["type"], text))
        else:
            found.append((item["name"], item.get("arguments", item.get("input"))))
    return found


# === kinds ===


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking"])
async def test_reasoning_is_known_by_each_of_its_names(stand: ResponsesStand, field: str) -> None:
    streamed = await stream(stand, delta(**{field: "Let "}), delta(**{field: "me."}), delta(content="Yes."))
    assert said(streamed) == [("reasoning", "Let me."), ("message", "Yes.")]


async def test_one_delta_may_hold_all_kinds(stand: ResponsesStand) -> None:
    calls = [call(0, "{}", id="call_1", name="f"), call(1, "", id="call_2", name="g")]
    streamed = await stream(
        stand, delta(reasoning_content="R", content="C", refusal="N", tool_calls=calls), finish="tool_calls"
    )
    assert said(streamed) == [("reasoning", "R"), ("message", "C"), ("message", "N"), ("f", "{}"), ("g", "")]


async def test_any_alternation_is_legal(stand: ResponsesStand) -> None:
    streamed = await stream(
        stand,
        delta(reasoning="R1"),
        delta(content="C1"),
        delta(tool_calls=[call(0, "{}", id="call_1", name="f")]),
        delta(reasoning="R2"),
        delta(content="C2"),
        delta(content="C3"),
        delta(reasoning="R3"),
    )
    assert said(streamed) == [
        ("reasoning", "R1"), ("message", "C1"), ("f", "{}"), ("reasoning", "R2"), ("message", "C2C3"),
        ("reasoning", "R3"),
    ]  # fmt: skip


async def test_speculative_decoding_may_cross_kinds_in_one_chunk(stand: ResponsesStand) -> None:
    streamed = await stream(stand, delta(reasoning="think"), delta(reasoning=" more", content="answer"))
    assert said(streamed) == [("reasoning", "think more"), ("message", "answer")]


async def test_white_space_is_text(stand: ResponsesStand) -> None:
    streamed = await stream(stand, delta(content="\n\n "), delta(content="a"), delta(content=" \t\n"))
    assert said(streamed) == [("message", "\n\n a \t\n")]


async def test_white_space_before_a_call_is_no_message(stand: ResponsesStand) -> None:
    streamed = await stream(
        stand,
        delta(reasoning="R"),
        delta(content="\n\n"),
        delta(tool_calls=[call(0, "{}", id="call_1", name="f")]),
    )
    assert said(streamed) == [("reasoning", "R"), ("f", "{}")]


async def test_white_space_between_reasoning_and_text_stays(stand: ResponsesStand) -> None:
    streamed = await stream(stand, delta(reasoning="R"), delta(content="\n\n"), delta(content="Yes."))
    assert said(streamed) == [("reasoning", "R"), ("message", "\n\nYes.")]


# === calls ===


async def test_interleaved_calls_are_told_apart_by_their_index(stand: ResponsesStand) -> None:
    streamed = await stream(
        stand,
        delta(tool_calls=[call(0, '{"a"', id="call_1", name="f")]),
        delta(tool_calls=[call(1, '{"b"', id="call_2", name="g")]),
        delta(tool_calls=[call(0, ":1}")]),
        delta(tool_calls=[call(1, ":2}")]),
        finish="tool_calls",
    )
    assert said(streamed) == [("f", '{"a":1}'), ("g", '{"b":2}')]
    assert [item["call_id"] for item in streamed.output] == ["call_1", "call_2"]


async def test_a_new_id_on_a_used_index_is_a_new_call(stand: ResponsesStand) -> None:
    streamed = await stream(
        stand,
        delta(tool_calls=[call(0, '{"a":1}', id="call_1", name="f")]),
        delta(tool_calls=[call(0, '{"b":2}', id="call_2", name="f")]),
    )
    assert said(streamed) == [("f", '{"a":1}'), ("f", '{"b":2}')]


async def test_a_name_and_arguments_may_be_entries_of_one_delta(stand: ResponsesStand) -> None:
    entries = [call(0, id="call_1", name="get_weather"), call(0, '{"city":"SF"}')]
    streamed = await stream(stand, delta(tool_calls=entries))
    assert said(streamed) == [("get_weather", '{"city":"SF"}')]


async def test_a_name_that_comes_late_is_waited_for(stand: ResponsesStand) -> None:
    streamed = await stream(
        stand,
        delta(tool_calls=[call(0, id="call_1")]),
        delta(tool_calls=[call(0, "", name="f")]),
        delta(tool_calls=[call(0, "{}")]),
    )
    assert said(streamed) == [("f", "{}")]


async def test_a_missing_id_is_made(stand: ResponsesStand) -> None:
    streamed = await stream(stand, delta(tool_calls=[call(0, "{}", name="f"), call(1, "{}", name="g")]))
    ids = [item["call_id"] for item in streamed.output]
    assert len(set(ids)) == 2
    assert all(one.startswith("call_") for one in ids)


async def test_empty_arguments_stay_empty(stand: ResponsesStand) -> None:
    streamed = await stream(stand, delta(tool_calls=[call(0, id="call_1", name="f")]))
    assert said(streamed) == [("f", "")]
    assert streamed.types[-4:] == [
        "output_item.added", "function_call_arguments.done", "output_item.done", "completed",
    ]  # fmt: skip


async def test_the_old_function_call_is_a_call(stand: ResponsesStand) -> None:
    streamed = await stream(
        stand,
        delta(function_call={"name": "f", "arguments": ""}),
        delta(function_call={"arguments": "{}"}),
        finish="function_call",
    )
    assert said(streamed) == [("f", "{}")]


async def test_a_custom_tool_comes_back_as_its_text(stand: ResponsesStand) -> None:
    pieces = ['{"input', '": "ls -la ', '\\"x\\" \\u00', "e9", '\\n"}']
    streamed = await stream(
        stand,
        delta(tool_calls=[call(0, "", id="call_1", name="emit_command")]),
        *[delta(tool_calls=[call(0, piece)]) for piece in pieces],
        tools=[{"type": "custom", "name": "emit_command"}],
        finish="tool_calls",
    )
    [item] = streamed.output
    assert (item["type"], item["input"], item["call_id"]) == (
        "custom_tool_call",
        'ls -la "x" \u00e9\n',
        "call_1",
    )
    assert item["id"].startswith("ctc_")
    assert streamed.types.count("custom_tool_call_input.delta") > 1


# === why it ended ===


@pytest.mark.parametrize(
    ("finish", "status", "reason"),
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        ("function_call", "completed", None),
        ("eos", "completed", None),
        (None, "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
    ],
)
async def test_a_finish_reason_is_a_status(
    stand: ResponsesStand, finish: str | None, status: str, reason: str | None
) -> None:
    streamed = await stream(stand, delta(content="Hi"), finish=finish)
    response = streamed.response
    assert (response["status"], streamed.events[-1]["type"]) == (status, f"response.{status}")
    assert response["incomplete_details"] == (reason and {"reason": reason})
    assert streamed.output[-1]["status"] == status


async def test_neither_an_end_nor_a_reason_is_a_failure(stand: ResponsesStand) -> None:
    exchange = await stand.ask(body(delta(content="Hi")), stream=True)
    streamed = check(exchange.body)
    assert streamed.response["status"] == "failed"
    assert said(streamed) == [("message", "Hi")]
    assert streamed.output[0]["status"] == "incomplete"
