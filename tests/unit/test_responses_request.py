"""A request for a response, as Python sees it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate import DocumentTooLarge, InvalidJSON, InvalidRequest, RequestRefused, TooDeep
from sluicegate._core import ResponsesRequest
from sluicegate.responses import given as given_items
from sluicegate.responses import is_reference


def test_what_routing_and_keeping_depend_on() -> None:
    body = b'{"model":"m","stream":true,"store":false,"background":true,"previous_response_id":"resp_1"}'
    request = ResponsesRequest(body)
    assert (request.model, request.stream, request.store, request.background) == ("m", True, False, True)
    assert (request.previous_response_id, request.body, request.size) == ("resp_1", body, len(body))
    request = ResponsesRequest(b"{}")
    assert (request.model, request.stream, request.store, request.background) == (None, False, True, False)
    assert request.previous_response_id is None


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", InvalidJSON),
        (b"[]", InvalidJSON),
        (b'{"input":"\xff"}', InvalidJSON),
        (b'{"store":"yes"}', InvalidRequest),
        (b'{"previous_response_id":1}', InvalidRequest),
        (b'{"input":' + b"[" * 1000 + b"]" * 1000 + b"}", TooDeep),
    ],
)
def test_what_is_no_request(body: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        ResponsesRequest(body)


def test_the_input_as_items() -> None:
    (item,) = map(json.loads, ResponsesRequest(b'{"input":"Hi"}').input_items("7a"))
    assert item == {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "Hi"}],
        "id": "msg_7ai0",
        "status": "completed",
    }
    with pytest.raises(RequestRefused, match="must be an object") as refused:
        ResponsesRequest(b'{"input":[5]}').input_items("7a")
    assert refused.value.param == "input[0]"


def test_earlier_items_come_first() -> None:
    request = ResponsesRequest(b'{"input":"?","previous_response_id":"resp_1","top_k":1.50}')
    longer = request.with_input_prefix([b'{"role":"user","content":"Hi"}'])
    assert longer.body == (
        b'{"top_k":1.50,"input":[{"role":"user","content":"Hi"},{"type":"message","role":"user","content":"?"}]}'
    )
    assert longer.previous_response_id == "resp_1"
    with pytest.raises(InvalidJSON):
        request.with_input_prefix([b"{"])
    with pytest.raises(DocumentTooLarge):
        request.with_input_prefix([b'"%s"' % (b"x" * (64 << 20))])


# === references ===

KEYS = st.sampled_from(["id", "type", "role", "content"])
VALUES = st.sampled_from([None, "item_reference", "message", "msg_1", 1, {"id": "x"}])
ITEMS = st.one_of(st.dictionaries(KEYS, VALUES, max_size=3), VALUES, st.just([{"id": "x"}]))


@given(st.one_of(st.lists(ITEMS, max_size=4), VALUES), st.booleans())
def test_a_reference_is_one_for_both_languages(input: object, escaped: bool) -> None:
    body = json.dumps({"id": "not in the input", "input": input}).encode()
    if escaped:
        body = body.replace(b'"id"', b'"\\u0069d"').replace(b"item_ref", b"item\\u005fref")
    found = any(map(is_reference, given_items({"input": input})))
    assert ResponsesRequest(body).refers is found


def test_what_refers_to_nothing_says_so() -> None:
    assert not ResponsesRequest(b'{"input":"item_reference"}').refers
    assert not ResponsesRequest(b'{"id":"x"}').refers
    assert ResponsesRequest(b'{"input":[{"role":"user","content":"x"},{"id":"msg_1"}]}').refers
