"""What goes wrong: error replies, events that should not be there, and where a connection breaks."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sluicegate.testing.dialects import DialectName
from sluicegate.testing.messages_dialects import messages_traits
from sluicegate.testing.question import Question
from sluicegate.testing.reply import CREATED, Document, Event
from sluicegate.testing.responses import failed_events
from sluicegate.testing.script import Api, Fault, FaultPlace, Script

_KINDS = {
    400: ("invalid_request_error", None, "Bad request."),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    403: ("invalid_request_error", "forbidden", "You are not allowed to use this model."),
    404: ("invalid_request_error", "model_not_found", "The model does not exist."),
    413: ("invalid_request_error", "context_length_exceeded", "The request is too large."),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached for requests."),
    503: ("server_error", "overloaded", "That model is currently overloaded with other requests."),
}


def error_of(status: int) -> dict[str, Any]:
    """The `error` member that fits a status."""
    kind, code, message = _KINDS.get(status, ("server_error", None, "The server had an error."))
    return {"message": message, "type": kind, "param": None, "code": code}


def error_reply(
    status: int,
    error: Mapping[str, Any] | str | None = None,
    *,
    anthropic: bool = False,
    dialect: DialectName = "openai",
) -> Document:
    """In the form of OpenAI's API, or in that of Anthropic's as the server of a dialect writes it."""
    if not anthropic:
        return Document({"error": error_of(status) if error is None else error}, status)
    error = anthropic_error_of(status, dialect) if error is None else error
    return Document({"type": "error", "error": error, "request_id": "req_mock"}, status)


_ANTHROPIC_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


_PYTHON_TYPES = {404: "NotFoundError", 429: "RateLimitError"}


def anthropic_error_of(status: int, dialect: DialectName = "openai") -> dict[str, Any]:
    """The `error` member of Anthropic's API that fits a status, as the server of a dialect writes it."""
    if messages_traits(dialect).error_types == "python":
        kind = _PYTHON_TYPES.get(status) or ("InternalServerError" if status >= 500 else "BadRequestError")
    else:
        kind = _ANTHROPIC_TYPES.get(status) or ("api_error" if status >= 500 else "invalid_request_error")
    return {"type": kind, "message": error_of(status)["message"]}


def stream_options_refused() -> Document:
    message = "Unrecognized request argument supplied: stream_options"
    error = {
        "message": message,
        "type": "invalid_request_error",
        "param": "stream_options",
        "code": "unknown_parameter",
    }
    return Document({"error": error}, 400)


def stream_options_without_stream() -> Document:
    error = {
        "message": "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        "type": "invalid_request_error",
        "param": "stream_options",
        "code": None,
    }
    return Document({"error": error}, 400)


def with_faulty_events(
    events: Iterable[Event], script: Script, question: Question, api: Api
) -> tuple[list[Event], bool]:
    """The events with those that the faults add, and whether the reply still ends as it should."""
    inserted = [fault for fault in script.faults if fault.action in ("error", "malformed", "oversized")]
    result: list[Event] = []
    for number, event in enumerate([*events, None]):
        for fault in inserted:
            if fault.events != number:
                continue
            result += _events_of(fault, script, question, api, number)
            if fault.action == "error":
                return result, fault.done
        if event is not None:
            result.append(event)
    return result, True


def _events_of(fault: Fault, script: Script, question: Question, api: Api, number: int) -> Iterator[Event]:
    match fault.action:
        case "malformed":
            yield Event('{"id":"chatcmpl-cut","object":"chat.completion.chunk","choices":[{"index":0,"del')
        case "oversized":
            yield Event(oversized(fault.bytes, question), kind="token")
        case _:
            error = error_of(500) if fault.error is None else fault.error
            if api == "messages" and fault.error is None:
                error = anthropic_error_of(529, script.dialect)
            if api == "responses" and isinstance(error, Mapping):
                yield from failed_events(script, question, number, error, flat=fault.style == "event")
            elif api == "messages":
                yield Event({"type": "error", "error": error}, name="error", kind="end")
            elif fault.style == "field":
                text = error if isinstance(error, str) else json.dumps(error, separators=(",", ":"))
                yield Event(text, kind="end", field="error")
            else:
                name = "error" if fault.style == "event" else None
                yield Event({"error": error}, name=name, kind="end")


def oversized(size: int, question: Question) -> dict[str, Any]:
    """A chat chunk with `size` bytes of content."""
    choice = {"index": 0, "delta": {"content": "x" * size}, "logprobs": None, "finish_reason": None}
    return {
        "id": question.made_id("chatcmpl-"),
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": question.model,
        "choices": [choice],
    }


class Hazards:
    """The faults of one request that end or stall its connection, found by place."""

    def __init__(self, script: Script, *, reused: bool) -> None:
        self._faults = [
            fault
            for fault in script.faults
            if fault.action in ("close", "reset", "stall") and (reused or not fault.on_reused)
        ]

    def at(self, place: FaultPlace, events: int = 0) -> Fault | None:
        """The fault at a place. For `events` and `mid_event`, `events` whole ones have been sent."""
        for fault in self._faults:
            if fault.at == place and (place not in ("events", "mid_event") or fault.events == events):
                return fault
        return None

    def after(self, events: int) -> bool:
        """Whether something happens once `events` events have been sent: a write must end there."""
        return any(f.at in ("events", "mid_event") and f.events == events for f in self._faults)
