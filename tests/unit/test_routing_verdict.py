"""The table of outcomes: what each says of a deployment, and whether the request may be tried again."""

import json
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from fakes.front import FakeFault, FakeOutcome
from sluicegate import _core
from sluicegate.routing.stated import MOST, seconds_stated
from sluicegate.routing.verdict import Effect, lacks_model, verdict_at_end, verdict_of

WALL = 1_790_000_000.0
STATED = [(b"retry-after", b"7")]
MODEL_MISSING = b'{"error":{"message":"The model `m` does not exist.","code":"model_not_found"}}'

S, F, U, B, R, N = (
    Effect.SUCCESS, Effect.FAILURE, Effect.UNREACHABLE, Effect.BUSY, Effect.REFUSED, Effect.NOTHING,
)  # fmt: skip

# Kind: effect, another deployment, the same again.
KINDS = {
    "connect": (U, True, True),
    "connect_timeout": (U, True, True),
    "reset": (U, True, True),
    "protocol": (F, True, False),
    "first_byte_timeout": (F, True, False),
    "first_token_timeout": (F, True, False),
    "between_tokens_timeout": (F, True, False),
    "empty": (F, True, False),
    "truncated": (F, True, False),
    "in_band_error": (F, True, False),
    "decode": (F, True, False),
    "untranslatable": (N, True, False),
    "total_timeout": (N, False, False),
    "client_timeout": (N, False, False),
    "too_large": (N, False, False),
    "shutdown": (N, False, False),
    "internal": (N, False, False),
}

# Status: the same without a stated wait.
STATUSES = {
    301: (S, False, False),
    400: (S, False, False),
    401: (R, True, False),
    402: (R, True, False),
    403: (F, True, False),
    404: (S, True, False),
    405: (S, False, False),
    408: (S, True, False),
    409: (S, True, False),
    413: (S, False, False),
    422: (S, False, False),
    425: (S, True, False),
    429: (B, True, True),
    500: (F, True, False),
    501: (S, True, False),
    502: (F, True, False),
    503: (F, True, True),
    504: (F, True, False),
    529: (F, True, False),
    599: (F, True, False),
}


@pytest.mark.parametrize("kind", sorted(set(_core.FAULT_KINDS) - {"status"}))
def test_each_kind_of_fault_has_its_row(kind: str) -> None:
    verdict = verdict_of(FakeFault(kind), WALL)
    assert (verdict.effect, verdict.elsewhere, verdict.again) == KINDS[kind]
    assert verdict.reason == kind


@pytest.mark.parametrize(("status", "row"), STATUSES.items())
def test_each_status_has_its_row(status: int, row: tuple[Effect, bool, bool]) -> None:
    verdict = verdict_of(FakeFault("status", status=status), WALL)
    assert (verdict.effect, verdict.elsewhere, verdict.again) == row
    assert verdict.wait is None


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"Request too large for gpt-4o in organization o on tokens per min (TPM): Limit '
        b'30000, Requested 36000.","type":"tokens","code":"rate_limit_exceeded"}}',
        b'{"error":"Request too large"}',
    ],
)
def test_a_request_that_is_too_large_for_an_account_says_nothing_of_the_deployment(body: bytes) -> None:
    assert verdict_of(FakeFault("status", status=429, body=body), WALL)[:3] == (N, True, False)
    other = b'{"error":"Too many requests"}'
    assert verdict_of(FakeFault("status", status=429, body=other), WALL).effect is B


@pytest.mark.parametrize("status", [429, 503, 529])
def test_who_is_too_busy_says_for_how_long(status: int) -> None:
    verdict = verdict_of(FakeFault("status", status=status, headers=STATED), WALL)
    assert (verdict.effect, verdict.elsewhere, verdict.again) == (B, True, True)
    assert verdict.wait == 7.0


def test_a_missing_model_is_ours_to_mend() -> None:
    fault = FakeFault("status", status=404, body=MODEL_MISSING)
    assert verdict_of(fault, WALL)[:4] == (R, True, False, "model_not_found")
    assert verdict_of(fault, WALL, own_model=False).effect is S


@pytest.mark.parametrize("status", [401, 402, 403, 429])
def test_a_clients_own_account_says_nothing_of_the_deployment(status: int) -> None:
    verdict = verdict_of(FakeFault("status", status=status, headers=STATED), WALL, own_account=False)
    assert verdict.effect is N
    assert verdict.elsewhere


@pytest.mark.parametrize(
    ("status", "row"),
    [
        (None, (F, True, False)),
        (502, (F, True, False)),
        (503, (F, True, False)),
        (529, (F, True, False)),
        (400, (S, False, False)),
        (401, (R, True, False)),
        (429, (B, True, True)),
    ],
)
def test_an_error_in_a_reply_is_judged_by_its_status(
    status: int | None, row: tuple[Effect, bool, bool]
) -> None:
    verdict = verdict_of(FakeFault("in_band_error", status=status), WALL)
    assert (verdict.effect, verdict.elsewhere, verdict.again) == row
    ended = verdict_at_end(FakeOutcome(fault=FakeFault("in_band_error", status=status)), WALL)
    assert (ended.effect, ended.elsewhere, ended.again) == (row[0], False, False)


