"""What the admin API says of use: sums, rows, what is under way, what is left of limits."""

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from harness import ledger_stand
from harness.admin_stand import API, TOKENS, VIEWER, admin_address, admin_client, asked, listed
from harness.gateway_process import GatewayProcess, StartGateway, run_command
from harness.shared_gateway import shared_gateway
from sluicegate.testing import Script, ScriptedUpstream, UsageScript

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT = "/v1/chat/completions"
ANSWER = Script(text="four words of text", usage=UsageScript(input_tokens=100, output_tokens=20))
KEYS = {"search": "sk-of-search-0001", "chat": "sk-of-chat-000001"}


@dataclass(frozen=True)
class Stand:
    gateway: GatewayProcess
    upstream: ScriptedUpstream
    admin: httpx.AsyncClient
    directory: Path

    async def ask(self, caller: str, model: str = "m", **more: Any) -> int:
        headers = {"authorization": f"Bearer {KEYS[caller]}"}
        reply = await self.gateway.client.post(CHAT, json=asked(model, **more), headers=headers)
        return reply.status_code

    @contextlib.asynccontextmanager
    async def stream(self, caller: str) -> AsyncIterator[AsyncIterator[str]]:
        """The lines of a stream that goes on, of which the first has come."""
        self.upstream.enqueue(Script(tokens=10_000, pace=0.01))
        headers = {"authorization": f"Bearer {KEYS[caller]}"}
        body = asked("m", stream=True)
        async with self.gateway.client.stream("POST", CHAT, json=body, headers=headers) as reply:
            lines = reply.aiter_lines()
            await anext(lines)
            yield lines

    async def settled(self, count: int) -> None:
        """Until the ledger has so many rows."""
        await ledger_stand.settled(self.directory, lambda rows: len(rows) >= count)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    directory = tmp_path_factory.mktemp("reports")
    async with ScriptedUpstream(ANSWER) as upstream:
        config = ledger_stand.configured(
            directory,
            upstream.base_url,
            admin={"port": 0, "tokens": TOKENS},
            limits={
                "five": {
                    "requests": "5/hour",
                    "tokens": "100000/day",
                    "cost": "1/month",
                    "concurrent": 3,
                    "models": {"m": {"requests": "4/day"}},
                }
            },
            callers=[{"name": "search", "id": "s-1", "limits": "five"}],
            keys=[{"name": name, "key": key} for name, key in KEYS.items()],
        )
        async with (
            shared_gateway(config, directory) as gateway,
            admin_client(await admin_address(gateway), VIEWER) as admin,
        ):
            made = Stand(gateway, upstream, admin, directory)
            for number in range(3):
                assert await made.ask("search", user=f"user-{number}") == 200
            upstream.enqueue(Script(status=400))
            assert await made.ask("chat") == 400
            assert await made.ask("chat") == 200
            await made.settled(5)
            yield made


async def usage_command(directory: Path, *arguments: str) -> list[dict[str, Any]]:
    file = str(directory / "gateway.yaml")
    status, said, errors = await run_command("usage", "--format", "json", "--config", file, *arguments)
    assert status == 0, errors
    found: list[dict[str, Any]] = json.loads(said)
    return found


# === sums ===


@pytest.mark.parametrize(
    ("params", "arguments"),
    [
        ({}, []),
        ({"by": "day"}, ["--by", "day"]),
        ({"by": "user"}, ["--by", "user"]),
        ({"by": "caller,key,upstream"}, ["--by", "caller,key,upstream"]),
        ({"caller": "search"}, ["--caller", "search"]),
        ({"caller": "s-1", "by": "model"}, ["--caller", "s-1", "--by", "model"]),
        ({"from": "2020-01-01", "to": "2020-12-31"}, ["--from", "2020-01-01", "--to", "2020-12-31"]),
    ],
)
async def test_usage_is_what_the_command_says(
    stand: Stand, params: dict[str, str], arguments: list[str]
) -> None:
    said = await usage_command(stand.directory, *arguments)
    assert await listed(stand.admin, "/usage", "after", limit=1, **params) == said
    assert bool(said) is ("from" not in params)


