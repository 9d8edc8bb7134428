"""The ledger of a running gateway: one row for each request, as its upstream has it in its own book."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyarrow import parquet

from harness.gateway_process import GatewayProcess, run_command
from harness.ledger_stand import (
    Row,
    asked,
    attempts,
    book,
    configured,
    rows,
    serving,
    settled,
    sums,
    upstream,
)
from sluicegate.testing import Script, ScriptedUpstream


def by_request(found: list[Row]) -> dict[str, Row]:
    return {row["request_id"]: row for row in found}


def agree(row: Row, entry: Row) -> None:
    """A row with usage of the upstream says what the upstream said."""
    assert row["usage_source"] == "upstream", row
    usage = entry["usage"]
    assert (row["input"], row["output"]) == (usage["prompt_tokens"], usage["completion_tokens"])


async def test_each_request_has_a_row_that_its_upstream_agrees_with(tmp_path: Path) -> None:
    async with upstream(tmp_path, Script(tokens=7)) as up:
        async with serving(configured(tmp_path, up.base_url), tmp_path) as gateway:
            for number in range(70):
                assert await asked(gateway, f"r{number}", stream=number % 2 == 0) == 200
            found = by_request(await settled(tmp_path, lambda found: len(found) == 70))
        assert len(found) == 70
        for entry in book(tmp_path / "book.jsonl"):
            row = found[entry["request_id"]]
            agree(row, entry)
            assert (row["result"], row["status"], row["attempts"], row["run"]) == ("ok", 200, 1, 1)
            assert (row["model"], row["upstream"], row["upstream_model"]) == ("m", "up0", "small")
            assert row["cost"] == (row["input"] + 4 * row["output"]) * 10**6
            assert row["cost"] == row["cost_input"] + row["cost_output"]
            assert row["streamed"] == (int(row["request_id"][1:]) % 2 == 0)
            assert 0 < row["first_byte"] <= row["duration"]
        [line] = sums(tmp_path)
        assert (line["requests"], line["failed"]) == (70, 0)
        assert line["cost"] == sum(row["cost"] for row in found.values())
        assert list((tmp_path / "state" / "journal").iterdir()) == [], "nothing waits once it has stopped"


async def test_what_it_refuses_by_itself_has_no_row(tmp_path: Path) -> None:
    async with upstream(tmp_path) as up:
        async with serving(configured(tmp_path, up.base_url), tmp_path) as gateway:
            assert await asked(gateway, "unknown", model="none") == 404
            assert (await gateway.client.get("/v1/models")).status_code == 200
            assert await asked(gateway, "known") == 200
        assert [row["request_id"] for row in rows(tmp_path)] == ["known"]


async def test_the_log_tells_repeats_of_one_request_id_apart(tmp_path: Path) -> None:
    keys = [{"name": "ann", "key": "sk-ann", "limits": "two"}]
    limits = {"two": {"requests": "2/hour"}}
    async with upstream(tmp_path) as up:
        config = configured(tmp_path, up.base_url, keys=keys, limits=limits)
        async with serving(config, tmp_path) as gateway:
            gateway.client.headers["authorization"] = "Bearer sk-ann"
            assert [await asked(gateway, "again") for _ in range(3)] == [200, 200, 429]
            await gateway.wait_request(3)
            found = await settled(tmp_path, lambda found: len(found) == 2)
            lines = gateway.find(event="request")
            assert [line.get("id") for line in lines] == [*(row["id"] for row in found), None]
            assert {(line["caller"], line["key_id"]) for line in lines} == {
                (row["caller"], row["key_id"]) for row in found
            }
            # What a limit refuses has no price to lack.
            assert gateway.find(event="unpriced") == []
            assert (await gateway.metrics()).value("sluicegate_unpriced_requests_total") == 0


async def test_a_client_that_leaves_is_billed_for_what_was_counted(tmp_path: Path) -> None:
    async with (
        upstream(tmp_path, Script(tokens=10_000, pace=0.01)) as up,
        serving(configured(tmp_path, up.base_url), tmp_path) as gateway,
    ):
        await leave(gateway, "left")
        [row] = await settled(tmp_path, lambda found: len(found) == 1)
        await up.requests[0].ended()
    [entry] = book(tmp_path / "book.jsonl")
    assert (row["result"], row["client_left"], row["usage_source"]) == ("client_left", 1, "estimated")
    assert 0 < row["output"] <= entry["tokens_sent"]
    assert row["input"] == row["estimated_input"] == 1
    assert row["cost"] == (row["input"] + 4 * row["output"]) * 10**6


async def leave(gateway: GatewayProcess, request_id: str) -> None:
    """Ask for a stream, and leave with its first token."""
    async with httpx.AsyncClient(base_url=gateway.base_url, timeout=30) as client:
        asking = {"model": "m", "messages": [], "stream": True}
        headers = {"x-request-id": request_id}
        async with client.stream("POST", "/v1/chat/completions", json=asking, headers=headers) as reply:
            async for line in reply.aiter_lines():
                # The first event has the role, and no token yet.
                if line.startswith("data: {") and json.loads(line[6:])["choices"][0]["delta"].get("content"):
                    return


async def test_a_background_run_says_which_key_and_which_user_it_is_of(tmp_path: Path) -> None:
    async with upstream(tmp_path, Script(tokens=3)) as up:
        config = configured(tmp_path, up.base_url, responses={"path": str(tmp_path / "responses.db")})
        config["callers"] = [{"name": "ann"}]
        config["keys"] = [{"name": "ann", "key": "sk-first"}, {"name": "ann", "key": "sk-second"}]
        config["limits"] = {"person": {"cost": "1/day"}}
        config["users"] = {"header": "x-user-id", "limits": "person"}
        async with serving(config, tmp_path) as gateway:
            for number, key in enumerate(("sk-first", "sk-second", "sk-second")):
                reply = await gateway.client.post(
                    "/v1/responses",
                    json={"model": "m", "input": "x", "background": number != 1},
                    headers={"authorization": f"Bearer {key}", "x-user-id": f"user-{number}"},
                )
                assert reply.status_code == 200
            found = await settled(tmp_path, lambda found: len(found) == 3)
        sent = [name.lower() for record in up.requests for name, _ in record.request.headers]
    by_user = {row["user_id"]: row for row in found}
    assert {name: row["background"] for name, row in by_user.items()} == {
        "user-0": 1,
        "user-1": 0,
        "user-2": 1,
    }
    assert by_user["user-2"]["key_id"] == by_user["user-1"]["key_id"] != by_user["user-0"]["key_id"]
    assert {row["caller"] for row in found} == {"ann"}
    assert "x-user-id" not in sent


async def test_a_drained_reply_is_billed_as_its_upstream_says(tmp_path: Path) -> None:
    async with upstream(tmp_path, Script(tokens=30, pace=0.01)) as up:
        config = configured(tmp_path, up.base_url)
        config["models"]["m"]["on_client_leave"] = "drain"
        async with serving(config, tmp_path) as gateway:
            await leave(gateway, "drained")
            [row] = await settled(tmp_path, lambda found: len(found) == 1)
    [entry] = book(tmp_path / "book.jsonl")
    assert (row["result"], entry["complete"]) == ("client_left", True)
    agree(row, entry)


async def test_a_fallback_is_one_row_with_its_attempts(tmp_path: Path) -> None:
    async with upstream(tmp_path, Script(tokens=3)) as up:
        async with ScriptedUpstream() as gone:
            first_url = gone.base_url
        async with serving(configured(tmp_path, first_url, up.base_url), tmp_path) as gateway:
            assert await asked(gateway, "moved") == 200
        [row] = rows(tmp_path)
        assert (row["upstream"], row["attempts"], row["result"]) == ("up1", 2, "ok")
        tried = [(attempt["n"], attempt["upstream"], attempt["fault"]) for attempt in attempts(tmp_path)]
        assert tried == [(1, "up0", "connect"), (2, "up1", None)]


async def test_a_failure_has_a_row_too(tmp_path: Path) -> None:
    async with upstream(tmp_path, Script(status=400)) as up:
        async with serving(configured(tmp_path, up.base_url), tmp_path) as gateway:
            assert await asked(gateway, "refused") == 400
            up.script = Script(status=500)
            assert await asked(gateway, "failed") == 500
        found = by_request(rows(tmp_path))
    assert {name: (row["result"], row["fault"], row["usage_source"]) for name, row in found.items()} == {
        "refused": ("refused", "status", "none"),
        "failed": ("failed", "status", "none"),
    }
    assert all(row["cost"] is None for row in found.values())


async def test_a_background_response_is_a_row_for_its_run(tmp_path: Path) -> None:
    async with upstream(tmp_path, Script(tokens=5)) as up:
        async with serving(configured(tmp_path, up.base_url), tmp_path) as gateway:
            asking = {"model": "m", "input": "x", "background": True}
            response = (await gateway.client.post("/v1/responses", json=asking)).json()
            [row] = await settled(tmp_path, lambda found: len(found) == 1)
            for _ in range(3):
                assert (await gateway.client.get(f"/v1/responses/{response['id']}")).status_code == 200
        assert len(rows(tmp_path)) == 1, "looking at it is no request of a model"
    assert (row["response_id"], row["background"], row["run"]) == (response["id"], 1, 1)
    agree(row, book(tmp_path / "book.jsonl")[0])


async def test_rows_follow_a_changed_configuration(tmp_path: Path) -> None:
    async with upstream(tmp_path, Script(tokens=2)) as up:
        config = configured(tmp_path, up.base_url)
        async with serving(config, tmp_path) as gateway:
            assert await asked(gateway, "before") == 200
            config["prices"]["m"]["output"] = "8"
            config["ledger"] = {"keep_days": 1}
            told = json.loads(gateway.config_file.read_text())
            gateway.config_file.write_text(json.dumps({**told, "prices": config["prices"]}) + "\n")
            await gateway.wait_line(event="reloaded")
            assert await asked(gateway, "after") == 200
        found = by_request(rows(tmp_path))
    before, after = found["before"], found["after"]
    assert (before["cost_output"], after["cost_output"]) == (8 * 10**6, 16 * 10**6)


async def run(*arguments: str) -> tuple[int, str]:
    status, out, _ = await run_command(*arguments)
    return status, out.decode()


async def test_the_commands_read_the_ledger(tmp_path: Path) -> None:
    async with upstream(tmp_path, Script(tokens=4)) as up:
        config = configured(tmp_path, up.base_url)
        config["keys"] = [{"name": "ann", "key": "sk-ann"}, {"name": "bob", "key": "sk-bob"}]
        async with serving(config, tmp_path) as gateway:
            for name in ("ann", "ann", "bob"):
                gateway.client.headers["authorization"] = f"Bearer sk-{name}"
                assert await asked(gateway, name) == 200
        found = rows(tmp_path)
        file = ("--config", str(gateway.config_file))
        status, out = await run("usage", *file, "--format", "json")
        lines = json.loads(out)
        assert (status, [line["caller"] for line in lines]) == (0, ["ann", "bob"])
        assert [line["requests"] for line in lines] == [2, 1]
        cost = sum(row["cost"] for row in found if row["caller"] == "bob")
        assert float(lines[1]["cost"]) == pytest.approx(cost / 1e12)
        status, out = await run("usage", *file, "--by", "caller", "--caller", "bob")
        head, line = out.splitlines()
        assert (status, head.split()[0], line.split()[:2]) == (0, "caller", ["bob", "1"])
        assert await run("usage", *file, "--to", "2001-01-01", "--format", "csv") == (0, "caller,model\r\n")
        status, out = await run("ledger", "export", *file)
        exported = [
            dict(zip(out.splitlines()[0].split(","), line.split(","), strict=True))
            for line in out.splitlines()[1:]
        ]
        assert [(row["id"], row["caller"]) for row in exported] == [
            (row["id"], row["caller"]) for row in found
        ]
        to = tmp_path / "rows.parquet"
        assert (await run("ledger", "export", *file, "--format", "parquet", "--output", str(to)))[0] == 0
        read = parquet.read_table(to).to_pylist()
        assert [(row["id"], row["cost"]) for row in read] == [(row["id"], row["cost"]) for row in found]
        assert await run("ledger", "verify", *file) == (
            0,
            "all rows cost what their prices say, and all sums are those of their rows\n",
        )
        spoil(tmp_path)
        status, out = await run("ledger", "verify", *file)
        assert (status, out.count("output is")) == (1, 1)


def spoil(directory: Path) -> None:
    with sqlite3.connect(directory / "state" / "ledger.db") as connection:
        connection.execute("UPDATE usage_daily SET output = output + 1 WHERE caller = 'bob'")


async def test_without_a_ledger_nothing_is_kept(tmp_path: Path) -> None:
    async with upstream(tmp_path) as up:
        config: dict[str, Any] = configured(tmp_path, up.base_url)
        del config["ledger"]
        async with serving(config, tmp_path) as gateway:
            assert await asked(gateway, "x") == 200
    assert not (tmp_path / "state").exists()
