"""Who may do what: each state of a credential, each action, by each path on which it can be asked for.

`application` is also the way of any other ASGI server: what is relayed goes through the door there. The admin
API has tokens of its own, and takes no key in whatever state.
"""

import asyncio
import hashlib
import itertools
import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fakes.asgi import request
from fakes.front import FakeExchange, FakeOutcome
from fakes.gateway import Harness, Start
from harness.stored_stand import sse, upstream_events
from sluicegate._core import ENDPOINTS
from sluicegate.admin.access import Identity, Tokens
from sluicegate.admin.guard import Guard
from sluicegate.config import load_data
from sluicegate.errors import ConfigurationError
from sluicegate.gateway.rights import RIGHTS, RUN
from sluicegate.identity import KnownCaller, KnownKey, Snapshot, Terms
from sluicegate.routing import ModelTable
from sluicegate.telemetry import Log

WAIT_SECONDS = 30.0

LAB = "cal_0123456789abcdef"
ID = "abcdefghijkl"
KEY = "sk-of-the-database"
FILE_KEY = "sk-of-the-file"

RESPONSES = "/v1/responses"
BACKGROUND, CONTINUE, SHOW_MODEL = "responses, background", "responses, continued", "models, one"
"""Actions that are others' with something more to them."""

RELAYED = {name: path for path, name, _ in ENDPOINTS}

ON_STORED: Mapping[str, tuple[str, str]] = {
    "get_response": ("GET", "/{id}"),
    "list_input_items": ("GET", "/{id}/input_items"),
    "cancel_response": ("POST", "/{id}/cancel"),
    "delete_response": ("DELETE", "/{id}"),
}

ACTIONS = [
    "chat_completions", "completions", "embeddings", "moderations", "rerank", "responses", "messages",
    "count_tokens", "transcriptions", "translations", "speech", "image_generations", "image_edits",
    "image_variations", "score", "tokenize", "detokenize",
    *ON_STORED, "models", BACKGROUND, CONTINUE, SHOW_MODEL, RUN,
]  # fmt: skip
OF_RESPONSES = ["responses", *ON_STORED, BACKGROUND, CONTINUE, RUN]
WITH_MODEL = [action for action in ACTIONS if action not in ON_STORED and action != "models"]

ALLOWED = None


def row(default: str | None, *some: tuple[list[str], str | None]) -> dict[str, str | None]:
    cells: dict[str, str | None] = dict.fromkeys(ACTIONS, default)
    for actions, code in some:
        cells |= dict.fromkeys(actions, code)
    return cells


TABLE: Mapping[str, Mapping[str, str | None]] = {
    "valid": row(ALLOWED),
    # Its work has been asked for while none was needed.
    "none": row("invalid_api_key"),
    "unknown": row("invalid_api_key", ([RUN], "removed_api_key")),
    "disabled": row("caller_disabled"),
    "expired": row("expired_api_key"),
    "revoked": row("invalid_api_key", ([RUN], "revoked_api_key")),
    "narrowed to other models": row(ALLOWED, (WITH_MODEL, "model_not_allowed")),
    "narrowed to other endpoints": row(
        "endpoint_not_allowed", (["models", SHOW_MODEL, "embeddings"], ALLOWED)
    ),
    "narrowed to responses": row("endpoint_not_allowed", (["models", SHOW_MODEL, *OF_RESPONSES], ALLOWED)),
    "removed from the file": row("invalid_api_key", ([RUN], "removed_api_key")),
    "team lost": row("caller_disabled"),
}

REFUSALS = {code for cells in TABLE.values() for code in cells.values()} - {None}


def test_every_action_is_in_the_table(start_gateway: Start) -> None:
    gateway = start_gateway()
    app: Any = gateway.app
    served = {name for methods in app._endpoints.values() for name, _ in methods.values() if name}
    for path in (f"{RESPONSES}/resp_1", f"{RESPONSES}/resp_1/cancel", f"{RESPONSES}/resp_1/input_items"):
        served |= {name for name, _ in app._stored.methods(path).values()}
    assert served | {RUN} == RIGHTS.keys()
    assert RIGHTS.keys() == set(ACTIONS) - {BACKGROUND, CONTINUE, SHOW_MODEL}
    assert all(cells.keys() == set(ACTIONS) for cells in TABLE.values())