async def test_usage_has_exact_costs(stand: Stand) -> None:
    [line] = await listed(stand.admin, "/usage", "after", by="caller", caller="search")
    assert (line["caller"], line["requests"], line["input"], line["output"]) == ("search", 3, 300, 60)
    assert line["cost"] == "0.00054"


@pytest.mark.parametrize(
    "query",
    [
        "by=nothing",
        "by=day,day",
        "by=user,model",
        "from=yesterday",
        "to=2026-13-01",
        "first=2026-01-01",
        "by=",
    ],
)
async def test_usage_that_cannot_be_summed(stand: Stand, query: str) -> None:
    refused = await stand.admin.get(f"{API}/usage?{query}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_parameter")


# === rows ===


async def test_requests_are_the_ledgers_rows_newest_first(stand: Stand) -> None:
    rows = ledger_stand.rows(stand.directory)
    found = await listed(stand.admin, "/requests", "before", limit=2)
    assert [each["id"] for each in found] == [row["id"] for row in reversed(rows)]
    assert found[0] == {**rows[-1], **{name: bool(rows[-1][name]) for name in FLAGS}}


FLAGS = ("background", "streamed", "client_left")


async def test_requests_of_one_caller_and_one_result(stand: Stand) -> None:
    for caller in ("search", "s-1", "id:s-1"):
        found = await listed(stand.admin, "/requests", "before", caller=caller, limit=1)
        assert [each["caller"] for each in found] == ["search"] * 3
    [refused] = await listed(stand.admin, "/requests", "before", result="refused")
    assert (refused["caller"], refused["status"]) == ("chat", 400)
    assert await listed(stand.admin, "/requests", "before", caller="nobody") == []
    assert await listed(stand.admin, "/requests", "before", caller="search", result="failed") == []


async def test_one_request_with_its_attempts(stand: Stand) -> None:
    [row] = (await stand.admin.get(f"{API}/requests", params={"limit": "1"})).json()["data"]
    found = (await stand.admin.get(f"{API}/requests/{row['id']}")).json()
    assert found == {**row, "tries": []}
    for id in ("00000000-0000-7000-8000-000000000000", "x", row["request_id"]):
        missing = await stand.admin.get(f"{API}/requests/{id}")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize("query", ["result=good", "before=x", "before=0", "limit=1001", "caller=", "after=x"])
async def test_requests_that_cannot_be_listed(stand: Stand, query: str) -> None:
    refused = await stand.admin.get(f"{API}/requests?{query}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_parameter")


# === what is under way ===


async def test_live_requests_grow_and_go(stand: Stand) -> None:
    assert await listed(stand.admin, "/live", "after") == []
    async with stand.stream("chat") as one, stand.stream("chat") as other:
        for lines in (one, other):
            for _ in range(10):
                await anext(lines)
        found = await listed(stand.admin, "/live", "after", limit=1)
        assert len(found) == 2
        for each in found:
            assert (each["caller"], each["model"], each["deployment"]) == ("chat", "m", "up0/small")
            assert each["output_events"] > 0
            assert each["seconds"] > 0
        for _ in range(20):
            await anext(one)
        again = await listed(stand.admin, "/live", "after")
        assert [each["id"] for each in again] == [each["id"] for each in found]
        assert again[0]["output_events"] > found[0]["output_events"]
    await stand.settled(7)
    assert await listed(stand.admin, "/live", "after") == []
    refused = await stand.admin.get(f"{API}/live?after=nothing")
    assert refused.json()["error"]["code"] == "invalid_parameter"


# === limits ===


async def standings(stand: Stand, caller: str) -> dict[str, dict[str, Any]]:
    found = await listed(stand.admin, f"/callers/{caller}/limits", "after", limit=2)
    return {each["id"]: each for each in found}


