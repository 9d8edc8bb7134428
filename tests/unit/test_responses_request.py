"""A request for a response, as Python sees it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate import DocumentTooLarge, InvalidJSON, InvalidRequest, TooDeep
from sluicegate._core import ResponsesRequest, find_items, item_ids, list_items, repeated_items


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


def test_the_items_of_a_turn() -> None:
    turn = ("resp_7a", b'{"input":"Hi"}', b'{"output":[{"type":"x","id":"y"},5]}')
    message = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "Hi"}],
        "id": "msg_7ai0",
        "status": "completed",
    }
    assert item_ids(turn) == ["msg_7ai0", "y"]
    listed = json.loads(list_items([turn], False, None, 5) or b"")
    assert listed["data"] == [{"type": "x", "id": "y"}, message]
    assert list_items([turn], True, "z", 5) is None
    [(id, found)] = find_items(turn, ["msg_7ai0", "none"]).items()
    assert (id, json.loads(found)) == ("msg_7ai0", message)
    assert repeated_items([turn]) == b'{"type":"message","role":"user","content":"Hi"},{"type":"x","id":"y"}'


def test_earlier_items_come_first() -> None:
    request = ResponsesRequest(b'{"input":"?","previous_response_id":"resp_1","top_k":1.50}')
    longer = request.with_input_prefix(b'{"role":"user","content":"Hi"}')
    assert longer.body == (
        b'{"top_k":1.50,"input":[{"role":"user","content":"Hi"},{"type":"message","role":"user","content":"?"}]}'
    )
    assert longer.previous_response_id == "resp_1"
    with pytest.raises(InvalidJSON):
        request.with_input_prefix(b"{")
    with pytest.raises(DocumentTooLarge):
        request.with_input_prefix(b'"%s"' % (b"x" * (64 << 20)))


# === references ===

KEYS = st.sampled_from(["id", "type", "role", "content"])
VALUES = st.sampled_from([None, "item_reference", "message", "msg_1", 1, {"id": "x"}])
ITEMS = st.one_of(st.dictionaries(KEYS, VALUES, max_size=3), VALUES, st.just([{"id": "x"}]))


def is_reference(item: object) -> bool:
    """OpenAI's clients may leave the type out: an id and nothing else."""
    if not isinstance(item, dict):
        return False
    kind = item.get("type")
    return kind == "item_reference" or ("id" in item and item.keys() <= {"id", "type"} and kind is None)


@given(st.one_of(st.lists(ITEMS, max_size=4), VALUES), st.booleans())
def test_references_give_way_to_items(input: object, escaped: bool) -> None:
    body = json.dumps({"id": "not in the input", "input": input}).encode()
    if escaped:
        body = body.replace(b'"id"', b'"\\u0069d"').replace(b"item_ref", b"item\\u005fref")
    request = ResponsesRequest(body)
    found = [item["id"] if isinstance(item.get("id"), str) else "" for item in _references(input)]
    assert (request.refers, request.references) == (found != [], found)
    changed = json.loads(request.with_items({"msg_1": b'{"n":1}'}).body)["input"]
    if isinstance(input, list):
        assert changed == [
            {"n": 1} if is_reference(item) and item.get("id") == "msg_1" else item for item in input
        ]


def _references(input: object) -> list[dict[str, object]]:
    return [item for item in input if is_reference(item)] if isinstance(input, list) else []


def test_what_refers_to_nothing_says_so() -> None:
    assert not ResponsesRequest(b'{"input":"item_reference"}').refers
    assert not ResponsesRequest(b'{"id":"x"}').refers
    assert ResponsesRequest(b'{"input":[{"role":"user","content":"x"},{"id":"msg_1"}]}').refers
