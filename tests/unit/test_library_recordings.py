"""Recorded streams of real providers, where `SLUICEGATE_CORPUS` points to them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sluicegate import SSEDecoder, SSESplitter, Usage, UsageMeter, fold_chat
from sluicegate._core import Pipeline
from stream_corpus import BOM, reads

CORPUS = os.environ.get("SLUICEGATE_CORPUS")
APIS = {
    "chat.completions": "chat",
    "completions": "completions",
    "responses": "responses",
    "anthropic.messages": "messages",
}
SIZES = pytest.mark.parametrize("size", [1, 100, 16_384])


def listed(name: str) -> list[dict[str, Any]]:
    if CORPUS is None:
        return []
    return [json.loads(line) for line in (Path(CORPUS) / name).read_text().splitlines()]


pytestmark = pytest.mark.skipif(CORPUS is None, reason="SLUICEGATE_CORPUS names no recorded streams")
STREAMS = pytest.mark.parametrize(
    "entry", listed("manifest.jsonl") or [{"file": "none"}], ids=lambda entry: entry["file"]
)
EXPECTED = pytest.mark.parametrize(
    "entry", listed("expected.jsonl") or [{"file": "none"}], ids=lambda entry: entry["file"]
)


def recording(entry: dict[str, Any]) -> bytes:
    assert CORPUS is not None
    return Path(CORPUS, str(entry["file"])).read_bytes()


def normal_form(entry: dict[str, Any]) -> dict[str, int | None]:
    """The recording's usage, as the normal form has it: input includes cached, output includes reasoning."""
    norm = entry.get("usage_norm") or {}
    if entry["api"] == "anthropic.messages":
        beside = (norm.get("cache_read") or 0) + (norm.get("cache_creation") or 0)
        return {
            "input_tokens": None if norm.get("input") is None else norm["input"] + beside,
            "cached_input_tokens": norm.get("cache_read"),
            "cache_write_tokens": norm.get("cache_creation"),
            "output_tokens": norm.get("output"),
        }
    output, reasoning = norm.get("output"), norm.get("reasoning")
    # xAI leaves reasoning out of the output, and so do two hosts of Gemini.
    if reasoning and output is not None and ("/xai/chat" in entry["file"] or reasoning > output):
        output += reasoning
    form = {"input_tokens": norm.get("input"), "output_tokens": output, "reasoning_tokens": reasoning}
    # llama.cpp says what it had cached in its timings only.
    return form if "/llama.cpp/" in entry["file"] else {**form, "cached_input_tokens": norm.get("cached")}


def counts(usage: Usage | None, names: dict[str, int | None]) -> dict[str, int | None]:
    return {name: getattr(usage, name, None) for name in names}


@SIZES
@EXPECTED
def test_the_usage_is_the_recorded_one(entry: dict[str, Any], size: int) -> None:
    meter = UsageMeter()
    for read in reads(recording(entry), size):
        meter.feed(read)
    meter.finish()
    expected = normal_form(entry)
    assert counts(meter.usage, expected) == expected


MARK = b'"sluice_cost":{"of":1}'


@SIZES
@STREAMS
def test_a_recording_passes_unchanged_but_for_the_cost(entry: dict[str, Any], size: int) -> None:
    stream = recording(entry)
    pipeline = Pipeline(APIS[entry["api"]], price=lambda usage: MARK)
    shown = b"".join(pipeline.feed(read) for read in reads(stream, size)) + pipeline.finish()
    plain = shown.replace(b"," + MARK, b"").replace(MARK, b"")
    assert plain.startswith(stream)
    assert plain[len(stream) :] in (b"", b"\n", b"\n\n", b"\r\n", b"\r\n\r\n")
    # Where usage was reported it was priced, unless it only came as a running total.
    if pipeline.usage is None:
        assert shown == plain


@STREAMS
def test_splitting_a_recording_gives_its_events(entry: dict[str, Any]) -> None:
    stream = recording(entry)
    splitter, decoder = SSESplitter(), SSEDecoder()
    raw = [event for read in reads(stream, 1000) for event in splitter.feed(read)] + [splitter.finish()]
    assert b"".join(raw).startswith(stream.removeprefix(BOM))
    decoded = [event for read in reads(stream, 1000) for event in decoder.feed(read)]
    # The manifest leaves out a last event without its blank line.
    assert len(decoded) == entry["events"]


CHATS = pytest.mark.parametrize(
    "entry",
    [entry for entry in listed("manifest.jsonl") if entry["api"] == "chat.completions"]
    or [pytest.param({}, id="none")],
    ids=lambda entry: entry["file"],
)


@CHATS
def test_a_recorded_chat_folds(entry: dict[str, Any]) -> None:
    completion = json.loads(fold_chat(recording(entry)))
    assert completion["choices"]
