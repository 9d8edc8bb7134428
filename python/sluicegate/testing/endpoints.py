"""From a request to the reply that its script describes."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sluicegate.testing.chat import chat_reply
from sluicegate.testing.completions import completions_reply, embeddings_reply, model, models
from sluicegate.testing.connection import HttpRequest
from sluicegate.testing.faults import (
    anthropic_error_of,
    error_reply,
    stream_options_refused,
    stream_options_without_stream,
    with_faulty_events,
)
from sluicegate.testing.forms import form_of
from sluicegate.testing.framing import done_markers
from sluicegate.testing.media import MEDIA
from sluicegate.testing.messages import (
    count_tokens_reply,
    messages_reply,
    model_entry,
    models_page,
    refused_block,
)
from sluicegate.testing.messages_dialects import messages_traits
from sluicegate.testing.ollama import ollama_reply
from sluicegate.testing.question import Question, read_question
from sluicegate.testing.reply import Bytes, Document, Event, Stream
from sluicegate.testing.responses import responses_reply
from sluicegate.testing.script import Api, Script

# By the end of the path, so that every prefix works: /v1, none, /openai/deployments/NAME, /api/v1 …
_APIS: Mapping[str, Api] = {
    "/chat/completions": "chat",
    "/completions": "completions",
    "/embeddings": "embeddings",
    "/responses": "responses",
    "/messages": "messages",
    "/messages/count_tokens": "count_tokens",
    # As Vertex has them.
    "/count-tokens:rawPredict": "count_tokens",
    ":rawPredict": "messages",
    ":streamRawPredict": "messages",
    "/api/chat": "ollama",
    "/audio/speech": "speech",
    "/audio/transcriptions": "transcriptions",
    "/audio/translations": "translations",
    "/images/generations": "images",
    "/images/variations": "images",
    "/images/edits": "image_edits",
    "/moderations": "moderations",
    "/rerank": "rerank",
    "/score": "score",
    "/tokenize": "tokenize",
    "/detokenize": "detokenize",
}
# A file's field may be one of several: `image[]`.
_REQUIRED: Mapping[Api, tuple[str, ...]] = {
    "speech": ("input", "voice"),
    "transcriptions": ("file", "model"),
    "translations": ("file", "model"),
    "image_edits": ("image", "prompt"),
}
_ANTHROPIC = ("messages", "count_tokens")
_STREAMING: Mapping[str, Callable[..., Stream | Document]] = {
    "chat": chat_reply,
    "completions": completions_reply,
    "responses": responses_reply,
    "messages": messages_reply,
    "ollama": ollama_reply,
}


def path_of(request: HttpRequest) -> str:
    path = request.target.partition("?")[0]
    return path.rstrip("/") or "/"


def api_of(path: str) -> Api | None:
    """Which API a path calls; None: none of those that take a POST."""
    return next((api for end, api in _APIS.items() if path.endswith(end)), None)


def is_health(path: str) -> bool:
    return path in ("/", "/health", "/healthz", "/v1/health")


def body_of(request: HttpRequest) -> dict[str, Any] | None:
    """The JSON object in the body, or the form; None where there is none."""
    if (request.header("content-type") or "").lower().startswith("multipart/"):
        return form_of(request)
    try:
        body = json.loads(request.body)
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def question_of(request: HttpRequest, script: Script) -> tuple[Question, Api]:
    """What is asked, and in which API's form the reply is."""
    called = api_of(path_of(request)) or "chat"
    return read_question(called, body_of(request) or {}), script.api or called


def reply_to(
    request: HttpRequest, script: Script, question: Question, api: Api, names: tuple[str, ...]
) -> Stream | Document | Bytes:
    """The reply, with the events that its faults add; what else goes wrong is for when it is played."""
    if script.status >= 400:
        anthropic = api in _ANTHROPIC
        reply: Stream | Document | Bytes = error_reply(
            script.status, script.error, anthropic=anthropic, dialect=script.dialect
        )
    else:
        reply = _healthy(request, script, question, api, names)
    reply = reply.dressed(script.extra, {"echo": _echo(request)} if script.echo else {})
    if not isinstance(reply, Stream):
        return reply
    events, whole = with_faulty_events(reply.events, script, question, api)
    ndjson = script.ndjson or api == "ollama"
    if whole and not ndjson:
        events += [Event("[DONE]", kind="end")] * done_markers(script, api)
    return Stream(tuple(events), ndjson)


def _healthy(
    request: HttpRequest, script: Script, question: Question, api: Api, names: tuple[str, ...]
) -> Stream | Document | Bytes:
    path = path_of(request)
    if request.method == "GET":
        return _get(path, names, anthropic=request.header("anthropic-version") is not None)
    if api_of(path) is None:
        return error_reply(404, problem(f"Invalid URL ({request.method} {path})"))
    if request.method != "POST":
        return error_reply(405, problem(f"Not allowed: {request.method} {path}"))
    if body_of(request) is None:
        return error_reply(400, problem("We could not parse the body of your request."))
    if question.stream_options and script.refuse_stream_options:
        return stream_options_refused()
    if question.stream_options and not question.stream and question.api in ("chat", "completions"):
        return stream_options_without_stream()
    stream = question.stream if script.stream is None else script.stream
    if api == "count_tokens":
        if not messages_traits(script.dialect).counts_tokens:
            return error_reply(404, problem(f"Invalid URL ({request.method} {path})"))
        return count_tokens_reply(script, question)
    if api == "messages" and (refused := refused_block(script, question)):
        error = {**anthropic_error_of(400, script.dialect), "message": f"unknown block: {refused}"}
        return error_reply(400, error, anthropic=True)
    if api == "embeddings":
        return embeddings_reply(script, question)
    if api in MEDIA:
        given = {name.removesuffix("[]") for name in question.body}
        missing = [name for name in _REQUIRED.get(question.api, ()) if name not in given]
        if missing:
            return error_reply(400, problem(f"Missing required parameter: '{missing[0]}'."))
        return MEDIA[api](script, replace(question, stream=stream))
    return _STREAMING[api](script, question, stream=stream)


def _get(path: str, names: tuple[str, ...], *, anthropic: bool) -> Document:
    if path.endswith("/models"):
        return models_page(names) if anthropic else models(names)
    _, found, name = path.partition("/models/")
    if found:
        return Document(model_entry(name) if anthropic else model(name))
    return error_reply(404, problem(f"Invalid URL (GET {path})"))


def problem(message: str) -> dict[str, Any]:
    """The `error` member for a request that cannot be served."""
    return {"message": message, "type": "invalid_request_error", "param": None, "code": None}


def _echo(request: HttpRequest) -> dict[str, Any]:
    body = body_of(request)
    return {
        "method": request.method,
        "path": request.target,
        "headers": [list(header) for header in request.headers],
        "body": body if body is not None else request.body.decode("utf-8", "replace"),
    }
