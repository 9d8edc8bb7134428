"""No key, digest or password comes out: in logs, metrics, replies, lists of processes, files and columns."""

import hashlib
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from sqlalchemy.engine import make_url

from harness import postgres
from harness.admin_stand import API, admin_address, admin_client, asked
from harness.gateway_process import GatewayProcess, run_command
from harness.keys_stand import running, until
from sluicegate.testing import Script, ScriptedUpstream

OF_FILE = "sk-caller-of-the-file-0123456789"
OF_NOBODY = "sk-nobody-knows-this-one-987654321"
OF_UPSTREAM = "sk-upstream-account-abcdef0123"
TOKEN = "admin-token-fedcba9876543210"
OF_REDIS = "redis-password-1029384756"
OF_POSTGRES = "postgres-password-5647382910"
CHAT = "/v1/chat/completions"


@dataclass
class Seen:
    """All that came out, by where, and what must not be in it."""

    secrets: dict[str, str]
    outputs: dict[str, bytes] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    """Of which no digest may be seen, either."""

    def add(self, place: str, output: bytes | str) -> None:
        self.outputs[place] = output.encode() if isinstance(output, str) else output

    def reply(self, place: str, response: httpx.Response) -> None:
        """A reply with its head."""
        head = "".join(f"{name}: {value}\n" for name, value in response.headers.multi_items())
        self.add(f"{place} {response.status_code}", head.encode() + response.content)

    def leaks(self, *, but_digests: tuple[str, ...] = ()) -> set[tuple[str, str]]:
        """What was found where. `but_digests`: places where digests of keys belong."""
        found = set()
        for place, output in self.outputs.items():
            for name, secret in self.secrets.items():
                if secret.encode() in output:
                    found.add((name, place))
            if place.startswith(but_digests or ("\0",)):
                continue
            for key in self.keys:
                digest = hashlib.sha256(key.encode())
                if digest.digest() in output or digest.hexdigest().encode() in output.lower():
                    found.add((f"digest of {key[:9]}", place))
        return found


@pytest.fixture
async def server() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream(Script(tokens=3)) as one:
        yield one


def with_password(url: str) -> tuple[str, str]:
    """`url` with a password, and that."""
    parts = make_url(url)
    password = OF_POSTGRES if parts.password is None else str(parts.password)
    return parts.set(password=password).render_as_string(hide_password=False), password


def configured(server: ScriptedUpstream, directory: Path, url: str) -> dict[str, Any]:
    key = {"api_key": OF_UPSTREAM}
    return {
        "upstreams": {
            "local": {"base_url": server.base_url, **key},
            "responses": {"base_url": server.base_url, "api": "responses", **key},
            "gone": {"base_url": "http://127.0.0.1:1/v1", **key},
        },
        "models": {"m": "local", "r": "responses", "gone": "gone"},
        "prices": {"m": {"input": "1", "output": "5"}},
        "cost": {"genai_prices": False},
        "limits": {"small": {"requests": "1/day"}, "usual": {"requests": "1000/day"}},
        "callers": [{"name": "search", "limits": "usual"}],
        "keys": [{"name": "search", "key": OF_FILE}],
        "access": "keys",
        "admin": {"port": 0, "tokens": [{"name": "ops", "token": TOKEN, "role": "operate"}]},
        "storage": {
            "directory": str(directory / "state"),
            "database": url,
            # Nobody listens there.
            "counters": f"redis://:{OF_REDIS}@127.0.0.1:1/0",
        },
        "ledger": {},
        "server": {"log": {"level": "debug"}},
    }


async def use(gateway: GatewayProcess, server: ScriptedUpstream, key: str, seen: Seen) -> None:
    """Requests of every kind, and every kind of fault."""
    client = gateway.client
    headers = {"authorization": f"Bearer {key}"}

    async def post(place: str, path: str, body: Any, **more: Any) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        reply = await client.post(path, content=content, headers={**headers, **more})
        seen.reply(f"{place} of {key[:9]}", reply)

    await post("chat", CHAT, asked("m"))
    await post("stream", CHAT, asked("m", stream=True))
    await post("responses", "/v1/responses", {"model": "r", "input": "Hi.", "store": True})
    await post("background", "/v1/responses", {"model": "r", "input": "Hi.", "background": True})
    await post("messages", "/v1/messages", asked("m", max_tokens=10), **{"anthropic-version": "2023-06-01"})
    await post("no such model", CHAT, asked("none"))
    await post("no JSON", CHAT, b"{" + key.encode())
    await post("nobody there", CHAT, asked("gone"))
    # Hosted providers name the key that they refuse.
    refusal = {"message": f"Incorrect API key provided: {OF_UPSTREAM}", "code": "invalid_api_key"}
    for status in (401, 403):
        server.enqueue(Script(status=status, error=refusal))
        await post("the account is refused", CHAT, asked("m"))
    unknown = {"authorization": f"Bearer {OF_NOBODY}", "x-api-key": OF_NOBODY}
    seen.reply("unknown key", await client.post(CHAT, json=asked("m"), headers=unknown))
    seen.reply("models", await client.get("/v1/models", headers=headers))


