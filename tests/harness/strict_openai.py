"""Whether a payload is what the installed `openai` package says it is, strictly: nothing coerced, nothing
missing, nothing unknown but what is listed here. Whole Responses streams: `harness.responses_stream`.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, get_args

from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, ValidationError

COST = frozenset(
    {"cost", "cost_details", "prompt_total_cost", "completion_total_cost", "total_cost", "upstream_cost"}
)
"""What the gateway adds to usage."""

# Members that OpenAI's own API or the Open Responses specification has and the package does not declare.
_EXTRA: Mapping[str, frozenset[str]] = {
    # What xAI charged, which is kept.
    "ResponseUsage": COST | {"cost_in_usd_ticks"},
    "CompletionUsage": COST,
    "Response": frozenset({"store", "presence_penalty", "frequency_penalty"}),
    "ResponseCustomToolCall": frozenset({"status"}),
    "ResponseFunctionCallArgumentsDoneEvent": frozenset({"name"}),
    "ResponseCustomToolCallInputDoneEvent": frozenset({"name"}),
    "Logprob": frozenset({"bytes"}),
    "LogprobTopLogprob": frozenset({"bytes"}),
    "ChoiceDelta": frozenset({"reasoning_content", "reasoning"}),
    "ChatCompletionMessage": frozenset({"reasoning_content", "reasoning"}),
}

_OBJECTS: Mapping[str, type[BaseModel]] = {
    "response": Response,
    "chat.completion": ChatCompletion,
    "chat.completion.chunk": ChatCompletionChunk,
    "text_completion": Completion,
    "list": CreateEmbeddingResponse,
}

# Open Responses: a response has every one of these, null where its schema allows that.
OPEN_RESPONSES_MEMBERS = frozenset(
    {
        "id", "object", "created_at", "completed_at", "status", "incomplete_details", "model",
        "previous_response_id", "instructions", "output", "error", "tools", "tool_choice", "truncation",
        "parallel_tool_calls", "text", "top_p", "presence_penalty", "frequency_penalty", "top_logprobs",
        "temperature", "reasoning", "usage", "max_output_tokens", "max_tool_calls", "store", "background",
        "service_tier", "metadata", "safety_identifier", "prompt_cache_key",
    }
)  # fmt: skip

# A placeholder under one of these names breaks clients that tell things apart by it.
_IDENTITIES = frozenset({"id", "item_id", "call_id", "sequence_number"})


def validate(payload: Mapping[str, Any], *, extra: Mapping[str, frozenset[str]] | None = None) -> BaseModel:
    """`payload` as the class that its `type` (an event) or `object` names.

    `extra`: by class name, unknown members that this payload may have. Raises `AssertionError` with all that
    is wrong.
    """
    return conforms(model_of(payload), payload, extra=extra)


def conforms(
    model: type[BaseModel], payload: Mapping[str, Any], *, extra: Mapping[str, frozenset[str]] | None = None
) -> BaseModel:
    """`payload` as `model`, which may be of another package. Otherwise as `validate`."""
    try:
        value = model.model_validate(payload, strict=True)
    except ValidationError as error:
        raise AssertionError(f"no {model.__name__}: {_said(error)}\n{payload}") from None
    unknown = [*_unknown(value, model.__name__, extra or {})]
    assert not unknown, f"{model.__name__} has unknown members: {unknown}\n{payload}"
    wrong = [*placeholders(payload)]
    assert not wrong, f"{model.__name__} has placeholders: {wrong}\n{payload}"
    return value


def model_of(payload: Mapping[str, Any]) -> type[BaseModel]:
    """The package's class for `payload`."""
    event, name = payload.get("type"), payload.get("object")
    if event is None:
        assert isinstance(name, str), f"neither an event nor an object: {payload}"
        assert name in _OBJECTS, f"an object that the package does not know: {name}"
        return _OBJECTS[name]
    assert event in _events(), f"an event that the package does not know: {event}"
    return _events()[event]


def missing_members(response: Mapping[str, Any]) -> set[str]:
    """What the Open Responses specification requires of a response and `response` lacks."""
    usage = response.get("usage")
    missing = {*OPEN_RESPONSES_MEMBERS} - response.keys()
    for name in ("temperature", "top_p", "presence_penalty", "frequency_penalty", "top_logprobs", "text"):
        if response.get(name) is None:
            missing.add(name)
    if usage is not None:
        for details, count in (("input_tokens", "cached_tokens"), ("output_tokens", "reasoning_tokens")):
            if not isinstance(usage.get(f"{details}_details", {}).get(count), int):
                missing.add(f"usage.{details}_details.{count}")
    return missing


def placeholders(value: Any, path: str = "") -> Iterator[str]:
    """The paths of ids, indices and sequence numbers that say nothing: null, empty, negative."""
    if isinstance(value, Mapping):
        for name, member in value.items():
            place = f"{path}.{name}".lstrip(".")
            if (name in _IDENTITIES or name.endswith("_index")) and (
                member is None or member == "" or (isinstance(member, int) and member < 0)
            ):
                yield place
            # A tool's schema and a request's metadata are the client's own.
            if name not in ("parameters", "metadata", "schema"):
                yield from placeholders(member, place)
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from placeholders(member, f"{path}[{index}]")


@cache
def _events() -> dict[str, type[BaseModel]]:
    union, *_ = get_args(ResponseStreamEvent)
    classes = get_args(union)
    return {name: one for one in classes for name in get_args(one.model_fields["type"].annotation)}


def _unknown(value: Any, path: str, allowed: Mapping[str, frozenset[str]]) -> Iterator[str]:
    if isinstance(value, BaseModel):
        name = type(value).__name__
        known = _EXTRA.get(name, frozenset()) | allowed.get(name, frozenset())
        if "delta" in type(value).model_fields:
            # Padding against guessing a text from the sizes of its events.
            known |= {"obfuscation"}
        for extra in sorted((value.model_extra or {}).keys() - known):
            yield f"{path}.{extra}"
        for field in type(value).model_fields:
            yield from _unknown(getattr(value, field), f"{path}.{field}", allowed)
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from _unknown(member, f"{path}[{index}]", allowed)


def _said(error: ValidationError) -> str:
    faults = error.errors(include_url=False, include_input=False)
    # Of a union, every branch of another type says that it is of another type.
    telling = [fault for fault in faults if fault["loc"][-1:] != ("type",)] or faults
    return "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in telling[:12])
