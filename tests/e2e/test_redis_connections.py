"""Counters at a server as operators have it: with TLS, users, a Unix socket, or as a part of a cluster."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest_asyncio
import redis
import trustme

from harness.gateway_process import GatewayProcess
from harness.redis_server import RedisServer, free_port, redis_server
from sluicegate.testing import Script, ScriptedUpstream

WAIT_SECONDS = 60.0
# How long these gateways wait for the server.
PATIENCE = 5.0
# What the scripts and a new connection do, and nothing else.
COMMANDS = (
    "+eval +evalsha +time +hget +hset +hgetall +hincrby +hdel +get +set +incrby +expire +expireat +select"
)


@pytest_asyncio.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream(Script(tokens=3)) as running:
        yield running


@contextlib.asynccontextmanager
async def gateway(
    upstream: ScriptedUpstream, directory: Path, **storage: Any
) -> AsyncIterator[GatewayProcess]:
    config = {
        "upstreams": {"local": {"base_url": upstream.base_url}},
        "models": {"m": "local"},
        "limits": {"three": {"requests": "3/hour", "tokens": "1M/day"}},
        "keys": [{"name": "a", "key": "sk-a", "limits": "three"}],
        "storage": storage,
    }
    launcher = ("harness.patient_launcher", str(PATIENCE))
    running = await GatewayProcess.start(config, directory, launcher=launcher)
    try:
        yield running
    finally:
        await running.stop()


async def asked(running: GatewayProcess) -> int:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 3}
    headers = {"authorization": "Bearer sk-a"}
    reply = await running.client.post("/v1/chat/completions", json=body, headers=headers)
    return reply.status_code


async def counts_there(running: GatewayProcess, client: "redis.Redis") -> None:
    """The server has what was used, and the gateway goes by what it has."""
    await running.wait_metrics(lambda samples: samples.value("sluicegate_counters_gateways") == 1)
    assert await asked(running) == 200
    [key] = client.keys("*:requests:*")
    async with asyncio.timeout(WAIT_SECONDS):
        while (used := [int(amount) for amount in client.hvals(key)]) != [1]:
            assert used in ([], [1])
            await asyncio.sleep(0.01)
    [place] = client.hkeys(key)
    client.hset(key, place, 3)
    assert await asked(running) == 429


async def test_tls_with_an_authority_of_ones_own(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    certificate.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    for number, blob in enumerate(certificate.cert_chain_pems):
        blob.write_to_path(str(tmp_path / "cert.pem"), append=number > 0)
    port = free_port()
    files = ("--tls-cert-file", str(tmp_path / "cert.pem"), "--tls-key-file", str(tmp_path / "key.pem"))
    arguments = ("--tls-port", str(port), "--tls-auth-clients", "no", *files)
    url = f"rediss://localhost:{port}"
    with redis_server(tmp_path, *arguments) as server, server.client() as client:
        async with gateway(
            upstream, tmp_path, counters=url, counters_ca_file=str(tmp_path / "ca.pem")
        ) as running:
            await counts_there(running, client)
        client.flushall()
        # Nobody vouches for it; and its name is another one.
        async with gateway(upstream, tmp_path, counters=url) as running:
            line = await running.wait_line(event="counters_lost")
            assert "CERTIFICATE_VERIFY_FAILED" in line["reason"]
        async with gateway(
            upstream,
            tmp_path,
            counters=f"rediss://127.0.0.1:{port}",
            counters_ca_file=str(tmp_path / "ca.pem"),
        ) as running:
            line = await running.wait_line(event="counters_lost")
            assert "IP address mismatch" in line["reason"]
        assert client.keys("*") == []


async def test_a_user_that_may_do_no_more_than_is_needed(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    with redis_server(tmp_path) as server, server.client() as client:
        rights = ["~{sluicegate}*", "-@all", *COMMANDS.split()]
        client.execute_command("ACL", "SETUSER", "gateway", "on", ">p@ss/word", *rights)
        client.execute_command("ACL", "SETUSER", "default", "nocommands", "+acl", "+ping", "+keys")
        url = f"redis://gateway:p%40ss%2Fword@127.0.0.1:{server.port}/2"
        with redis.Redis(port=server.port, db=2, username="root", password="r") as root:
            client.execute_command("ACL", "SETUSER", "root", "on", ">r", "~*", "+@all")
            async with gateway(upstream, tmp_path, counters=url) as running:
                await counts_there(running, root)
        async with gateway(upstream, tmp_path, counters=url.replace("word", "words")) as running:
            line = await running.wait_line(event="counters_lost")
            assert "WRONGPASS" in line["reason"]
            assert "words" not in str(line)
            # Each gateway keeps to the limits by itself.
            assert [await asked(running) for _ in range(4)] == [200, 200, 200, 429]
        async with gateway(upstream, tmp_path, counters=server.url) as running:
            line = await running.wait_line(event="counters_lost")
            assert "NOPERM" in line["reason"]


async def test_a_unix_socket_and_a_password(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    with redis_server(tmp_path, "--unixsocket", str(path)) as server, server.client() as client:
        client.config_set("requirepass", "secret")
        url = f"unix://:secret@{path}?db=1"
        with redis.Redis(port=server.port, db=1, password="secret") as selected:
            async with gateway(upstream, tmp_path, counters=url) as running:
                await counts_there(running, selected)


@contextlib.contextmanager
def cluster(directory: Path, *slots: tuple[int, int]) -> Iterator[list[RedisServer]]:
    """A cluster of servers which have these slots each."""
    with contextlib.ExitStack() as stack:
        servers: list[RedisServer] = []
        buses: list[str] = []
        for number, (first, last) in enumerate(slots):
            own = directory / f"redis-{number}"
            own.mkdir()
            bus = str(free_port())
            arguments = ("--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", "5000")
            server = stack.enter_context(redis_server(own, *arguments))
            servers.append(server)
            buses.append(bus)
            client = stack.enter_context(server.client())
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            if number:
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", servers[0].port, buses[0])
        deadline = time.monotonic() + WAIT_SECONDS
        for server in servers:
            with server.client() as client:
                while "'cluster_state': 'ok'" not in str(client.execute_command("CLUSTER INFO")):
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
        yield servers


async def test_a_cluster_of_one_shard(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    with cluster(tmp_path, (0, 16383)) as [server], server.client() as client:
        async with gateway(upstream, tmp_path, counters=server.url) as running:
            await counts_there(running, client)


async def test_the_server_of_a_cluster_that_has_the_keys_is_found(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    with cluster(tmp_path, (0, 8191), (8192, 16383)) as servers:
        with servers[0].client() as client:
            slot = client.execute_command("CLUSTER KEYSLOT", "{sluicegate}")
        having, other = servers if slot < 8192 else servers[::-1]
        with having.client() as client:
            for server in (other, having):
                async with gateway(upstream, tmp_path, counters=server.url) as running:
                    await counts_there(running, client)
                client.flushall()


async def test_a_sentinel_is_no_server_of_counters(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    file = tmp_path / "sentinel.conf"
    file.touch()
    with redis_server(tmp_path, str(file), "--sentinel") as server:
        async with gateway(upstream, tmp_path, counters=server.url) as running:
            line = await running.wait_line(event="counters_lost")
            assert "unknown command" in line["reason"]


async def test_a_replica_counts_nothing(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    (tmp_path / "replica").mkdir()
    with redis_server(tmp_path) as server:
        arguments = ("--replicaof", "127.0.0.1", str(server.port))
        with redis_server(tmp_path / "replica", *arguments) as replica:
            async with gateway(upstream, tmp_path, counters=replica.url) as running:
                line = await running.wait_line(event="counters_lost")
                assert "READONLY" in line["reason"] or "LOADING" in line["reason"]


async def test_a_server_that_forgets_the_scripts_is_told_them_again(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    with redis_server(tmp_path) as server, server.client() as client:
        async with gateway(upstream, tmp_path, counters=server.url) as running:
            assert await asked(running) == 200
            client.script_flush()
            # What was under way then is held against the limits by the gateway itself, and counts.
            assert [await asked(running) for _ in range(3)] == [200, 200, 429]
            samples = await running.metrics()
            assert samples.value("sluicegate_counters_failures_total") == 1
            assert samples.value("sluicegate_counters_lost") == 0
