"""`fold_chat` and `unfold_chat`, on the cases that the core reads too."""

import json

import pytest

from sluicegate import InvalidJSON, ParseError, SSESplitter, fold_chat, unfold_chat
from sluicegate._core import Pipeline
from stream_corpus import Completion, completions

FOLDED = pytest.mark.parametrize("case", completions("fold"), ids=lambda case: case.name)
UNFOLDED = pytest.mark.parametrize("case", completions("unfold"), ids=lambda case: case.name)
BOTH = pytest.mark.parametrize(
    "case", [*completions("fold"), *completions("unfold")], ids=lambda case: case.name
)


def test_there_are_cases() -> None:
    assert len(completions("fold")) > 10
    assert len(completions("unfold")) > 2


@FOLDED
def test_a_stream_folds_into_its_completion(case: Completion) -> None:
    assert fold_chat(case.stream) == case.completion


@UNFOLDED
def test_a_completion_unfolds_into_its_stream(case: Completion) -> None:
    assert unfold_chat(case.completion, include_usage=True) == case.stream


@BOTH
def test_folding_undoes_unfolding(case: Completion) -> None:
    stream = unfold_chat(case.completion, include_usage=True)
    assert json.loads(fold_chat(stream)) == json.loads(case.completion)


@BOTH
def test_usage_is_left_out_where_it_was_not_asked_for(case: Completion) -> None:
    stream = unfold_chat(case.completion, include_usage=False)
    chunks = [json.loads(event[6:]) for event in SSESplitter().feed(stream)[:-1]]
    assert all(chunk["choices"] and not chunk.get("usage") for chunk in chunks)
    assert stream.endswith(b"data: [DONE]\n\n")


@FOLDED
def test_a_pipeline_folds_for_a_client_that_did_not_ask_for_a_stream(case: Completion) -> None:
    pipeline = Pipeline(streams=False)
    folded = pipeline.feed(case.stream) + pipeline.finish()
    assert json.loads(folded) == json.loads(case.completion)


@pytest.mark.parametrize(
    ("completion", "offset"), [(b"", 0), (b"{", 1), (b"[]", 0), (b'{"a":1}x', 7), (b'{"a":"\xff"}', 6)]
)
def test_what_is_no_completion_cannot_be_unfolded(completion: bytes, offset: int) -> None:
    with pytest.raises(InvalidJSON) as raised:
        unfold_chat(completion, include_usage=True)
    assert raised.value.offset == offset


@pytest.mark.parametrize(
    "stream", [b"", b": ping\n\n", b"data: [DONE]\n\n", b'data: {"error":{"message":"no"}}\n\n']
)
def test_a_stream_without_a_completion_cannot_be_folded(stream: bytes) -> None:
    with pytest.raises(ParseError):
        fold_chat(stream)
