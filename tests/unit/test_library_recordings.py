"""Recorded streams of real providers, where `SLUICEGATE_CORPUS` points to them."""

import json
from typing import Any

import pytest

from harness import needed
from recordings import APIS, CORPUS, listed, normal_form, recording
from sluicegate import SSEDecoder, SSESplitter, Usage, UsageMeter, fold_chat
from sluicegate._core import Pipeline
from stream_corpus import BOM, reads

SIZES = pytest.mark.parametrize("size", [1, 100, 16_384])


pytestmark = pytest.mark.skipif(CORPUS is None, reason=needed.RECORDINGS)
STREAMS = pytest.mark.parametrize(
    "entry", listed("manifest.jsonl") or [{"file": "none"}], ids=lambda entry: entry["file"]
)
EXPECTED = pytest.mark.parametrize(
    "entry", listed("expected.jsonl") or [{"file": "none"}], ids=lambda entry: entry["file"]
)


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