def configured(tmp_path: Path, *, file_key: bool = True, **more: Any) -> dict[str, Any]:
    return {
        "access": "keys",
        "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1"}},
        "models": {"m": "local", "other": "local"},
        "callers": [{"name": "filed"}],
        **({"keys": [{"name": "filed", "key": FILE_KEY}]} if file_key else {}),
        "cost": {"genai_prices": False},
        "storage": {"directory": str(tmp_path)},
        "responses": {"path": str(tmp_path / "responses.db"), "concurrency": 1},
        **more,
    }


def snapshot(caller: Terms, key: Terms, *, disabled: bool = False, expires: float | None = None) -> Snapshot:
    known = KnownCaller(LAB, "lab", disabled, caller)
    digest = hashlib.sha256(KEY.encode()).digest()
    made = KnownKey(ID, LAB, digest, expires, ID, key)
    return Snapshot("here", 1, {LAB: known}, {ID: made}, {digest: made}, {caller: 1, key: 1})


VALID = snapshot(Terms(), Terms())
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC).timestamp()
SNAPSHOTS: Mapping[str, Snapshot] = {
    "disabled": snapshot(Terms(), Terms(), disabled=True),
    "expired": snapshot(Terms(), Terms(), expires=LONG_AGO),
    "revoked": Snapshot("here", 2, VALID.callers),
    "narrowed to other models": snapshot(Terms(), Terms(models=("other",))),
    "narrowed to other endpoints": snapshot(Terms(), Terms(endpoints=frozenset({"embeddings"}))),
    "narrowed to responses": snapshot(Terms(endpoints=frozenset({"responses"})), Terms()),
    "team lost": snapshot(Terms(team="gone"), Terms()),
}


class Upstream:
    """Answers live requests at once, and streams the first background response when it is let."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.runs = 0

    def __call__(self, exchange: FakeExchange) -> None:
        if exchange.tag is None:
            id = exchange.forwarded["response_id"]
            said = {"id": id, "object": "response", "status": "completed", "model": "m", "output": []}
            exchange.complete(json.dumps(said).encode())
            return
        self.runs += 1
        assert self.go_on.wait(WAIT_SECONDS)
        exchange.start(content_type=b"text/event-stream")
        exchange.send(sse(*upstream_events()) + b"data: [DONE]\n\n")
        exchange.end()
        exchange.finish(FakeOutcome(streamed=True))


class Stand:
    """A gateway with stored responses and work of one key, whose state then changes."""

    def __init__(self, gateway: Harness, state: str, tmp_path: Path) -> None:
        self.gateway = gateway
        self.app: Any = gateway.app
        self.state = state
        self._tmp_path = tmp_path
        # Work of a key that is not known is that of one that the file had.
        self._filed = state in ("removed from the file", "unknown")
        self._open = state == "none"

    @property
    def headers(self) -> dict[str, str]:
        text = FILE_KEY if self._filed else KEY
        return {"authorization": f"Bearer {text}"}

    async def ask(self, method: str, path: str, headers: Mapping[str, str], body: Any = None) -> Any:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.gateway.request(method, path, headers=dict(headers), json_body=body)

    def adopt(self, found: Snapshot) -> None:
        self.gateway.begin()
        self.app._adopt_keys(found)

    async def make(self, **members: Any) -> str:
        headers = {} if self._open else self.headers
        made = await self.ask("POST", RESPONSES, headers, {"model": "m", "input": "Hello.", **members})
        assert made.status == 200, made.body
        id: str = made.json()["id"]
        return id

    def change(self) -> None:
        """From now on the credential is in that state."""
        if self._filed:
            self.app.reload(load_data(configured(self._tmp_path, file_key=False)))
        elif self._open:
            self.app.reload(load_data(configured(self._tmp_path)))
        elif self.state in SNAPSHOTS:
            self.adopt(SNAPSHOTS[self.state])

    async def refused_with(self, action: str, stored: str, path: str) -> str | None:
        """The code with which an action is refused for want of a right; None: it is not."""
        headers = {} if self._open else self.headers
        body: dict[str, Any] = {"model": "m", "input": "x", "messages": []}
        name = action.partition(",")[0]
        if action in ON_STORED:
            method, below = ON_STORED[action]
            reply = await self.ask(method, RESPONSES + below.format(id=stored), headers)
        elif name == "models":
            reply = await self.ask("GET", "/v1/models" + ("/m" if action == SHOW_MODEL else ""), headers)
        else:
            if action == BACKGROUND:
                body["background"] = True
            if action == CONTINUE:
                body["previous_response_id"] = stored
            if path == "front":
                return await self._through_the_front(RELAYED[name], headers, body)
            reply = await self.ask("POST", RELAYED[name], headers, body)
        code = None if reply.status == 200 else _code(reply.body)
        assert (code is None) == (reply.status == 200)
        return code if code in REFUSALS else None

    async def _through_the_front(
        self, path: str, headers: Mapping[str, str], body: Mapping[str, Any]
    ) -> str | None:
        """As a request of one of the front's own connections."""
        told = [(name.encode(), value.encode()) for name, value in headers.items()]
        exchange = self.gateway.front.submit("POST", path, told, json.dumps(body).encode(), "r")
        said = b""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                _, more, ended, _ = exchange.take()
                said += more
                if ended:
                    break
                await asyncio.sleep(0.005)
        code = _code(said)
        return code if code in REFUSALS else None


