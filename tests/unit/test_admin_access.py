"""Who may ask the admin API, under which names, and how it answers whoever may not."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sluicegate.admin import Guard, HostRule, Identity, Tokens
from sluicegate.admin.access import FAILURE_SECONDS, FAILURES, Failures
from sluicegate.admin.answers import Answered, answer
from sluicegate.admin.asking import MOST_BODY_BYTES, AskedBody, Paged, Text, body, no_body, parameters
from sluicegate.telemetry import Log

OPERATOR, VIEWER = "operator-token-0001", "viewer-token-00001"
TOKENS = Tokens([(OPERATOR, Identity("ops", "operate")), (VIEWER, Identity("scraper", "view"))])
HOST = "127.0.0.1:9464"


# === tokens ===


def test_a_token_stands_for_one_identity() -> None:
    assert TOKENS.identify(OPERATOR) == Identity("ops", "operate")
    assert TOKENS.identify(VIEWER) == Identity("scraper", "view")
    for wrong in ("", OPERATOR[:-1], OPERATOR + "x", OPERATOR.upper(), "tök€n", "\udcff"):
        assert TOKENS.identify(wrong) is None


def test_no_token_is_kept() -> None:
    assert OPERATOR not in repr(vars(TOKENS))


def test_failures_count_by_address_and_are_forgotten() -> None:
    now = 1000.0
    failures = Failures(lambda: now)
    for _ in range(FAILURES - 1):
        failures.add("10.0.0.1")
    assert failures.wait("10.0.0.1") == 0
    now += 10
    failures.add("10.0.0.1")
    assert failures.wait("10.0.0.1") == FAILURE_SECONDS - 10
    assert failures.wait("10.0.0.2") == 0
    now += FAILURE_SECONDS - 10
    assert failures.wait("10.0.0.1") == 0
    for _ in range(FAILURES - 1):
        failures.add("10.0.0.1")
    assert failures.wait("10.0.0.1") == 10, "the one of ten seconds later still counts"


def test_an_ipv6_network_counts_as_one_address() -> None:
    failures = Failures(lambda: 0.0)
    for number in range(FAILURES):
        failures.add(f"2001:db8::{number + 1}")
    assert failures.wait("2001:db8::ffff") > 0
    assert failures.wait("2001:db8:0:1::1") == 0


def test_the_addresses_that_are_remembered_are_bounded() -> None:
    failures = Failures(lambda: 0.0)
    for number in range(30_000):
        failures.add(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(failures._times) == 10_000


# === names ===

LOCAL = HostRule("127.0.0.1", ["127.0.0.1", "Admin.Example"])
EVERYWHERE = HostRule("0.0.0.0", ["0.0.0.0"])
SIX = HostRule("2001:db8::5", ["2001:db8::5"])


@pytest.mark.parametrize(
    ("rule", "host", "accepted"),
    [
        (LOCAL, "127.0.0.1:9464", True),
        (LOCAL, "127.0.0.1", True),
        (LOCAL, "localhost:1", True),
        (LOCAL, "LOCALHOST", True),
        (LOCAL, "admin.example", True),
        (LOCAL, "evil.example", False),
        (LOCAL, "127.0.0.1.evil.example", False),
        (LOCAL, "localhost.evil.example:9464", False),
        (LOCAL, "admin.example.evil.example", False),
        (LOCAL, "evil.example:127.0.0.1", False),
        (LOCAL, "user@127.0.0.1", False),
        (LOCAL, "127.0.0.1:9464@evil.example", False),
        (LOCAL, "10.0.0.1", False),
        (LOCAL, "[::1]", False),
        (LOCAL, "", False),
        (LOCAL, "127.0.0.1:", False),
        (LOCAL, "127.0.0.1:port", False),
        (LOCAL, "127.1", False),
        (LOCAL, " 127.0.0.1", False),
        (LOCAL, "x" * 10_000, False),
        (EVERYWHERE, "10.0.0.1:80", True),
        (EVERYWHERE, "[2001:db8::1]:80", True),
        (EVERYWHERE, "localhost", True),
        (EVERYWHERE, "evil.example", False),
        (SIX, "[2001:db8::5]:9464", True),
        (SIX, "[2001:0db8:0:0::5]", True),
        (SIX, "[2001:db8::6]", False),
        (SIX, "2001:db8::5", False),
        (SIX, "localhost", False),
    ],
)
def test_hosts(rule: HostRule, host: str, accepted: bool) -> None:
    assert rule.accepts(host) is accepted


# === the guard, and what is asked ===


class Change(AskedBody):
    name: Text
    count: int = 1


class Quiet:
    """A log that nobody reads, and what it would have said."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []

    def warning(self, event: str, **fields: Any) -> None:
        self.said.append((event, fields))

    error = warning