def test_statuses_nobody_knows_share_a_reason() -> None:
    reasons = {verdict_of(FakeFault("status", status=status), WALL).reason for status in range(100, 1000)}
    assert len(reasons) == 11 + 9


@pytest.mark.parametrize("kind", sorted(set(_core.FAULT_KINDS) - {"status"}))
def test_what_ends_a_request_is_not_tried_again(kind: str) -> None:
    verdict = verdict_at_end(FakeOutcome(fault=FakeFault(kind)), WALL)
    assert (verdict.effect, verdict.elsewhere, verdict.again) == (KINDS[kind][0], False, False)


def test_a_client_that_leaves_says_nothing_of_the_deployment() -> None:
    for fault in (None, FakeFault("truncated"), FakeFault("status", status=500)):
        assert verdict_at_end(FakeOutcome(client_left=True, fault=fault), WALL).effect is N


def test_a_whole_reply_is_a_success_unless_the_engine_gave_it_up() -> None:
    for reason in ("stop", "length", None):
        assert verdict_at_end(FakeOutcome(finish_reason=reason), WALL).effect is S
    assert verdict_at_end(FakeOutcome(finish_reason="abort"), WALL).effect is F


@pytest.mark.parametrize(
    "error",
    [
        # OpenAI, vLLM, Anthropic, Ollama's own API, and one without an object.
        {"error": {"message": "…", "code": "model_not_found"}},
        {"object": "error", "message": "…", "type": "NotFoundError", "param": "model", "code": 404},
        {"error": {"message": "The model `m` does not exist.", "type": "NotFoundError"}},
        {"type": "error", "error": {"type": "not_found_error", "message": "model: m"}},
        {"error": 'model "m" not found, try pulling it first'},
    ],
)
def test_a_body_tells_that_a_model_is_missing(error: object) -> None:
    assert lacks_model(json.dumps(error).encode())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"Not Found",
        b'{"detail":"Not Found"}',
        b'{"error":{"message":"No such File object: model m"}}',
        b'{"error":{"message":["model"]}}',
        b'{"error":null}',
        b'["model"]',
        b"[" * 10_000,
        b'{"error":{"message":"model","x":"' + b"y" * 20_000 + b'"}}',
        b'\xff{"error":"model"}',
    ],
)
def test_what_else_is_missing_is_no_missing_model(body: bytes) -> None:
    assert not lacks_model(body)


def date(seconds: float) -> bytes:
    return format_datetime(datetime.fromtimestamp(WALL + seconds, UTC), usegmt=True).encode()


def instant(seconds: float) -> bytes:
    return datetime.fromtimestamp(WALL + seconds, UTC).isoformat().replace("+00:00", "Z").encode()


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([(b"retry-after", b"7")], 7.0),
        ([(b"Retry-After", b" 1.5 ")], 1.5),
        ([(b"retry-after", b"0")], 0.0),
        ([(b"retry-after", b"86400")], MOST),
        ([(b"retry-after", b"7"), (b"retry-after-ms", b"250")], 0.25),
        ([(b"retry-after", date(30))], 30.0),
        ([(b"retry-after", date(-30))], 0.0),
        ([(b"x-ratelimit-remaining-requests", b"0"), (b"x-ratelimit-reset-requests", b"6m0s")], MOST),
        ([(b"x-ratelimit-remaining-tokens", b"0"), (b"x-ratelimit-reset-tokens", b"1m6.5s")], 66.5),
        ([(b"x-ratelimit-remaining-tokens", b"0"), (b"x-ratelimit-reset-tokens", b"12ms")], 0.012),
        ([(b"x-ratelimit-remaining-tokens", b"3"), (b"x-ratelimit-reset-tokens", b"12ms")], None),
        ([(b"x-ratelimit-remaining", b"0"), (b"x-ratelimit-reset", str(int(WALL) + 9).encode())], 9.0),
        ([(b"x-ratelimit-remaining", b"0"), (b"x-ratelimit-reset", b"9")], 9.0),
        (
            [
                (b"anthropic-ratelimit-tokens-remaining", b"0"),
                (b"anthropic-ratelimit-tokens-reset", instant(20)),
            ],
            20.0,
        ),
        (
            [
                (b"x-ratelimit-remaining-requests", b"0"),
                (b"x-ratelimit-reset-requests", b"2s"),
                (b"x-ratelimit-remaining-tokens", b"0"),
                (b"x-ratelimit-reset-tokens", b"5s"),
            ],
            5.0,
        ),
        ([(b"x-ratelimit-remaining-requests", b"0")], None),
        ([(b"retry-after", b"soon")], None),
        ([(b"retry-after", b"-5")], None),
        ([(b"retry-after", b"nan")], None),
        ([(b"retry-after", b"1e9")], None),
        ([(b"retry-after", b"Mon, 99 Jan 99999 99:99:99 GMT")], None),
        ([(b"retry-after", b"9" * 65)], None),
        ([(b"x-ratelimit-remaining-tokens", b"0"), (b"x-ratelimit-reset-tokens", b"1s tomorrow")], None),
        ([(b"retry-after", b"\xff\xfe")], None),
        ([], None),
    ],
)
def test_a_wait_is_read_as_it_is_stated(headers: list[tuple[bytes, bytes]], seconds: float | None) -> None:
    assert seconds_stated(headers, WALL) == (seconds if seconds is None else pytest.approx(seconds))