def _code(body: bytes) -> str | None:
    error = json.loads(body).get("error") or {}
    # Of the Messages API, whose errors have no code: the type is enough to tell them apart here.
    code: str | None = error.get("code", error.get("type"))
    return code


# Errors of the Messages API have no code.
_TYPES = {"invalid_api_key": "authentication_error", "expired_api_key": "authentication_error"}


def expected(cell: str | None, action: str) -> set[str | None]:
    if action in ("messages", "count_tokens") and cell is not None:
        return {_TYPES.get(cell, "permission_error")}
    return {cell}


REFUSALS |= {"authentication_error", "permission_error"}


@pytest.fixture
async def stand(request: pytest.FixtureRequest, start_gateway: Start, tmp_path: Path) -> Any:
    """`stand(state)`."""

    def begin(state: str, script: Any) -> Stand:
        config = configured(tmp_path)
        if state == "none":
            config = configured(tmp_path, file_key=False, access="open", callers=[])
        made = Stand(start_gateway(script, config=config), state, tmp_path)
        made.adopt(VALID)
        return made

    return begin


@pytest.mark.parametrize("path", ["application", "front"])
@pytest.mark.parametrize("state", TABLE)
async def test_each_action_in_each_state_by_each_path(stand: Any, state: str, path: str) -> None:
    upstream = Upstream()
    upstream.go_on.set()
    here: Stand = stand(state, upstream)
    actions = [action for action in ACTIONS if action != RUN]
    if path == "front":
        # The rest is the application's alone, whichever way it is reached.
        actions = [name for name in (*RELAYED, CONTINUE) if name in actions]
    stored = {action: await here.make() for action in actions if action in ON_STORED or action == CONTINUE}
    here.change()
    told = {action: await here.refused_with(action, stored.get(action, ""), path) for action in actions}
    wrong = {
        action: (code, TABLE[state][action])
        for action, code in told.items()
        if code not in expected(TABLE[state][action], action)
    }
    assert not wrong


@pytest.mark.parametrize("state", TABLE)
async def test_work_that_waits_is_held_against_the_state_in_which_its_credential_is(
    stand: Any, state: str
) -> None:
    upstream = Upstream()
    here: Stand = stand(state, upstream)
    first = await here.make(background=True)
    second = await here.make(background=True)
    async with asyncio.timeout(WAIT_SECONDS):
        while not upstream.runs:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    here.change()
    upstream.go_on.set()
    owner = "" if state == "none" else "id:filed" if here._filed else f"id:{LAB}"
    ended = {id: await _ended(here.app, id, owner) for id in (first, second)}
    assert ended[first]["status"] == "completed"
    code = TABLE[state][RUN]
    if code is ALLOWED:
        assert ended[second]["status"] == "completed"
        assert upstream.runs == 2
    else:
        assert (ended[second]["status"], ended[second]["error"]["code"]) == ("failed", code)
        assert upstream.runs == 1
    lines = [line for line in await here.gateway.requests() if line.get("response_id") == second]
    assert [line.get("code") for line in lines] == [code]
    name = None if state == "none" else "filed" if here._filed else "lab"
    assert [line.get("caller") for line in lines] == [name]


