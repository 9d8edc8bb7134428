"""Properties: where bytes are cut changes nothing, what need not change does not, and nothing panics."""

import json
import re
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sluicegate import ParseError, SSEDecoder, SSESplitter, Usage, UsageMeter, fold_chat, unfold_chat
from sluicegate._core import Pipeline
from stream_corpus import BOM, completions, cut, stream_cases, usage_cases

Outcome = tuple[Any, ...]

# A busy machine is no failure.
property_of = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

PIECES = [
    *(case.stream for case in stream_cases()),
    *(case.stream() for case in usage_cases()),
    *(completion.stream for completion in completions("fold")),
    b"data: [DONE]\n\n",
    b": ping\n\n",
    b"data: {\n\n",
    b"\r",
    b"\n",
]
ENDINGS = st.sampled_from([b"\n", b"\r\n", b"\r"])
PLACES = st.lists(st.integers(0, 1 << 20), max_size=12)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """A few streams of the corpus behind one another, in one or several line endings, perhaps cut off."""
    pieces = draw(st.lists(st.sampled_from(PIECES), min_size=1, max_size=5))
    stream = b"".join(piece.replace(b"\n", draw(ENDINGS)) for piece in pieces)
    return stream[: draw(st.integers(0, len(stream)))] if draw(st.booleans()) else stream


NOISE = st.one_of(
    st.binary(max_size=200),
    st.lists(
        st.sampled_from(
            [*b'{}[]:,"\\\r\n 07-.eu\xff\xef\xbb\xbf', b"data:", b"usage", b'"usage":{', b'{"choices":[']
        ).map(lambda piece: piece if isinstance(piece, bytes) else bytes([piece])),
        max_size=60,
    ).map(b"".join),
)


def outcome(calls: list[Callable[[], Any]]) -> Outcome:
    """What calls gave, one after the other, and the error that ended them."""
    given: list[Any] = []
    for call in calls:
        try:
            given.append(call())
        except ParseError as error:
            return given, type(error), error.args
    return given, None, None


def split(parts: list[bytes], bound: int | None) -> Outcome:
    splitter = SSESplitter(max_event_bytes=bound)
    given, *error = outcome([lambda part=part: splitter.feed(part) for part in parts] + [splitter.finish])
    events = [event for batch in given if isinstance(batch, list) for event in batch]
    return events, *error, None if error[0] else given[-1]


def decode(parts: list[bytes], bound: int | None) -> Outcome:
    decoder = SSEDecoder(max_event_bytes=bound)
    given, *error = outcome([lambda part=part: decoder.feed(part) for part in parts] + [decoder.finish])
    last = [] if error[0] or given[-1] is None else [given.pop()]
    events = [event for batch in given for event in batch or []] + last
    return [(event.event, event.data, event.id) for event in events], *error


def counts(usage: Usage | None) -> dict[str, int | str] | None:
    return usage.as_dict() if usage else None


def meter(parts: list[bytes], bound: int | None) -> Outcome:
    machine = UsageMeter(max_event_bytes=bound)
    _, *error = outcome([lambda part=part: machine.feed(part) for part in parts] + [machine.finish])
    return *error, counts(machine.usage)


MARK = b'"sluice_cost":1'


def priced(usage: Usage) -> bytes:
    return MARK


def pipe(parts: list[bytes], *options: Any, **named: Any) -> Outcome:
    machine = Pipeline(*options, **named)
    given, *error = outcome([lambda part=part: machine.feed(part) for part in parts] + [machine.finish])
    return b"".join(given), *error, counts(machine.usage), machine.truncated


@property_of
@given(streams(), PLACES, st.sampled_from([None, 20, 100, 1000]))
def test_splitting_does_not_depend_on_the_cuts(stream: bytes, places: list[int], bound: int | None) -> None:
    whole = split([stream], bound)
    assert split(cut(stream, places), bound) == whole
    events, error, _, last = whole
    if error is None:
        shown = b"".join(events) + last
        assert shown.startswith(stream.removeprefix(BOM))
        assert len(shown) - len(stream) <= 4
    else:
        assert stream.removeprefix(BOM).startswith(b"".join(events))


