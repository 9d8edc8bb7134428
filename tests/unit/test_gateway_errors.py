"""What a client is told when an upstream fails before anything was sent."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.front import FakeFault
from sluicegate import _core
from sluicegate.gateway.errors import _STATUS_OF_KIND, all_resting, error_reply, from_fault, refused
from sluicegate.gateway.rights import Refusal
from sluicegate.testing.faults import error_of


def body(fault: FakeFault, **options: bool) -> dict[str, object]:
    error = json.loads(from_fault(fault, **options).body)["error"]
    assert isinstance(error, dict)
    return error


def test_every_kind_of_fault_has_its_status() -> None:
    assert set(_STATUS_OF_KIND) | {"status"} == set(_core.FAULT_KINDS)


# What could not be translated is the client's fault, no upstream's: `test_gateway_apis`.
@pytest.mark.parametrize("kind", sorted(_STATUS_OF_KIND.keys() - {"untranslatable"}))
def test_a_fault_is_told_in_the_protocols_shape(kind: str) -> None:
    reply = from_fault(FakeFault(kind, message="upstream 'local' did something"))
    error = json.loads(reply.body)["error"]
    assert sorted(error) == ["code", "message", "param", "type"]
    assert error["code"] == reply.code == kind
    assert error["message"] == "Upstream 'local' did something."
    blames = {
        "shutdown": "server_error",
        "internal": "server_error",
        "client_timeout": "invalid_request_error",
    }
    assert error["type"] == blames.get(kind, "upstream_error")
    assert 500 <= reply.status <= 504


def test_deadlines_are_504_and_broken_replies_502() -> None:
    assert {kind for kind, status in _STATUS_OF_KIND.items() if status == 504} == {
        kind for kind in _core.FAULT_KINDS if kind.endswith("_timeout")
    }


@pytest.mark.parametrize(
    ("seconds", "told", "waits"),
    [(0.0, (b"1", b"1"), True), (119.2, (b"120", b"119200"), True), (300.0, (b"300", b"300000"), False)],
)
def test_no_client_is_to_wait_by_itself_for_deployments_that_rest_for_minutes(
    seconds: float, told: tuple[bytes, bytes], waits: bool
) -> None:
    reply = all_resting("the model `m`", seconds, rate_limited=True)
    headers = dict(reply.headers)
    assert (headers[b"retry-after"], headers[b"retry-after-ms"]) == told
    assert headers.get(b"x-should-retry") == (None if waits else b"false")


@pytest.mark.parametrize(
    ("wait", "when"),
    [
        (0.2, "in 1 s"),
        (120.0, "in 120 s"),
        (121.0, "at 2026-11-23T18:02:01Z"),
        (636738.0, "at 2026-12-01T02:52:18Z"),
    ],
)
@pytest.mark.parametrize(
    ("resource", "code", "type"),
    [
        ("requests", "limit_exceeded", "requests"),
        ("tokens", "limit_exceeded", "tokens"),
        ("cost", "budget_exceeded", "insufficient_quota"),
    ],
)
def test_a_limit_of_ours_says_which_and_until_when_and_has_a_code_of_its_own(
    resource: str, code: str, type: str, wait: float, when: str
) -> None:
    name = "10 USD a month of the caller `search`"
    limit = SimpleNamespace(resource=resource, name=name)
    excess: Any = SimpleNamespace(limit=limit, wait=wait, never=False, used=3, headers=lambda form: [])
    now = datetime(2026, 11, 23, 18, tzinfo=UTC).timestamp()
    reply = refused(Refusal("limit", excess=excess), now)
    assert (reply.status, reply.code, reply.type, reply.limit) == (429, code, type, name)
    assert name in reply.message
    assert reply.message.endswith(f" {when}.")
    assert dict(reply.headers)[b"x-sluicegate-error"] == code.encode()
    assert code not in {error_of(429)["code"], error_of(429)["type"]}


def test_an_upstreams_error_object_is_passed_on_byte_for_byte() -> None:
    text = b'{ "error": {"message":"Rate limit", "type": "x", "code":"rate_limited", "extra":{"a":1} } }\n'
    headers = [(b"retry-after", b"7"), (b"content-type", b"application/problem+json")]
    reply = from_fault(FakeFault("status", status=429, body=text, headers=headers))
    assert (reply.status, reply.body, reply.code) == (429, text, "rate_limited")
    assert dict(reply.headers) == {b"content-type": b"application/json", b"retry-after": b"7"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"object":"error","message":"max_tokens is too large","code":400}', "max_tokens is too large"),
        (b'{"detail":"Not here"}', "Not here"),
        (b'{"detail":[{"loc":["body"],"msg":"missing"}]}', '[{"loc": ["body"], "msg": "missing"}]'),
        (b'{"error":"overloaded","error_type":"overloaded"}', "overloaded"),
    ],
)
def test_flat_errors_are_put_into_the_protocols_shape(text: bytes, message: str) -> None:
    error = body(FakeFault("status", status=422, body=text))
    assert error["message"] == message
    assert error["type"] == "upstream_error"


@pytest.mark.parametrize(
    "text",
    [b"<html>nginx</html>", b"", b'{"error": {"mess', b"[1]", b"null", b"\xff", b'{"error":{"a":' * 100_000],
)
def test_what_is_no_error_object_never_reaches_the_client(text: bytes) -> None:
    fault = FakeFault("status", message="upstream 'local' answered (500)", status=500, body=text)
    reply = from_fault(fault)
    assert reply.status == 500
    assert json.loads(reply.body)["error"]["message"] == "Upstream 'local' answered (500)."


@pytest.mark.parametrize("status", [401, 402, 403])
def test_the_gateways_own_credentials_are_not_the_clients_fault(status: int) -> None:
    text = b'{"error": {"message": "Incorrect API key provided: sk-abc*****xyz", "code": "invalid_api_key"}}'
    fault = FakeFault("status", status=status, body=text, headers=[(b"x-account", b"org-1")])
    reply = from_fault(fault)
    assert reply.status == 502
    assert reply.code == "upstream_authentication"
    assert b"sk-abc" not in reply.body
    assert b"org-1" not in b"".join(value for _, value in reply.headers)


def test_forwarded_credentials_are_the_clients_own() -> None:
    text = b'{"error": {"message": "Incorrect API key provided"}}'
    reply = from_fault(FakeFault("status", status=401, body=text), clients_credentials=True)
    assert (reply.status, reply.body) == (401, text)


@pytest.mark.parametrize("status", [301, 304, 600, 999])
def test_a_status_that_is_no_error_becomes_502(status: int) -> None:
    assert from_fault(FakeFault("status", status=status)).status == 502


def test_what_a_client_sent_comes_back_as_valid_json() -> None:
    reply = refused(Refusal("unknown_model", '"quoted"\n\ud800' + "x" * 10_000))
    message = json.loads(reply.body)["error"]["message"]
    assert '"quoted"' in message
    assert len(message) < 400


def test_an_error_of_ours_has_all_four_members() -> None:
    error = json.loads(error_reply(400, "No.").body)["error"]
    assert error == {"message": "No.", "type": "invalid_request_error", "code": None, "param": None}
