"""`SSESplitter` and `SSEDecoder`, on the cases that the core reads too, and at their bounds."""

from typing import Any

import pytest

import sluicegate
from sluicegate import EventTooLarge, ParseError, ServerSentEvent, SSEDecoder, SSESplitter
from stream_corpus import StreamCase, reads, stream_cases

CASES = pytest.mark.parametrize("case", stream_cases(), ids=lambda case: case.name)


def split(parts: list[bytes]) -> tuple[list[bytes], bytes]:
    splitter = SSESplitter()
    events = [event for part in parts for event in splitter.feed(part)]
    return events, splitter.finish()


def plain(event: ServerSentEvent) -> tuple[str, str, str]:
    return event.event, event.data, event.id


def decode(parts: list[bytes]) -> tuple[list[tuple[str, str, str]], ServerSentEvent | None]:
    decoder = SSEDecoder()
    events = [plain(event) for part in parts for event in decoder.feed(part)]
    return events, decoder.finish()


def every_cut(stream: bytes) -> list[list[bytes]]:
    halves = [[stream[:place], stream[place:]] for place in range(1, len(stream))]
    return [[stream], reads(stream, 1), *halves]


@CASES
def test_raw_events_are_the_same_wherever_the_stream_is_cut(case: StreamCase) -> None:
    # A CR at the very end may have been half of a CRLF: that event comes last.
    waits = bool(case.raw) and not case.tail and case.raw[-1].endswith(b"\r")
    raw = list(case.raw[:-1] if waits else case.raw)
    last = case.raw[-1] if waits else case.tail + case.terminator
    for parts in every_cut(case.stream):
        assert split(parts) == (raw, last)


@CASES
def test_decoded_events_are_the_same_wherever_the_stream_is_cut(case: StreamCase) -> None:
    for parts in every_cut(case.stream):
        events, last = decode(parts)
        assert tuple(events) == case.events
        assert last is None or case.tail


def test_an_event_at_the_end_without_its_blank_line_is_given() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"id: 7\nevent: x\ndata: a\ndata: b") == []
    last = decoder.finish()
    assert last is not None
    assert plain(last) == ("x", "a\nb", "7")
    assert decoder.finish() is None


def test_a_cr_ends_a_decoded_event_at_once() -> None:
    decoder = SSEDecoder()
    assert [event.data for event in decoder.feed(b"data: a\r\n\r")] == ["a"]
    assert [event.data for event in decoder.feed(b"\ndata: b\r\n\r\n")] == ["b"]
    assert decoder.finish() is None


def test_an_event_that_is_not_utf_8_is_replaced() -> None:
    [event] = SSEDecoder().feed(b"data: a\xff\xc3\nevent: \xfe\n\n")
    assert plain(event) == ("\ufffd", "a\ufffd\ufffd", "")


def test_an_event_shows_itself() -> None:
    [event] = SSEDecoder().feed(b'id: 1\ndata: say "hi"\n\n')
    assert repr(event) == r'ServerSentEvent(event="message", data="say \"hi\"", id="1")'


# === bounds ===

BOUND = 32
BEFORE = b"data: a\n\n: ping\n\ndata: b\r\n\r\n"
TOO_LARGE = BEFORE + b"data: " + b"x" * 100 + b"\n\ndata: c\n\n"


def until_error(machine: SSESplitter | SSEDecoder, parts: list[bytes]) -> tuple[list[Any], ParseError]:
    given: list[Any] = []
    try:
        for part in parts:
            given += machine.feed(part)
        machine.finish()
    except ParseError as error:
        return given, error
    pytest.fail("nothing was raised")


@pytest.mark.parametrize("size", [1, 2, 7, 30, 31, 64, 1000])
@pytest.mark.parametrize(("machine", "count"), [(SSESplitter, 3), (SSEDecoder, 2)])
def test_what_came_before_a_large_event_is_given_and_then_the_error(
    machine: type[SSESplitter | SSEDecoder], count: int, size: int
) -> None:
    reader = machine(max_event_bytes=BOUND)
    given, error = until_error(reader, reads(TOO_LARGE, size))
    assert len(given) == count
    assert type(error) is EventTooLarge
    assert error.offset == len(BEFORE) + BOUND
    # It stays failed.
    for _ in range(2):
        assert until_error(reader, [b"data: d\n\n"])[1].args == error.args
        assert until_error(reader, [])[1].args == error.args


def test_the_end_of_the_stream_raises_what_the_last_read_did_not() -> None:
    splitter = SSESplitter(max_event_bytes=BOUND)
    assert splitter.feed(TOO_LARGE) == [b"data: a\n\n", b": ping\n\n", b"data: b\r\n\r\n"]
    with pytest.raises(EventTooLarge):
        splitter.finish()


def test_an_event_of_exactly_the_bound_is_not_too_large() -> None:
    event = b"data: " + b"x" * (BOUND - 8) + b"\n\n"
    assert SSESplitter(max_event_bytes=BOUND).feed(event) == [event]
    with pytest.raises(EventTooLarge):
        SSESplitter(max_event_bytes=BOUND - 1).feed(event)


def test_events_are_bounded_without_being_told_to_be() -> None:
    given, error = until_error(SSESplitter(), [bytes(1 << 20)] * 17)
    assert given == []
    assert (type(error), error.offset) == (EventTooLarge, 16 << 20)


@pytest.mark.parametrize("machine", ["SSESplitter", "SSEDecoder", "UsageMeter"])
@pytest.mark.parametrize(
    "data", ["text", 7, None, memoryview(b"data: a\n\n")], ids=["str", "int", "None", "memoryview"]
)
def test_only_bytes_are_taken(machine: str, data: object) -> None:
    with pytest.raises(TypeError):
        getattr(sluicegate, machine)().feed(data)
