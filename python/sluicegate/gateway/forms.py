"""Errors in the form of the client's API: OpenAI's, in which they are made, or Anthropic's.

Anthropic's look like `{"type": "error", "error": {"type", "message"}, "request_id"}` (its documentation,
"Errors").
"""

from collections.abc import Mapping
from dataclasses import replace

from sluicegate._core import messages_error_type
from sluicegate.gateway.endpoints import OF_ANTHROPIC
from sluicegate.gateway.errors import ErrorReply, Form, dump

# By these words Claude Code knows that it has to compact the conversation.
_TOO_LONG = "prompt is too long: "


def form_of(endpoint: str) -> Form:
    """The form for clients of a relayed endpoint."""
    return "anthropic" if endpoint in OF_ANTHROPIC else "openai"


def form_of_client(headers: Mapping[bytes, bytes]) -> Form:
    """The form for a client that asks for anything else: Anthropic's name a version of their API."""
    return "anthropic" if b"anthropic-version" in headers else "openai"


def in_form(reply: ErrorReply, form: Form, request_id: str | None) -> ErrorReply:
    """`reply`, written in `form`; what an upstream has written in it stays as it is, to the byte.

    `request_id`: None where it is not known yet, and is added later.
    """
    if reply.form == form:
        return reply
    if form == "openai":
        # 529 is Anthropic's own: what it means is a 503 elsewhere.
        status = 503 if reply.status == 529 else reply.status
        error = {"message": reply.message, "type": reply.type, "code": reply.code, "param": None}
        return replace(reply, form=form, status=status, body=dump({"error": error}))
    message = reply.message
    if reply.code == "context_length_exceeded" and _TOO_LONG.strip(": ") not in message:
        message = _TOO_LONG + message
    status, headers = reply.status, reply.headers
    if reply.excess is not None:
        if reply.excess.limit.resource == "cost":
            status = 402
        kept = [header for header in headers if not header[0].startswith(b"x-ratelimit-")]
        headers = [*kept, *reply.excess.headers(form)]
    document = {"type": "error", "error": {"type": messages_error_type(status), "message": message}}
    if request_id is not None:
        document["request_id"] = request_id
        if all(name != b"request-id" for name, _ in headers):
            headers = [*headers, (b"request-id", request_id.encode("latin-1", "replace"))]
    return replace(reply, form=form, status=status, headers=headers, body=dump(document))