async def _list(request: Request) -> Response:
    return answer({"limit": parameters(request, Paged).limit})


async def _change(request: Request) -> Response:
    changed: BaseModel = await body(request, Change)
    return answer(changed.model_dump())


async def _plain(request: Request) -> Response:
    await no_body(request)
    return answer({})


async def _slow(request: Request) -> Response:
    await asyncio.sleep(30)
    return answer({})


async def _break(request: Request) -> Response:
    raise ValueError("secret-in-a-message")


async def _refused(request: Request, error: Any) -> Response:
    refused: Answered = error
    return refused.response()


def application() -> Starlette:
    return Starlette(
        routes=[
            Route("/healthz", _plain),
            Route("/list", _list),
            Route("/list", _change, methods=["POST"]),
            Route("/plain", _plain, methods=["POST"]),
            Route("/break", _break),
            Route("/slow", _slow),
        ],
        exception_handlers={Answered: _refused},
    )


@pytest.fixture
def log() -> Quiet:
    return Quiet()


@pytest.fixture
def wrong_tokens() -> list[None]:
    return []


@pytest.fixture
async def client(log: Quiet, wrong_tokens: list[None]) -> AsyncIterator[httpx.AsyncClient]:
    said: Any = log
    guarded: Log = said
    guard: Any = Guard(
        application(), guarded, hosts=LOCAL, tokens=TOKENS, refused=lambda: wrong_tokens.append(None)
    )
    transport = httpx.ASGITransport(guard, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as made:
        made.headers["authorization"] = f"Bearer {OPERATOR}"
        yield made


def code(response: httpx.Response) -> str:
    found = response.json()["error"]
    assert found.keys() == {"message", "type", "code", "param"}
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert not [name for name in response.headers if name.startswith("access-control")]
    assert isinstance(found["code"], str)
    return found["code"]


async def test_roles(client: httpx.AsyncClient) -> None:
    assert (await client.get("/list")).json() == {"limit": 100}
    assert (await client.post("/list", json={"name": "a"})).json() == {"name": "a", "count": 1}
    viewer = {"authorization": f"bearer {VIEWER}"}
    assert (await client.get("/list", headers=viewer)).status_code == 200
    refused = await client.post("/list", json={"name": "a"}, headers=viewer)
    assert (refused.status_code, code(refused)) == (403, "not_allowed")


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer ", OPERATOR, f"Basic {OPERATOR}", f"Bearer {OPERATOR}x"]
)
async def test_wrong_tokens(client: httpx.AsyncClient, authorization: str, log: Quiet) -> None:
    refused = await client.get("/list", headers={"authorization": authorization})
    assert (refused.status_code, code(refused)) == (401, "invalid_token")
    assert refused.headers["www-authenticate"] == "Bearer"
    assert OPERATOR not in refused.text + json.dumps(log.said)


async def test_no_token_is_no_failure(client: httpx.AsyncClient) -> None:
    del client.headers["authorization"]
    for _ in range(FAILURES + 1):
        assert code(await client.get("/list")) == "invalid_token"
    assert (await client.get("/healthz")).status_code == 200


