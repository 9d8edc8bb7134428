"""What translated requests are made of, by the types of the `openai` package."""

import json
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import TypeAdapter, ValidationError

CORPUS = Path(__file__).parents[1] / "corpus" / "responses_requests"

CHAT: TypeAdapter[Any] = TypeAdapter(CompletionCreateParamsNonStreaming)
RESPONSES: TypeAdapter[Any] = TypeAdapter(ResponseCreateParamsNonStreaming)


def cases(name: str, result: str) -> list[Any]:
    """The requests that came of the cases. A vendor's own members pass, its own kinds of content do not."""
    found = json.loads((CORPUS / f"{name}.json").read_text())
    named = [case for case in found if result in case and "vendor's part" not in case["name"]]
    assert len(named) > 30
    return [pytest.param(case[result], id=case["name"]) for case in named]


def exhaust(value: Any) -> None:
    """Go through all of it: pydantic checks an iterable only as it is read."""
    if isinstance(value, dict):
        value = value.values()
    elif isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        return
    for inner in value:
        exhaust(inner)


def check(adapter: TypeAdapter[Any], body: dict[str, Any]) -> None:
    # The two classes differ in this member only.
    exhaust(adapter.validate_python({**body, "stream": False}))


@pytest.mark.parametrize("body", cases("to_chat", "chat"))
def test_a_request_for_a_response_becomes_a_chat_request(body: dict[str, Any]) -> None:
    check(CHAT, body)


@pytest.mark.parametrize("body", cases("from_chat", "responses"))
def test_a_chat_request_becomes_a_request_for_a_response(body: dict[str, Any]) -> None:
    check(RESPONSES, body)


@pytest.mark.parametrize(
    ("adapter", "body"),
    [
        (CHAT, {"model": "m", "messages": [{"role": "bard", "content": "hi"}]}),
        (RESPONSES, {"model": "m", "input": [{"type": "function_call", "name": "f"}]}),
    ],
)
def test_the_check_can_fail(adapter: TypeAdapter[Any], body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        check(adapter, body)
