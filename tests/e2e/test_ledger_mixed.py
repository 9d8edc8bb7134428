"""One ledger over all ways in which a request can go, at once, and a reload in their midst."""

import asyncio
import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from harness.admin_stand import TOKENS, VIEWER, admin_address, admin_client, listed
from harness.gateway_process import GatewayProcess
from harness.ledger_stand import Row, attempts, book, configured, rows, serving, settled, sums, upstream
from sluicegate.config import StorageConfig
from sluicegate.ledger import open_database
from sluicegate.ledger.verify import verify
from sluicegate.pricing import charged_by
from sluicegate.testing import Script, ScriptedUpstream

EACH = 4
KINDS = ("whole", "left", "drained", "moved", "moved-left", "moved-drained", "again")
STAYING = ("whole", "moved", "again")
"""Their clients read to the end."""
FAILURES = 5
"""Of the shaky upstream, before it works."""
ENDLESS = {"tokens": 2000, "pace": 0.05}
PACED = {"tokens": 60, "pace": 0.05}


def configuration(directory: Path, *upstreams: ScriptedUpstream) -> dict[str, Any]:
    """A model for each kind: what its clients leave is drained or not, `moved` ones fall back, and what fails
    is tried `again` where it was. `upstreams`: a broken, a sound and a shaky one.
    """
    config = configured(directory, *(each.base_url for each in upstreams))
    config["models"] = {
        kind: {
            "routes": ["up0/small", "up1/small"] if kind.startswith("moved") else ["up1/small"],
            "on_client_leave": "drain" if kind.endswith("drained") else "cancel",
            "retry": {"budget": 10},
        }
        for kind in KINDS
    }
    # Whichever of the requests meet the failures, none can meet more.
    retry = {"budget": 10, "attempts": FAILURES + 1, "backoff": [0.01, 0.02]}
    config["models"]["again"] = {"routes": ["up2/small"], "retry": retry}
    price = config["prices"].pop("m")
    config["prices"] = {name: dict(price) for name in KINDS}
    config["health"] = {"enabled": False}
    config["limits"] = {"wide": {"requests": "1000/hour", "tokens": "10000000/hour"}}
    config["keys"] = [{"name": "ann", "key": "sk-ann", "limits": "wide"}]
    config["server"] = {"metrics": "public"}
    config["admin"] = {"port": 0, "tokens": TOKENS}
    return config


def has_text(line: str) -> bool:
    """The first event has the role, and no token yet."""
    return line.startswith("data: {") and bool(json.loads(line[6:])["choices"][0]["delta"].get("content"))


async def stream(gateway: GatewayProcess, model: str, number: int, begun: asyncio.Queue[str]) -> None:
    """A stream that is read to its end, or, by its model's name, left once the reload is over."""
    stays = model in STAYING
    script = ENDLESS if model.endswith("left") else PACED
    body = {"model": model, "messages": [], "stream": True, "mock": script}
    headers = {"x-request-id": f"{model}-{number}", "authorization": "Bearer sk-ann"}
    async with (
        httpx.AsyncClient(base_url=gateway.base_url, timeout=60) as client,
        client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as reply,
    ):
        assert reply.status_code == 200
        first = True
        async for line in reply.aiter_lines():
            if first and has_text(line):
                first = False
                begun.put_nowait(model)
                if not stays:
                    await gateway.wait_line(event="reloaded")
                    return


async def background(gateway: GatewayProcess, number: int) -> None:
    """Taken on; it runs when it runs."""
    model = ("whole", "moved")[number % 2]
    reply = await gateway.client.post(
        "/v1/responses",
        json={"model": model, "input": "x", "background": True, "mock": PACED},
        headers={"authorization": "Bearer sk-ann"},
    )
    assert reply.status_code == 200


async def reload(gateway: GatewayProcess) -> None:
    """With dearer output."""
    config = json.loads(gateway.config_file.read_text())
    for price in config["prices"].values():
        price["output"] = "8"
    gateway.config_file.write_text(json.dumps(config) + "\n")
    gateway.signal(signal.SIGHUP)
    await gateway.wait_line(event="reloaded")


