"""`SSEDecoder` beside decoders that others wrote, over streams that all of them read alike.

Left out is where they depart from the standard: events without data, which both dispatch, and which an id
makes of each blank line after it (`openai-python#2722`); a byte-order mark, which they take for a part of
the first field's name; and bytes that are not UTF-8, on which the openai package fails.
"""

import httpx
from httpx_sse import EventSource
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai._streaming import SSEDecoder as OpenAIDecoder

from sluicegate import SSEDecoder
from stream_corpus import cut

VALUES = st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=12)
NAMES = VALUES.filter(lambda name: name not in ("", "message"))
FIELDS = st.one_of(
    VALUES.map(lambda value: f"data: {value}"),
    VALUES.map(lambda value: f"data:{value}"),
    NAMES.map(lambda name: f"event: {name}"),
    VALUES.map(lambda comment: f":{comment}"),
    st.sampled_from(["data", "unknown: 1", "unknown", " data: x", "Data: x"]),
)
# What a value may begin with is a space, and one is dropped: `id` and `retry` have no such choice here.
NUMBERED = st.builds(lambda number, value: [f"id: {number}", f"data: {value}"], st.integers(0, 99), VALUES)
EVENTS = st.lists(FIELDS, max_size=4).map(lambda fields: [*fields, "data: end"])


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    plain = draw(st.lists(EVENTS, max_size=5))
    # An id stays: behind it, an event without data would be given by the others.
    events = plain + draw(st.lists(NUMBERED, max_size=2))
    ending = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    return "".join(ending.join([*event, "", ""]) for event in events).encode()


def ours(parts: list[bytes]) -> list[tuple[str, str, str]]:
    decoder = SSEDecoder()
    events = [event for part in parts for event in decoder.feed(part)]
    last = decoder.finish()
    assert last is None
    return [(event.event, event.data, event.id) for event in events]


PROPERTY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
PLACES = st.lists(st.integers(0, 1 << 20), max_size=8)


@PROPERTY
@given(streams(), PLACES)
def test_httpx_sse_reads_the_same(stream: bytes, places: list[int]) -> None:
    parts = cut(stream, places)
    head = {"content-type": "text/event-stream"}
    events = EventSource(httpx.Response(200, headers=head, content=iter(parts))).iter_sse()
    assert ours(parts) == [(event.event or "message", event.data, event.id) for event in events]


@PROPERTY
@given(streams(), PLACES)
def test_the_openai_package_reads_the_same(stream: bytes, places: list[int]) -> None:
    parts = cut(stream, places)
    events = OpenAIDecoder().iter_bytes(iter(parts))
    theirs = [(event.event or "message", event.data, event.id or "") for event in events]
    assert ours(parts) == theirs
