"""A script as JSON: every field can be written, and nothing is ignored in silence."""

import dataclasses
import json
from typing import Any, get_args

import pytest

from sluicegate.testing import (
    DIALECTS,
    DialectName,
    Fault,
    Framing,
    Script,
    ScriptError,
    ToolCall,
    UsageScript,
    script_from,
    script_from_json,
)


def test_an_empty_object_is_the_base() -> None:
    base = Script(tokens=3, framing=Framing(bom=True))
    assert script_from({}, base) == base
    assert script_from_json("{}") == Script()


def test_groups_are_merged_member_by_member() -> None:
    base = Script(tokens=3, usage=UsageScript(input_tokens=99), framing=Framing(bom=True))
    script = script_from({"usage": {"cached_tokens": 7}, "framing": {"line_ending": "cr"}}, base)
    assert script == Script(
        tokens=3,
        usage=UsageScript(input_tokens=99, cached_tokens=7),
        framing=Framing(bom=True, line_ending="cr"),
    )


def test_lists_of_objects_are_read() -> None:
    script = script_from(
        {
            "tool_calls": [{}, {"name": "f", "arguments": "{"}],
            "faults": [{"action": "stall", "at": "mid_event", "events": 2, "seconds": 1}],
        }
    )
    assert script.tool_calls == (ToolCall(), ToolCall(name="f", arguments="{"))
    assert script.faults == (Fault(action="stall", at="mid_event", events=2, seconds=1.0),)


def test_steps_are_text_bytes_waits_and_actions() -> None:
    script = script_from({"raw": ["é", 0.5, {"base64": "AAE="}, {"do": "reset"}]})
    assert script.raw == ("é".encode(), 0.5, b"\x00\x01", "reset")


def test_traits_start_from_the_dialect() -> None:
    script = script_from({"dialect": "groq", "traits": {"tool_index": "zero"}})
    assert script.wire == dataclasses.replace(DIALECTS["groq"], tool_index="zero")


def test_a_dialect_takes_the_place_of_the_bases_traits() -> None:
    base = script_from({"traits": {"tool_index": "zero"}})
    assert script_from({}, base).wire.tool_index == "zero"
    assert script_from({"traits": {"done": False}}, base).wire.tool_index == "zero"
    assert script_from({"dialect": "vllm"}, base).wire == DIALECTS["vllm"]


def test_every_dialect_has_its_traits() -> None:
    assert set(DIALECTS) == set(get_args(DialectName))


def test_a_whole_script_survives_json() -> None:
    script = Script(
        tokens=2,
        text=None,
        finish_reason=None,
        extra={"a": [1]},
        error="bad",
        headers={"retry-after": "1"},
        framing=Framing(extra_lines=("id: 1",)),
        faults=(Fault(action="error", error={"message": "m"}),),
        tool_calls=(ToolCall(kind="custom"),),
    )
    assert script_from_json(json.dumps(dataclasses.asdict(script))) == script


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "script: should be an object"),
        ({"tokns": 1}, r"script\.tokns: no such field; there are api, body"),
        ({"tokens": "3"}, r"script\.tokens: should be a whole number, not '3'"),
        ({"tokens": True}, r"script\.tokens: should be a whole number"),
        ({"stream": 1}, r"script\.stream: should be true or false"),
        ({"pace": -1}, r"script\.pace: should be seconds"),
        ({"text": 5}, r"script\.text: should be a string"),
        ({"dialect": "x"}, r"script\.dialect: should be one of openai, azure"),
        ({"dialect": "x", "traits": {}}, r"script\.dialect: should be one of openai"),
        ({"traits": {"x": 1}}, r"script\.traits\.x: no such field"),
        (
            {"framing": {"line_ending": "lfcr"}},
            r"script\.framing\.line_ending: should be one of lf, crlf, cr",
        ),
        ({"framing": 1}, r"script\.framing: should be an object"),
        ({"usage": {"extra": [1]}}, r"script\.usage\.extra: should be an object"),
        ({"headers": {"a": 1}}, r"script\.headers\.a: should be a string"),
        ({"faults": {}}, r"script\.faults: should be a list"),
        ({"faults": [1]}, r"script\.faults\[0\]: should be an object"),
        ({"faults": [{}]}, r"script\.faults\[0\]: action must be given"),
        ({"faults": [{"action": "explode"}]}, r"script\.faults\[0\]\.action: should be one of close"),
        ({"body": [None]}, r"script\.body\[0\]: should be a string, a number"),
        ({"body": [{"base64": "?"}]}, r"script\.body\[0\]\.base64"),
        ({"body": [{"do": "explode"}]}, r"script\.body\[0\]: should be a string"),
    ],
)
def test_what_cannot_be_read_is_named(value: Any, message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        script_from(value)


def test_text_that_is_no_json_is_named() -> None:
    with pytest.raises(ScriptError, match="script: not JSON"):
        script_from_json(b"{")