@property_of
@given(streams(), PLACES, st.sampled_from([None, 20, 100, 1000]))
def test_decoding_does_not_depend_on_the_cuts(stream: bytes, places: list[int], bound: int | None) -> None:
    assert decode(cut(stream, places), bound) == decode([stream], bound)


@property_of
@given(streams(), PLACES, st.sampled_from([None, 100, 1000]))
def test_counting_does_not_depend_on_the_cuts(stream: bytes, places: list[int], bound: int | None) -> None:
    assert meter(cut(stream, places), bound) == meter([stream], bound)


BEGINS_EVENTS = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*(?::|(?:data|event|id|retry):)")
APIS = st.sampled_from(["chat", "completions", "embeddings", "responses", "messages", "other"])


@property_of
@given(streams(), PLACES, APIS, st.booleans(), st.booleans())
def test_a_reply_does_not_depend_on_the_cuts(
    stream: bytes, places: list[int], api: str, hides: bool, asks: bool
) -> None:
    options = {"hide_usage_chunk": hides, "price": priced if asks else MARK}
    assert pipe(cut(stream, places), api, **options) == pipe([stream], api, **options)


@property_of
@given(streams(), PLACES, APIS)
def test_a_reply_is_what_came_but_for_the_price(stream: bytes, places: list[int], api: str) -> None:
    # A document would be made a stream for this client.
    assume(not stream.removeprefix(BOM).lstrip().startswith((b"{", b"[")))
    parts = cut(stream, places)
    plain, error, *_ = pipe(parts, api)
    if error is not None:
        # What does not begin as an event stream does is no reply.
        assert error is ParseError
        assert plain == b""
        assert not BEGINS_EVENTS.match(stream)
        return
    assert plain.startswith(stream)
    assert plain[len(stream) :] in (b"", b"\n", b"\r", b"\n\n", b"\r\r", b"\r\n", b"\r\n\r\n", b"\n\r\n")
    shown, *_ = pipe(parts, api, price=priced)
    assert shown.replace(b"," + MARK, b"").replace(MARK, b"") == plain


@property_of
@given(NOISE, PLACES, st.booleans())
def test_noise_is_no_reason_to_panic(noise: bytes, places: list[int], streams: bool) -> None:
    parts = cut(noise, places)
    assert split(parts, 50) == split([noise], 50)
    assert decode(parts, 50) == decode([noise], 50)
    assert meter(parts, 50) == meter([noise], 50)
    for api in ("chat", "responses", "messages"):
        given_back = pipe(parts, api, streams=streams, price=priced)
        assert given_back == pipe([noise], api, streams=streams, price=priced)
    outcome([lambda: fold_chat(noise), lambda: unfold_chat(noise, include_usage=True)])


# === completions and their streams ===

TEXT = st.text(max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 60), 1 << 60) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
UNKNOWN = st.dictionaries(st.sampled_from(["x_vendor", "service_tier", "größe", "a b"]), JSON, max_size=2)


@st.composite
def tool_calls(draw: st.DrawFn) -> list[dict[str, Any]]:
    count = draw(st.integers(1, 3))
    return [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": draw(st.sampled_from(["f", "get_weather"])), "arguments": draw(TEXT)},
        }
        for number in range(count)
    ]


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": draw(st.none() | TEXT)}
    for name in ("reasoning_content", "refusal"):
        if draw(st.booleans()):
            message[name] = draw(st.none() | TEXT)
    if draw(st.booleans()):
        message["tool_calls"] = draw(tool_calls())
    return message


@st.composite
def whole_completions(draw: st.DrawFn) -> dict[str, Any]:
    finish = st.sampled_from(["stop", "length", "tool_calls", "content_filter"])
    choices = [
        {"index": index, "message": draw(messages()), "finish_reason": draw(finish)}
        for index in range(draw(st.integers(1, 3)))
    ]
    used = draw(st.integers(0, 1 << 40))
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": draw(TEXT),
        **draw(UNKNOWN),
        "choices": choices,
        "usage": {"prompt_tokens": used, "completion_tokens": 1, "total_tokens": used + 1},
    }


@property_of
@given(whole_completions())
def test_folding_undoes_unfolding(completion: dict[str, Any]) -> None:
    stream = unfold_chat(json.dumps(completion, ensure_ascii=False).encode(), include_usage=True)
    assert json.loads(fold_chat(stream)) == completion