async def test_wrong_tokens_lock_out_nobody_who_has_a_right_one(
    client: httpx.AsyncClient, log: Quiet, wrong_tokens: list[None]
) -> None:
    wrong = {"authorization": "Bearer no-such-token-at-all"}
    for _ in range(FAILURES):
        assert (await client.get("/list", headers=wrong)).status_code == 401
    for _ in range(3):
        late = await client.get("/list", headers=wrong)
        assert (late.status_code, code(late)) == (429, "too_many_failures")
        assert 0 < int(late.headers["retry-after"]) <= FAILURE_SECONDS
    assert (await client.get("/list", headers={"authorization": f"Bearer {VIEWER}"})).status_code == 200
    assert (await client.get("/healthz")).status_code == 200
    assert len(wrong_tokens) == FAILURES + 3, "each is counted"
    assert [event for event, _ in log.said] == ["admin_token_refused"] * FAILURES, "and guessing fills no log"


async def test_a_page_of_another_site(client: httpx.AsyncClient) -> None:
    for path in ("/list", "/healthz"):
        refused = await client.get(path, headers={"host": "evil.example"})
        assert (refused.status_code, code(refused)) == (421, "wrong_host")


async def test_long_urls(client: httpx.AsyncClient) -> None:
    refused = await client.get("/list", params={"limit": "1" * 9000})
    assert (refused.status_code, code(refused)) == (414, "url_too_long")


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "limit=1&limit=2", "other=1", "limit=", "limit=1.5"]
)
async def test_wrong_parameters(client: httpx.AsyncClient, query: str) -> None:
    refused = await client.get(f"/list?{query}")
    assert (refused.status_code, code(refused)) == (400, "invalid_parameter")
    assert refused.json()["error"]["param"] == query.partition("=")[0]


@pytest.mark.parametrize(
    ("sent", "param"),
    [
        (b"", None),
        (b"{", None),
        (b"[]", None),
        (b'{"name": ""}', "name"),
        (b'{"name": 1}', "name"),
        (b'{"name": "a", "count": "1"}', "count"),
        (b'{"name": "a", "count": true}', "count"),
        (b'{"name": "a", "other": 1}', "other"),
        (b'{"name": "' + b"a" * 513 + b'"}', "name"),
        (b'{"name": "a\\n"}', "name"),
        (b'{"name": "\xff"}', None),
        (b'{"name": ' + b"[" * 30_000, None),
    ],
)
async def test_wrong_bodies(client: httpx.AsyncClient, sent: bytes, param: str | None) -> None:
    refused = await client.post("/list", content=sent, headers={"content-type": "application/json"})
    assert (refused.status_code, code(refused)) == (400, "invalid_body")
    assert refused.json()["error"]["param"] == param


async def test_bodies_have_a_type_and_a_bound(client: httpx.AsyncClient) -> None:
    plain = await client.post("/list", content=b'{"name": "a"}', headers={"content-type": "text/plain"})
    assert (plain.status_code, code(plain)) == (415, "invalid_body")
    large = await client.post("/list", json={"name": "a" * MOST_BODY_BYTES})
    assert (large.status_code, code(large)) == (413, "request_too_large")
    assert (await client.post("/plain", json={})).status_code == 200
    assert code(await client.post("/plain", json={"x": 1})) == "invalid_body"


async def test_a_body_that_does_not_come(monkeypatch: pytest.MonkeyPatch, client: httpx.AsyncClient) -> None:
    monkeypatch.setattr("sluicegate.admin.asking.BODY_SECONDS", 0.01)

    async def parts() -> AsyncIterator[bytes]:
        yield b'{"name": '
        await asyncio.sleep(30)

    late = await client.post("/list", content=parts(), headers={"content-type": "application/json"})
    assert (late.status_code, code(late)) == (408, "body_too_slow")


async def test_what_takes_too_long(monkeypatch: pytest.MonkeyPatch, client: httpx.AsyncClient) -> None:
    monkeypatch.setattr("sluicegate.admin.guard.SECONDS", 0.01)
    late = await client.get("/slow")
    assert (late.status_code, code(late)) == (503, "timeout")


async def test_what_breaks_is_logged_and_tells_nothing(client: httpx.AsyncClient, log: Quiet) -> None:
    broken = await client.get("/break")
    assert broken.status_code == 500
    assert "secret-in-a-message" not in broken.text
    [(event, fields)] = log.said
    assert event == "unhandled"
    assert "secret-in-a-message" not in str(fields)