async def test_all_ways_at_once_have_one_row_each(tmp_path: Path) -> None:
    """Each row agrees with the upstreams' own books, sums with their rows, and counters with both."""
    wanted = (len(KINDS) + 1) * EACH
    broken_at, shaky_at = tmp_path / "broken", tmp_path / "shaky"
    broken_at.mkdir()
    shaky_at.mkdir()
    async with (
        upstream(broken_at, Script(status=503)) as broken,
        upstream(tmp_path, Script(tokens=5)) as sound,
        upstream(shaky_at, Script(tokens=5)) as shaky,
        serving(configuration(tmp_path, broken, sound, shaky), tmp_path) as gateway,
    ):
        shaky.enqueue(*[Script(status=503)] * FAILURES)
        begun: asyncio.Queue[str] = asyncio.Queue()
        async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
            for number in range(EACH):
                tasks.create_task(background(gateway, number))
                for kind in KINDS:
                    tasks.create_task(stream(gateway, kind, number, begun))
            for _ in range(len(KINDS) * EACH):
                await begun.get()
            await reload(gateway)
        found = await settled(tmp_path, lambda found: len(found) >= wanted)
        assert len(found) == wanted
        metrics = await gateway.wait_metrics(
            lambda now: (
                now.value("sluicegate_ledger_rows_total") == wanted
                and now.value("sluicegate_ledger_waiting") == 0
            )
        )
        assert metrics.value("sluicegate_ledger_no_room_total") in (None, 0)
        async with admin_client(await admin_address(gateway), VIEWER) as admin:
            limits = await listed(admin, "/callers/ann/limits", "after")
        for record in (*broken.requests, *sound.requests, *shaky.requests):
            await record.ended()
    served = [entry for entry in book(shaky_at / "book.jsonl") if entry["status"] == 200]
    failed = [entry for entry in book(shaky_at / "book.jsonl") if entry["status"] == 503]
    assert (len(served), len(failed)) == (EACH, FAILURES)
    failed += book(broken_at / "book.jsonl")
    check_rows(found, [*book(tmp_path / "book.jsonl"), *served], failed)
    used = {each["resource"]: each["used"] for each in limits}
    assert used == {"requests": wanted, "tokens": sum(row["input"] + row["output"] for row in found)}
    await check_sums(tmp_path)


def check_rows(found: list[Row], served: list[Row], failed: list[Row]) -> None:
    """Each request that the upstreams have served, by their books, is one row, which counts its tries."""
    by_id = {row["request_id"]: row for row in found}
    entries = {entry["request_id"]: entry for entry in served}
    assert len(by_id) == len(found) == len(entries) == len(served)
    failures = Counter(entry["request_id"] for entry in failed)
    assert by_id.keys() == entries.keys()
    for name, entry in entries.items():
        row = by_id[name]
        model = row["model"]
        # A reply that is drained may have ended before its client left.
        ends = {"client_left"} if model.endswith("left") else {"ok", "client_left"}
        assert row["result"] in ({"ok"} if model in STAYING else ends), row
        assert row["attempts"] == 1 + failures[name], row
        assert model == "again" or row["attempts"] == (2 if model.startswith("moved") else 1), row
        assert row["run"] == 1
        if model.endswith("left"):
            assert row["usage_source"] == "estimated", row
            assert 0 < row["output"] <= entry["tokens_sent"]
        else:
            assert (row["usage_source"], entry["complete"]) == ("upstream", True), row
            usage = entry["usage"]
            told = (usage.get("prompt_tokens"), usage.get("completion_tokens"))
            assert (row["input"], row["output"]) == told, row


async def check_sums(directory: Path) -> None:
    """Those of the tables are those of the rows, and each cost is what the row's own price makes of it."""
    database = open_database(StorageConfig(directory=str(directory / "state")))
    try:
        assert await verify(database, charged_by) == []
    finally:
        await database.close()
    kept = rows(directory)
    for name in ("input", "output", "cost"):
        assert sum(line[name] for line in sums(directory)) == sum(row[name] for row in kept)
    assert sum(line["requests"] for line in sums(directory)) == len(kept)
    check_attempts({row["id"]: row for row in kept}, attempts(directory))


def check_attempts(kept: dict[str, Row], tried: list[Row]) -> None:
    """Where a request was tried several times, each try is there: all failed but the last."""
    by_id: dict[str, list[Row]] = {id: [] for id, row in kept.items() if row["attempts"] > 1}
    for attempt in tried:
        by_id[attempt["id"]].append(attempt)
    for id, several in by_id.items():
        row = kept[id]
        failing = "up2" if row["model"] == "again" else "up0"
        wanted = [(failing, 503)] * (row["attempts"] - 1) + [(row["upstream"], 200)]
        assert [(attempt["upstream"], attempt["status"]) for attempt in several] == wanted
    again = [row for row in kept.values() if row["model"] == "again"]
    assert {row["upstream"] for row in again} == {"up2"}
    assert sum(row["attempts"] for row in again) == EACH + FAILURES
