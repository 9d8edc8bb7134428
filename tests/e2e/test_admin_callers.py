"""Callers and keys by the admin API of a real gateway, and the audit of what was done."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio

from harness.admin_stand import API, OPERATOR, TOKENS, VIEWER, admin_address, admin_client, asked, listed
from harness.gateway_process import GatewayProcess
from harness.shared_gateway import shared_gateway
from sluicegate.identity import is_key
from sluicegate.testing import ScriptedUpstream

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True)
class Stand:
    gateway: GatewayProcess
    operator: httpx.AsyncClient
    viewer: httpx.AsyncClient
    secrets: set[str] = field(default_factory=set)
    """Keys that were made."""

    async def done(self, method: str, path: str, status: int = 200, **options: Any) -> dict[str, Any]:
        response = await self.operator.request(method, API + path, **options)
        assert response.status_code == status, response.text
        found: dict[str, Any] = response.json()
        if "key" in found:
            self.secrets.add(found["key"])
        return found

    async def until(self, key: str, status: int) -> None:
        """Ask with `key` until the answer has this status: a gateway hears of changes within seconds."""
        headers = {"authorization": f"Bearer {key}"}
        async with asyncio.timeout(30):
            while True:
                reply = await self.gateway.client.post(
                    "/v1/chat/completions", json=asked("m"), headers=headers
                )
                if reply.status_code == status:
                    return
                await asyncio.sleep(0.1)

    async def refused(self, method: str, path: str, **options: Any) -> tuple[int, str, str]:
        response = await self.operator.request(method, API + path, **options)
        error = response.json()["error"]
        return response.status_code, error["code"], error["message"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    directory = tmp_path_factory.mktemp("callers")
    async with ScriptedUpstream() as upstream:
        config: dict[str, Any] = {
            "upstreams": {"a": {"base_url": upstream.base_url}},
            "models": {"m": "a/m"},
            "cost": {"genai_prices": False},
            "limits": {"small": {"requests": "2/hour"}},
            "callers": [{"name": "written", "limits": "small"}],
            "keys": [{"name": "written", "key": "sk-written-in-the-file"}],
            "admin": {"port": 0, "tokens": TOKENS},
            "storage": {"directory": str(directory / "state")},
        }
        async with shared_gateway(config, directory) as gateway:
            address = await admin_address(gateway)
            async with admin_client(address, OPERATOR) as operator, admin_client(address, VIEWER) as viewer:
                yield Stand(gateway, operator, viewer)


async def test_a_caller_is_made_changed_and_disabled(stand: Stand) -> None:
    made = await stand.done("POST", "/callers", 201, json={"name": "search", "limits": "small"})
    assert (made["name"], made["limits"], made["source"], made["disabled"]) == (
        "search", "small", "database", False,
    )  # fmt: skip
    id = made["id"]
    changed = await stand.done("PATCH", f"/callers/{id}", json={"models": ["m", "llama-*"]})
    assert (changed["models"], changed["limits"]) == (["m", "llama-*"], "small")
    disabled = await stand.done("DELETE", f"/callers/{id}")
    assert disabled["disabled"] is True
    assert await stand.done("GET", f"/callers/{id}") == disabled
    names = [each["name"] for each in await listed(stand.viewer, "/callers", "after", limit=1)]
    assert names == ["written", "search"]
    audit = await listed(stand.viewer, "/audit", "before", subject=id, limit=2)
    assert [(each["actor"], each["action"]) for each in audit] == [
        ("token:ops", "caller.change"),
        ("token:ops", "caller.change"),
        ("token:ops", "caller.create"),
    ]
    assert audit[0]["change"]["to"] == {"disabled": True}
    line = await stand.gateway.wait_line(event="admin_change", what="caller.create", subject=id)
    assert line["who"] == "token:ops"


async def test_a_key_is_shown_once(stand: Stand) -> None:
    caller = (await stand.done("POST", "/callers", 201, json={"name": "keyed"}))["id"]
    expires = (datetime.now(UTC) + timedelta(days=2)).isoformat(timespec="seconds")
    made = await stand.done(
        "POST", f"/callers/{caller}/keys", 201, json={"name": "laptop", "expires": expires}
    )
    assert is_key(made["key"])
    assert made["key"].endswith(made["last_four"])
    shown = await listed(stand.viewer, f"/callers/{caller}/keys", "after")
    assert shown == [{name: value for name, value in made.items() if name != "key"}]
    rotated = await stand.done("POST", f"/keys/{made['id']}/rotate", 201, json={"overlap": 60})
    assert is_key(rotated["key"])
    assert rotated["key"] != made["key"]
    assert (rotated["replaces"], rotated["replaced"]["id"]) == (made["id"], made["id"])
    assert rotated["replaced"]["expires"] < shown[0]["expires"]
    again = await stand.done("POST", f"/keys/{rotated['id']}/rotate", 201)
    revoked = await stand.done("DELETE", f"/keys/{again['id']}")
    assert revoked["state"] == "revoked"
    shown = await listed(stand.viewer, f"/callers/{caller}/keys", "after", limit=1)
    assert [each["state"] for each in shown] == ["active", "active", "revoked"]
    actions = [each["action"] for each in await listed(stand.viewer, "/audit", "before", limit=1)]
    assert actions[:4] == ["key.revoke", "key.rotate", "key.rotate", "key.create"]


async def test_a_key_works_soon_after_it_is_made_and_no_more_once_it_is_revoked(stand: Stand) -> None:
    caller = (await stand.done("POST", "/callers", 201, json={"name": "client", "limits": "small"}))["id"]
    made = await stand.done("POST", f"/callers/{caller}/keys", 201, json={"name": "laptop"})
    await stand.until(made["key"], 200)
    found = await listed(stand.viewer, f"/callers/{caller}/limits", "after")
    assert [(each["limit"], each["used"], each["remaining"]) for each in found] == [(2, 1, 1)]
    await stand.done("DELETE", f"/keys/{made['id']}")
    await stand.until(made["key"], 401)


async def test_pages_of_limits_show_each_key_once(stand: Stand) -> None:
    caller = (await stand.done("POST", "/callers", 201, json={"name": "many", "limits": "small"}))["id"]
    for _ in range(3):
        limits = {"requests": "5/day", "concurrent": 7}
        made = await stand.done("POST", f"/callers/{caller}/keys", 201, json={"limits": limits})
    await stand.until(made["key"], 200)
    for limit in (1, 2, 100):
        found = await listed(stand.viewer, f"/callers/{caller}/limits", "after", limit=limit)
        assert [each["limit"] for each in found] == [2, *[5, 7] * 3]
        assert [each["id"] for each in found][1:3] == [each["id"] for each in found][3:5], (
            "names are not places"
        )
        keys = await listed(stand.viewer, f"/callers/{caller}/keys", "after", limit=limit)
        assert len({each["id"] for each in keys}) == len(keys) == 3
    assert (await stand.refused("GET", f"/callers/{caller}/limits?after=nothing"))[0] == 404
    assert (await stand.refused("GET", f"/callers/{caller}/keys?after=nothing"))[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "words"),
    [
        ("POST", "/callers", {"name": "written"}, 409, "conflict", "there is a caller"),
        ("POST", "/callers", {}, 400, "invalid_body", "name"),
        ("POST", "/callers", {"name": "x", "limits": "no"}, 400, "invalid_body", "limits"),
        ("POST", "/callers", {"name": "x", "admin": True}, 400, "invalid_body", "admin"),
        ("POST", "/callers", {"name": "x" * 200}, 400, "invalid_body", "name"),
        ("POST", "/callers", [], 400, "invalid_body", ""),
        ("PATCH", "/callers/written", {"disabled": True}, 409, "conflict", "configuration"),
        ("PATCH", "/callers/nobody", {"disabled": True}, 404, "not_found", "nobody"),
        ("GET", "/callers/nobody", None, 404, "not_found", "nobody"),
        ("GET", "/callers/nobody/keys", None, 404, "not_found", "nobody"),
        ("POST", "/callers/nobody/keys", {"name": "a"}, 404, "not_found", "nobody"),
        ("POST", "/callers/written/keys", {"expires": "2020-01-01"}, 400, "invalid_body", "expires"),
        ("POST", "/keys/nothing/rotate", None, 404, "not_found", "nothing"),
        ("POST", "/keys/nothing/rotate", {"overlap": -1}, 400, "invalid_body", "overlap"),
        ("DELETE", "/keys/nothing", None, 404, "not_found", "nothing"),
        ("DELETE", "/callers/written", {"name": "x"}, 400, "invalid_body", "no body"),
        ("GET", "/callers?after=nobody", None, 404, "not_found", "nobody"),
        ("GET", "/audit?before=0", None, 400, "invalid_parameter", "before"),
    ],
)
async def test_what_cannot_be_done(
    stand: Stand, method: str, path: str, body: Any, status: int, code: str, words: str
) -> None:
    options = {} if body is None else {"json": body}
    found = await stand.refused(method, path, **options)
    assert found[:2] == (status, code)
    assert words in found[2]


async def test_whoever_views_changes_no_caller_and_no_key(stand: Stand) -> None:
    before = await listed(stand.viewer, "/audit", "before")
    for method, path in (
        ("POST", "/callers"),
        ("PATCH", "/callers/written"),
        ("DELETE", "/callers/written"),
        ("POST", "/callers/written/keys"),
        ("POST", "/keys/x/rotate"),
        ("DELETE", "/keys/x"),
    ):
        refused = await stand.viewer.request(method, API + path, json={"name": "x"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_allowed")
    assert await listed(stand.viewer, "/audit", "before") == before


async def test_no_key_is_in_any_other_answer_or_in_the_log(stand: Stand) -> None:
    key = (await stand.done("POST", "/callers/written/keys", 201, json={}))["key"]
    assert key in stand.secrets
    found = [await stand.viewer.get("/metrics"), await stand.viewer.get(f"{API}/audit")]
    for path in ("", "/written", "/written/keys", "/written/limits"):
        found.append(await stand.viewer.get(f"{API}/callers{path}"))
    assert all(each.status_code == 200 for each in found)
    for secret in (*stand.secrets, "sk-written-in-the-file", OPERATOR, VIEWER):
        assert all(secret not in each.text for each in found)
        assert secret not in stand.gateway.transcript()