async def test_limits_while_they_are_used(stand: Stand) -> None:
    before = await standings(stand, "s-1")
    assert before.keys() == (await standings(stand, "search")).keys()
    hour = before["5 requests a hour of the caller `search`"]
    assert (hour["limit"], hour["used"], hour["reserved"], hour["remaining"]) == (5, 3, 0, 2)
    assert hour["resets_at"] is not None
    cost = before["1 USD a month of the caller `search`"]
    assert (cost["limit"], cost["used"], cost["remaining"]) == ("1", "0.00054", "0.99946")
    assert before["100000 tokens a day of the caller `search`"]["used"] == 360
    at_once = "3 requests at once of the caller `search`"
    of_model = "4 requests a day of the caller `search` for `m`"
    assert before[of_model]["used"] == 3
    async with stand.stream("search") as lines:
        await anext(lines)
        running = await standings(stand, "s-1")
        assert (running[at_once]["used"], running[at_once]["reserved"]) == (1, 1)
        assert (running[of_model]["used"], running[of_model]["reserved"]) == (4, 1)
        tokens = running["100000 tokens a day of the caller `search`"]
        assert tokens["used"] == 360 + tokens["reserved"]
        assert tokens["reserved"] > 0
        assert await stand.ask("search") == 429
    await stand.gateway.wait_request(caller="search", client_left=True)
    after = await standings(stand, "s-1")
    assert (after[at_once]["used"], after[at_once]["reserved"]) == (0, 0)
    assert after["100000 tokens a day of the caller `search`"]["reserved"] == 0


async def test_limits_of_nobody(stand: Stand) -> None:
    assert await standings(stand, "chat") == {}
    missing = await stand.admin.get(f"{API}/callers/nobody/limits")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.asyncio(loop_scope="function")
async def test_limits_of_the_people_behind_a_caller(
    gateway: StartGateway, upstream: ScriptedUpstream
) -> None:
    person = {"requests": "5/hour", "concurrent": 2, "models": {"m": {"tokens": "1000/day"}}}
    process = await gateway(
        {
            "upstreams": {"a": {"base_url": upstream.base_url}},
            "models": {"m": "a/m", "n": "a/n"},
            "limits": {"person": person, "all": {"requests": "9/hour"}},
            "users": {"header": "x-user-id", "limits": "person"},
            "callers": [{"name": "search", "id": "s-1", "limits": "all"}],
            "keys": [{"name": name, "key": key} for name, key in KEYS.items()],
            "admin": {"port": 0, "tokens": TOKENS},
        }
    )
    upstream.script = ANSWER

    async def used(caller: str, **params: str) -> dict[str, int]:
        found = await listed(admin, f"/callers/{caller}/limits", "after", limit=1, **params)
        return {each["id"]: each["used"] for each in found}

    async with admin_client(await admin_address(process), VIEWER) as admin:
        for caller, model, user in (("search", "m", "ada"), ("search", "n", "ada"), ("chat", "m", "ada")):
            headers = {"authorization": f"Bearer {KEYS[caller]}", "x-user-id": user}
            reply = await process.client.post(CHAT, json=asked(model), headers=headers)
            assert reply.status_code == 200
        await process.wait_request(caller="chat")
        hour, tokens, at_once = (
            f"{limit} of the user `ada`"
            for limit in ("5 requests a hour", "1000 tokens a day", "2 requests at once")
        )
        tokens += " for `m`"
        for name in ("s-1", "search"):
            assert await used(name, user="ada") == {hour: 2, at_once: 0, tokens: 120}
        assert await used("chat", user="ada") == {hour: 1, at_once: 0, tokens: 120}
        assert {*(await used("search", user="bob")).values()} == {0}
        assert await used("search") == {"9 requests a hour of the caller `search`": 2}
        wrong = await admin.get(f"{API}/callers/search/limits?user=")
        assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "user")


# === other configurations ===


@pytest.mark.asyncio(loop_scope="function")
async def test_without_a_ledger(gateway: StartGateway, upstream: ScriptedUpstream) -> None:
    process = await gateway(
        {
            "upstreams": {"a": {"base_url": upstream.base_url}},
            "models": {"m": "a/m"},
            "access": "open",
            "admin": {"port": 0, "tokens": TOKENS},
        }
    )
    async with admin_client(await admin_address(process), VIEWER) as admin:
        for path in ("/usage", "/requests", "/live", "/requests/00000000-0000-7000-8000-000000000000"):
            refused = await admin.get(API + path)
            assert (refused.status_code, refused.json()["error"]["code"]) == (404, "no_ledger")