async def administer(gateway: GatewayProcess, seen: Seen) -> None:
    """All that the admin API shows."""
    async with admin_client(await admin_address(gateway), TOKEN) as admin:
        for path in ("/callers", "/callers/search/keys", "/callers/search/limits", "/usage?by=caller",
                     "/requests", "/live", "/deployments", "/audit"):  # fmt: skip
            seen.reply(path, await admin.get(API + path))
        for path in ("/metrics", "/healthz", "/readyz"):
            seen.reply(path, await admin.get(path))
        seen.reply("wrong token", await admin.get(API + "/usage", headers={"authorization": "Bearer no"}))


async def commands(gateway: GatewayProcess, directory: Path, seen: Seen) -> None:
    """What the command line prints, of what is and of what goes wrong."""
    file = str(gateway.config_file)
    export = ("ledger", "export", "--output", str(directory / "rows.csv"))
    for words in (
        ("callers", "list"), ("keys", "list", "--json"), ("keys", "show", OF_NOBODY[:12]),
        ("audit", "--json"), ("usage",), ("ledger", "verify"), export, ("check",),
    ):  # fmt: skip
        _, output, errors = await run_command(*words, *([] if words == ("check",) else ["--config"]), file)
        seen.add(f"sluicegate {' '.join(words[:2])}", output + errors)


def processes(gateway: GatewayProcess) -> bytes:
    """What `ps` shows of the gateway and of its threads."""
    place = Path("/proc") / str(gateway.pid)
    return (place / "cmdline").read_bytes() + b"".join(
        (task / "comm").read_bytes() for task in (place / "task").iterdir()
    )


def files(directory: Path, gateway: GatewayProcess, seen: Seen) -> None:
    """All that the gateway and the commands have written."""
    for file in directory.rglob("*"):
        if file.is_file() and file != gateway.config_file:
            seen.add(f"file {file.name}", file.read_bytes())


async def columns(url: str, seen: Seen) -> None:
    """Every row of every table of the database, each column by itself."""
    connection = await asyncpg.connect(url)
    try:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        for (table,) in tables:
            found: dict[str, list[bytes]] = {}
            for row in await connection.fetch(f'SELECT * FROM "{table}"'):
                for name, value in row.items():
                    shown = value if isinstance(value, bytes) else str(value).encode()
                    found.setdefault(name, []).append(shown)
            for name, values in found.items():
                seen.add(f"{table}.{name}", b"\n".join(values))
    finally:
        await connection.close()


async def test_no_secret_comes_out_anywhere(
    server: ScriptedUpstream, tmp_path: Path, postgres_server: str, postgres_url: str
) -> None:
    with_it, password = with_password(postgres_url)
    secrets = {
        "key of the file": OF_FILE, "key of nobody": OF_NOBODY, "key of the upstream": OF_UPSTREAM,
        "admin token": TOKEN, "password of Redis": OF_REDIS, "password of PostgreSQL": password,
    }  # fmt: skip
    seen = Seen(secrets, keys=[OF_FILE, OF_NOBODY])
    async with running(configured(server, tmp_path, with_it), tmp_path) as gateway:
        async with admin_client(await admin_address(gateway), TOKEN) as admin:
            made = (await admin.post(API + "/callers/search/keys", json={"name": "made"})).json()
            limited = (await admin.post(API + "/callers", json={"name": "lab", "limits": "small"})).json()
            other = (await admin.post(API + f"/callers/{limited['id']}/keys", json={})).json()
            revoked = (await admin.post(API + "/callers/search/keys", json={})).json()
            await admin.delete(API + f"/keys/{revoked['id']}")
        for each in (made, other, revoked):
            secrets[f"made key {each['id']}"] = each["key"]
            seen.keys.append(each["key"])
        await until(gateway, made["key"], (200, None))
        for key in (OF_FILE, made["key"], other["key"], revoked["key"]):
            await use(gateway, server, key, seen)
        await administer(gateway, seen)
        await commands(gateway, tmp_path, seen)
        seen.add("processes", processes(gateway))
        files(tmp_path, gateway, seen)
        await postgres.allow(postgres_server, postgres_url, connections=False)
        await gateway.wait_line(event="keys_lost")
        seen.reply("unknown key without the database", await gateway.client.get(
            "/v1/models", headers={"authorization": f"Bearer {OF_NOBODY}"}
        ))  # fmt: skip
        await administer(gateway, seen)
        await postgres.allow(postgres_server, postgres_url, connections=True)
        await gateway.wait_line(event="keys_found_again")
        seen.reply("metrics", await gateway.client.get("/metrics"))
    seen.add("log", gateway.transcript())
    await columns(postgres_url, seen)
    files(tmp_path, gateway, seen)
    assert {
        "log",
        "processes",
        "keys.digest",
        "ledger.caller",
        "audit.change",
        "file rows.csv",
    } <= seen.outputs.keys()
    assert any(place.startswith("file callers-copy") for place in seen.outputs)
    assert seen.leaks(but_digests=("keys.digest", "file callers-copy")) == set()


def test_the_search_finds_what_it_looks_for(tmp_path: Path) -> None:
    seen = Seen({"key": OF_FILE}, keys=[OF_FILE])
    seen.add("plain", f"said {OF_FILE}")
    seen.add("hex", hashlib.sha256(OF_FILE.encode()).hexdigest().upper())
    file = tmp_path / "x.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE t (digest BLOB)")
        connection.execute("INSERT INTO t VALUES (?)", (hashlib.sha256(OF_FILE.encode()).digest(),))
        connection.commit()
    seen.add("file", file.read_bytes())
    digest = f"digest of {OF_FILE[:9]}"
    assert seen.leaks() == {("key", "plain"), (digest, "hex"), (digest, "file")}