async def _ended(app: Any, id: str, owner: str) -> dict[str, Any]:
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            store = app._state.responses
            with store.hold(owner) as hold:
                found: dict[str, Any] = json.loads(await store.response(id, owner, hold))
            if found["status"] not in ("queued", "in_progress"):
                return found
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("text", [KEY, FILE_KEY])
async def test_the_admin_api_takes_no_clients_key(text: str) -> None:
    async def behind(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("it must not be asked")

    tokens = Tokens([("a-token-of-an-operator", Identity("ops", "operate"))])
    guard: Any = Guard(behind, Log(2, level="error"), hosts=None, tokens=tokens)
    for method, path in (("GET", "/v1/callers"), ("POST", "/v1/callers"), ("GET", "/metrics")):
        reply = await request(guard, method, path, headers={"authorization": f"Bearer {text}"})
        assert reply.status == 401


# === whose credentials ===

FORWARDING = {"theirs": {"base_url": "http://127.0.0.1:1/v1", "forward_authorization": True}}
OURS = {"local": {"base_url": "http://127.0.0.1:2/v1"}}


def test_a_models_routes_use_the_clients_credentials_or_the_gateways_and_never_both() -> None:
    data: dict[str, Any] = {"upstreams": FORWARDING | OURS, "models": {"m": ["theirs", "local"]}}
    with pytest.raises(ConfigurationError, match="whose credentials are used"):
        load_data(data)
    load_data(data | {"models": {"m": ["theirs/a", "theirs/b"], "n": ["local/a", "local/b"]}})


def test_a_model_that_nobody_has_listed_yet_goes_to_one_kind_of_upstream() -> None:
    upstreams = {name: {**told, "discover": True} for name, told in (FORWARDING | OURS).items()}
    config = load_data({"upstreams": upstreams})
    for order, kind in ((["theirs", "local"], False), (["local", "theirs"], True)):
        found = ModelTable(config, unlisted=order).find("anything")
        assert found is not None
        assert {each.own_account for each in found.deployments} == {kind}


async def test_work_does_not_run_where_its_model_has_come_to_take_the_clients_credentials(
    start_gateway: Start, tmp_path: Path
) -> None:
    upstream = Upstream()
    gateway = start_gateway(upstream, config=configured(tmp_path))
    here = Stand(gateway, "removed from the file", tmp_path)
    gateway.begin()
    first, second = [await here.make(background=True) for _ in range(2)]
    async with asyncio.timeout(WAIT_SECONDS):
        while not upstream.runs:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    changed = configured(tmp_path, upstreams=FORWARDING, models={"m": "theirs", "other": "theirs"})
    here.app.reload(load_data(changed))
    upstream.go_on.set()
    assert (await _ended(here.app, first, "id:filed"))["status"] == "completed"
    ended = await _ended(here.app, second, "id:filed")
    assert (ended["status"], ended["error"]["code"]) == ("failed", "unsupported_value")
    assert upstream.runs == 1


CREDENTIALS = [
    {},
    {"authorization": "Bearer one"},
    {"authorization": "Bearer two"},
    {"authorization": "Basic b25l"},
    {"authorization": "Bearer one", "x-api-key": "three"},
]


async def test_stored_responses_belong_to_the_credentials_that_they_came_with(
    start_gateway: Start, tmp_path: Path
) -> None:
    upstream = Upstream()
    upstream.go_on.set()
    changes = {"access": "open", "callers": [], "upstreams": FORWARDING | OURS}
    config = configured(tmp_path, file_key=False, models={"m": "theirs", "n": "local"}, **changes)
    here = Stand(start_gateway(upstream, config=config), "valid", tmp_path)
    made: dict[int, list[str]] = {}
    for number, headers in enumerate(CREDENTIALS):
        live = await here.ask("POST", RESPONSES, headers, {"model": "m", "input": "x"})
        queued = await here.ask("POST", RESPONSES, headers, {"model": "n", "input": "x", "background": True})
        made[number] = [live.json()["id"], queued.json()["id"]]
    for number, ids in made.items():
        # Each looks for another one's, and for its own.
        other = (number + 1) % len(CREDENTIALS)
        for id in ids:
            for who, status in ((number, 200), (other, 404)):
                found = await here.ask("GET", f"{RESPONSES}/{id}", CREDENTIALS[who])
                assert found.status == status, (number, who)
        body = {"model": "n", "input": "x", "previous_response_id": ids[0]}
        assert (await here.ask("POST", RESPONSES, CREDENTIALS[other], body)).status == 400
        assert (await here.ask("POST", RESPONSES, CREDENTIALS[number], body)).status == 200


@pytest.mark.parametrize("deleted", [False, True])
async def test_an_item_of_another_caller_does_not_go_up(
    start_gateway: Start, tmp_path: Path, deleted: bool
) -> None:
    keys = [{"name": name, "key": f"sk-{name}"} for name in ("one", "two")]
    upstreams = {"local": {"base_url": "http://127.0.0.1:1/v1", "api": "responses"}}

    names = itertools.chain(["msg_of_one"], (f"msg_{number}" for number in itertools.count()))

    def script(exchange: FakeExchange) -> None:
        item = {"type": "message", "id": next(names), "role": "assistant", "content": []}
        said = {"id": f"resp_{exchange.ticket}", "object": "response", "status": "completed", "model": "m"}
        exchange.complete(json.dumps({**said, "output": [item]}).encode())

    config = configured(tmp_path, file_key=False, callers=[], keys=keys, upstreams=upstreams)
    here = Stand(start_gateway(script, config=config), "valid", tmp_path)

    async def ask(name: str, **members: Any) -> Any:
        headers = {"authorization": f"Bearer sk-{name}"}
        return await here.ask("POST", RESPONSES, headers, {"model": "m", "input": "x", **members})

    id = (await ask("one")).json()["id"]
    if deleted:
        gone = await here.ask("DELETE", f"{RESPONSES}/{id}", {"authorization": "Bearer sk-one"})
        assert gone.status == 200
    for name, status in (("one", 200), ("two", 404)):
        for item, expected in (("msg_of_one", status), ("msg_that_nobody_knows", 200)):
            reference = [{"type": "item_reference", "id": item}]
            assert (await ask(name, input=reference)).status == expected, (name, item)
    assert (await ask("two", previous_response_id=id)).status == 400


# === the client's own deadline ===


async def test_the_clients_deadline_holds_in_the_background(start_gateway: Start, tmp_path: Path) -> None:
    upstream = Upstream()
    gateway = start_gateway(upstream, config=configured(tmp_path))
    here = Stand(gateway, "removed from the file", tmp_path)
    body = {"model": "m", "input": "x", "background": True}

    def headers(seconds: str) -> dict[str, str]:
        return {**here.headers, "x-sluicegate-timeout": seconds}

    for wrong in ("abc", "0", "-1", "nan", "inf", "1e300", "2592001", "30s", "1_0", ""):
        refused = await here.ask("POST", RESPONSES, headers(wrong), body)
        assert (refused.status, _code(refused.body)) == (400, "malformed_request"), wrong
    made = [await here.ask("POST", RESPONSES, headers(seconds), body) for seconds in ("900", "0.01")]
    first, second = [reply.json()["id"] for reply in made]
    async with asyncio.timeout(WAIT_SECONDS):
        while not upstream.runs:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    [run] = [exchange for exchange in gateway.front.exchanges if exchange.tag is not None]
    [told] = [float(value) for name, value in run.headers if name == b"x-sluicegate-timeout"]
    assert 0 < told <= 900
    upstream.go_on.set()
    assert (await _ended(here.app, first, "id:filed"))["status"] == "completed"
    ended = await _ended(here.app, second, "id:filed")
    assert (ended["status"], ended["error"]["code"]) == ("failed", "client_timeout")
    assert upstream.runs == 1
