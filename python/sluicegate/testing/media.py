"""Replies of the endpoints beside text: audio, images, moderations, rankings, scores and tokens.

The shapes are those of OpenAI's API reference; rankings, scores and tokens are vLLM's.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle, islice
from typing import Any

from sluicegate.testing.counts import count
from sluicegate.testing.question import Question
from sluicegate.testing.reply import CREATED, Bytes, Document, Event, Stream
from sluicegate.testing.script import Api, Script
from sluicegate.testing.speech import speech, split_words

_PIECE = 1024
_AUDIO = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
    "flac": "audio/flac",
}
_TEXT = ("text", "srt", "vtt")


def speech_reply(script: Script, question: Question) -> Stream | Document | Bytes:
    """`/audio/speech`: as many pieces as the script has tokens, which are not the same as each other."""
    size = script.chunk_bytes or _PIECE
    pieces = tuple(
        bytes(islice(cycle(range(256)), index, index + size)) for index in range(max(script.tokens, 0))
    )
    if question.body.get("stream_format") != "sse":
        return Bytes(_AUDIO.get(str(question.body.get("response_format")), "audio/mpeg"), pieces)
    parts = [
        Event({"type": "speech.audio.delta", "audio": base64.b64encode(piece).decode()}, kind="token")
        for piece in pieces
    ]
    return Stream((*parts, _last("speech.audio.done", script, question, {})))


def transcription_reply(script: Script, question: Question) -> Stream | Document | Bytes:
    """`/audio/transcriptions` and `/audio/translations`."""
    words = speech(script, question, 0).content
    text = "".join(words)
    form = str(question.body.get("response_format"))
    if question.stream:
        parts = [Event({"type": "transcript.text.delta", "delta": word}, kind="token") for word in words]
        return Stream((*parts, _last("transcript.text.done", script, question, {"text": text})))
    if form in _TEXT:
        kind = "text/vtt; charset=utf-8" if form == "vtt" else "text/plain; charset=utf-8"
        return Bytes(kind, tuple(piece.encode() for piece in _lines(form, text)))
    reply: dict[str, Any] = {"text": text}
    if form == "verbose_json":
        reply |= {"task": "transcribe", "language": "english", "duration": 3.5, "segments": []}
        usage: Mapping[str, Any] = {"type": "duration", "seconds": 4}
    else:
        usage = _tokens(script, question, "input_token_details")
    return Document({**reply, **_used(script, usage)})


def _lines(form: str, text: str) -> Iterator[str]:
    if form == "text":
        yield f"{text}\n"
        return
    if form == "vtt":
        yield "WEBVTT\n\n"
    for number, word in enumerate(split_words(text), 1):
        mark = "." if form == "vtt" else ","
        times = f"00:00:{number % 60:02}{mark}000 --> 00:00:{number % 60:02}{mark}500"
        yield f"{number}\n{times}\n{word.strip()}\n\n" if form == "srt" else f"{times}\n{word.strip()}\n\n"


def image_reply(script: Script, question: Question) -> Stream | Document:
    """`/images/generations`, `/images/edits` and `/images/variations`."""
    kind = "image_edit" if question.api == "image_edits" else "image_generation"
    image = base64.b64encode(bytes(range(256)) * 4).decode()
    if not question.stream:
        data = [{"b64_json": image} for _ in range(question.n)]
        return Document({"created": CREATED, "data": data, **_used(script, _tokens(script, question))})
    shown = {"b64_json": image, "created_at": CREATED, "output_format": "png", "size": "1024x1024"}
    name = f"{kind}.partial_image"
    partial = {"type": name, "partial_image_index": 0, **shown}
    last = _last(f"{kind}.completed", script, question, shown)
    return Stream((Event(partial, name=name, kind="token"), last))


def moderation_reply(script: Script, question: Question) -> Document:
    asked = question.body.get("input")
    inputs = asked if isinstance(asked, list) else [asked]
    result = {"flagged": False, "categories": {"violence": False}, "category_scores": {"violence": 0.25}}
    return Document(
        {"id": question.made_id("modr-"), "model": question.model, "results": [result] * len(inputs)}
    )


def rerank_reply(script: Script, question: Question) -> Document:
    documents = question.body.get("documents")
    found = documents if isinstance(documents, list) else []
    results = [
        {"index": index, "document": {"text": text}, "relevance_score": 1 / (index + 2)}
        for index, text in enumerate(found)
    ]
    usage = {"total_tokens": script.usage.input_tokens, **script.usage.extra}
    named = {"id": question.made_id("rerank-"), "model": question.model}
    return Document({**named, **_used(script, usage), "results": results})


def score_reply(script: Script, question: Question) -> Document:
    tokens = script.usage.input_tokens
    data = [{"index": 0, "object": "score", "score": 0.5}]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0, **script.usage.extra}
    named = {"id": question.made_id("score-"), "object": "list", "created": CREATED, "model": question.model}
    return Document({**named, "data": data, **_used(script, usage)})


def tokenize_reply(script: Script, question: Question) -> Document:
    tokens = [ord(letter) for letter in str(question.body.get("prompt", ""))]
    return Document({"count": len(tokens), "max_model_len": 8192, "tokens": tokens, "token_strs": None})


def detokenize_reply(script: Script, question: Question) -> Document:
    tokens = question.body.get("tokens")
    return Document({"prompt": "".join(map(chr, tokens)) if isinstance(tokens, list) else ""})


def _tokens(script: Script, question: Question, details: str = "input_tokens_details") -> dict[str, Any]:
    counts = count(script, [speech(script, question, 0)])
    usage: dict[str, Any] = {"type": "tokens"} if details == "input_token_details" else {}
    usage |= {
        "input_tokens": counts.input,
        details: {"text_tokens": counts.input - counts.input_audio, "audio_tokens": counts.input_audio},
        "output_tokens": counts.output,
        "total_tokens": counts.input + counts.output,
    }
    return usage | dict(script.usage.extra)


def _used(script: Script, usage: Mapping[str, Any]) -> dict[str, Any]:
    return {} if script.usage.placement == "none" else {"usage": dict(usage)}


def _last(name: str, script: Script, question: Question, members: Mapping[str, Any]) -> Event:
    data = {"type": name, **members, **_used(script, _tokens(script, question))}
    return Event(data, name=name if name.startswith("image") else None, kind="end")


MEDIA: Mapping[Api, Callable[[Script, Question], Stream | Document | Bytes]] = {
    "speech": speech_reply,
    "transcriptions": transcription_reply,
    "translations": transcription_reply,
    "images": image_reply,
    "image_edits": image_reply,
    "moderations": moderation_reply,
    "rerank": rerank_reply,
    "score": score_reply,
    "tokenize": tokenize_reply,
    "detokenize": detokenize_reply,
}
"""Who replies to a question to each."""
