"""The admin API of a real gateway: who may ask it, and what it says and does of deployments."""

import asyncio
import socket
import ssl
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
import trustme

from fakes.exposition import Samples
from harness.admin_stand import API, OPERATOR, TOKENS, VIEWER, admin_address, admin_client, asked, listed
from harness.gateway_process import GatewayProcess, StartGateway
from harness.shared_gateway import shared_gateway
from sluicegate.testing import Script, ScriptedUpstream

pytestmark = pytest.mark.asyncio(loop_scope="module")

UPSTREAM_KEY = "sk-of-the-upstream"


@dataclass(frozen=True)
class Stand:
    gateway: GatewayProcess
    upstreams: dict[str, ScriptedUpstream]
    operator: httpx.AsyncClient
    viewer: httpx.AsyncClient
    address: str
    socket: Path

    async def ask(self, model: str) -> str:
        """The deployment that served one request."""
        reply = await self.gateway.client.post("/v1/chat/completions", json=asked(model))
        reply.raise_for_status()
        return reply.headers["x-sluicegate-deployment"]

    async def state(self, deployment: str) -> str:
        found = await self.viewer.get(f"{API}/deployments/{deployment}")
        return str(found.raise_for_status().json()["state"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    directory = tmp_path_factory.mktemp("admin")
    path = directory / "admin.sock"
    async with ScriptedUpstream() as a, ScriptedUpstream() as b:
        upstreams = {"a": a, "b": b}
        config: dict[str, Any] = {
            "upstreams": {
                name: {"base_url": upstream.base_url, "api_key": UPSTREAM_KEY}
                for name, upstream in upstreams.items()
            },
            "models": {"m": ["a/m", "b/m"], "alone": "a/org/alone", "kept": "b/kept"},
            "cost": {"genai_prices": False},
            "access": "open",
            "admin": {"port": 0, "socket": str(path), "tokens": TOKENS, "hosts": ["admin.example"]},
            "storage": {"directory": str(directory / "state")},
            "health": {},
        }
        async with shared_gateway(config, directory) as gateway:
            address = await admin_address(gateway)
            async with admin_client(address, OPERATOR) as operator, admin_client(address, VIEWER) as viewer:
                yield Stand(gateway, upstreams, operator, viewer, address, path)


# === who may ask ===


async def test_metrics_and_health_are_here_and_metrics_nowhere_else(stand: Stand) -> None:
    await stand.ask("m")
    metrics = await stand.viewer.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    samples = Samples(metrics.text)
    assert samples.value("sluicegate_deployment_state", deployment="a/m", state="usable") == 1
    public = await stand.gateway.client.get("/metrics")
    assert (public.status_code, public.json()["error"]["code"]) == (403, "metrics_not_public")
    async with admin_client(stand.address, None) as nobody:
        assert (await nobody.get("/metrics")).status_code == 401
        assert (await nobody.get("/healthz")).json() == {"status": "ok"}
        assert (await nobody.get("/readyz")).json() == {"status": "ready"}
        assert (await nobody.get(f"{API}/configuration")).status_code == 401
    served = (await stand.viewer.get(f"{API}/configuration")).json()
    assert (Path(served["path"]).suffix, len(served["hash"]), served["failed"]) == (".yaml", 16, None)


async def test_whoever_views_changes_nothing(stand: Stand) -> None:
    refused = await stand.viewer.post(f"{API}/deployments/a/m/eject")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_allowed")
    assert await stand.state("a/m") == "usable"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.1.2.3", ""])
async def test_a_name_that_was_made_to_lead_here_is_refused(stand: Stand, host: str) -> None:
    refused = await stand.operator.get(f"{API}/deployments", headers={"host": host})
    assert (refused.status_code, refused.json()["error"]["code"]) == (421, "wrong_host")
    for accepted in ("localhost", "admin.example:443", "127.0.0.1"):
        assert (await stand.operator.get("/healthz", headers={"host": accepted})).status_code == 200


async def test_no_page_of_another_site_may_read_an_answer(stand: Stand) -> None:
    origin = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    asks = [
        await stand.operator.options(f"{API}/deployments", headers=origin),
        await stand.operator.get(f"{API}/deployments", headers=origin),
    ]
    for reply in asks:
        assert not [name for name in reply.headers if name.startswith("access-control")]
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["x-content-type-options"] == "nosniff"


async def test_wrong_paths_and_methods_are_errors_in_openais_form(stand: Stand) -> None:
    for method, path, status, code in (
        ("GET", "/", 404, "unknown_url"),
        ("GET", f"{API}/nothing", 404, "unknown_url"),
        ("GET", f"{API}/deployments/", 404, "not_found"),
        ("GET", f"{API}/deployments/no/such", 404, "not_found"),
        ("POST", f"{API}/deployments/no/such/eject", 404, "not_found"),
        ("DELETE", f"{API}/deployments", 405, "method_not_allowed"),
        ("POST", "/metrics", 405, "method_not_allowed"),
        ("GET", f"{API}/deployments?limit=0", 400, "invalid_parameter"),
    ):
        reply = await stand.operator.request(method, path)
        assert (reply.status_code, reply.json()["error"]["code"]) == (status, code), path


async def test_the_socket_is_this_users_and_needs_no_token(stand: Stand) -> None:
    assert stat.S_IMODE(stand.socket.stat().st_mode) == 0o600
    assert [entry.name for entry in stand.socket.parent.iterdir() if entry.name.startswith(".")] == []
    transport = httpx.AsyncHTTPTransport(uds=str(stand.socket))
    async with httpx.AsyncClient(transport=transport, base_url="http://anything") as local:
        assert (await local.post(f"{API}/deployments/b/kept/eject")).json()["state"] == "taken_off"
        assert (await local.post(f"{API}/deployments/b/kept/restore")).json()["state"] == "usable"
    line = await stand.gateway.wait_line(event="admin_change", subject="b/kept")
    assert (line["who"], line["what"]) == ("socket", "deployment.eject")
    audit = await listed(stand.viewer, "/audit", "before", subject="b/kept", limit=1)
    assert [(each["actor"], each["action"]) for each in audit] == [
        ("socket", "deployment.restore"),
        ("socket", "deployment.eject"),
    ]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /metrics HTTP/1.1\r\n{token}\r\n", 421),
        ("GET /healthz HTTP/1.0\r\n\r\n", 421),
        ("GET /metrics HTTP/1.1\r\n{host}Host: evil.example\r\n{token}\r\n", 421),
        ("GET http://127.0.0.1/metrics HTTP/1.1\r\nHost: evil.example\r\n{token}\r\n", 421),
        ("GET /metrics HTTP/1.1\r\n{host}{token}{token}\r\n", 401),
        # What nobody may send is not waited for.
        ("POST {api}/callers HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\nf\r\n", 401),
        ("GET {api}/deployments/%00%0d%0a HTTP/1.1\r\n{host}{token}\r\n", 404),
        ("GET {api}/requests?caller=%00 HTTP/1.1\r\n{host}{token}\r\n", 400),
        ("GET {api}/callers/%ed%a0%80 HTTP/1.1\r\n{host}{token}\r\n", 404),
    ],
)
async def test_requests_as_no_client_library_sends_them(stand: Stand, head: str, status: int) -> None:
    host, port = stand.address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    text = head.format(host=f"Host: {host}\r\n", token=f"Authorization: Bearer {OPERATOR}\r\n", api=API)
    writer.write(text.encode())
    try:
        async with asyncio.timeout(20):
            line = await reader.readline()
    finally:
        writer.close()
    assert int(line.split()[1]) == status


async def test_idle_connections_keep_nobody_out(stand: Stand) -> None:
    host, port = stand.address.removeprefix("http://").split(":")
    idle = [await asyncio.open_connection(host, int(port)) for _ in range(50)]
    assert (await stand.viewer.get("/healthz")).status_code == 200
    for _, writer in idle:
        writer.close()


# === deployments ===


async def test_deployments_are_listed_in_pages(stand: Stand) -> None:
    found = await listed(stand.viewer, "/deployments", "after", limit=3)
    names = [each["name"] for each in found]
    assert names == ["a/m", "a/org/alone", "b/kept", "b/m"]


async def test_taking_one_off_moves_the_load_and_putting_it_back_brings_it_back(stand: Stand) -> None:
    assert {await stand.ask("m") for _ in range(5)} == {"a/m"}
    taken = await stand.operator.post(f"{API}/deployments/a/m/eject")
    assert (taken.json()["state"], taken.json()["models"]) == ("taken_off", ["m"])
    assert {await stand.ask("m") for _ in range(5)} == {"b/m"}
    samples = Samples((await stand.viewer.get("/metrics")).text)
    assert samples.value("sluicegate_deployment_state", deployment="a/m", state="taken_off") == 1
    assert samples.value("sluicegate_breaker_open", model="m", upstream="a") == 1
    back = await stand.operator.post(f"{API}/deployments/a/m/restore")
    assert back.json()["state"] == "usable"
    assert {await stand.ask("m") for _ in range(5)} == {"a/m"}


async def test_a_stream_goes_on_where_its_deployment_is_taken_off(stand: Stand) -> None:
    stand.upstreams["b"].enqueue(Script(tokens=10_000, pace=0.01))
    async with stand.gateway.client.stream(
        "POST", "/v1/chat/completions", json=asked("kept", stream=True)
    ) as reply:
        lines = reply.aiter_lines()
        await anext(lines)
        await stand.operator.post(f"{API}/deployments/b/kept/eject")
        found = (await stand.viewer.get(f"{API}/deployments/b/kept")).json()
        assert (found["state"], found["in_flight"]) == ("taken_off", 1)
        for _ in range(10):
            assert await anext(lines) is not None
    await stand.operator.post(f"{API}/deployments/b/kept/restore")


async def test_a_model_without_any_is_refused_in_words(stand: Stand) -> None:
    await stand.operator.post(f"{API}/deployments/a/org/alone/eject")
    refused = await stand.gateway.client.post("/v1/chat/completions", json=asked("alone"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "all_taken_off")
    await stand.operator.post(f"{API}/deployments/a/org/alone/restore")
    assert await stand.ask("alone") == "a/org/alone"


async def test_faults_are_shown_and_restoring_ends_an_ejection(stand: Stand) -> None:
    stand.upstreams["a"].enqueue(*[Script(status=500)] * 5)
    for _ in range(5):
        assert await stand.ask("m") == "b/m"
    found = (await stand.viewer.get(f"{API}/deployments/a/m")).json()
    assert found["state"] == "ejected"
    assert found["back_in"] > 0
    assert [each["reason"] for each in found["faults"]] == ["500"] * 5
    assert (await stand.operator.post(f"{API}/deployments/a/m/restore")).json()["state"] == "usable"
    assert await stand.ask("m") == "a/m"


async def test_no_answer_has_a_secret_in_it(stand: Stand) -> None:
    answers = [await stand.operator.get(path) for path in ("/metrics", f"{API}/deployments", "/readyz")]
    for secret in (OPERATOR, VIEWER, UPSTREAM_KEY):
        assert all(secret not in each.text for each in answers)
        assert secret not in stand.gateway.transcript()


# === other configurations ===


@pytest.mark.asyncio(loop_scope="function")
async def test_a_server_is_taken_off_while_the_database_is_away(
    gateway: StartGateway, upstream: ScriptedUpstream
) -> None:
    with socket.socket() as silent:
        # It accepts, and never says anything.
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"postgresql://nobody@127.0.0.1:{silent.getsockname()[1]}/none"
        process = await gateway(plain(upstream, tokens=TOKENS, storage={"database": url}))
        process.may_complain = True
        async with admin_client(await admin_address(process), OPERATOR) as operator:
            taken = await operator.post(f"{API}/deployments/a/m/eject")
            assert (taken.status_code, taken.json()["state"]) == (200, "taken_off")
        await process.wait_line(event="audit_failed", subject="a/m")
        assert await process.stop() == 0


@pytest.mark.asyncio(loop_scope="function")
async def test_five_wrong_tokens(gateway: StartGateway, upstream: ScriptedUpstream) -> None:
    process = await gateway(plain(upstream, tokens=TOKENS))
    address = await admin_address(process)
    async with admin_client(address, "no-such-token-at-all") as guessing:
        for _ in range(5):
            assert (await guessing.get("/metrics")).status_code == 401
        late = await guessing.get("/metrics")
    assert (late.status_code, late.json()["error"]["code"]) == (429, "too_many_failures")
    assert int(late.headers["retry-after"]) > 0
    async with admin_client(address, OPERATOR) as operator:
        metrics = await operator.get("/metrics")
    assert metrics.status_code == 200, "who has a token is not locked out with whoever guesses"
    assert "sluicegate_admin_wrong_tokens_total 6.0" in metrics.text


@pytest.mark.asyncio(loop_scope="function")
async def test_without_tokens_one_is_made(
    gateway: StartGateway, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    process = await gateway(plain(upstream, storage={"directory": str(tmp_path / "state")}))
    file = tmp_path / "state" / "admin.token"
    assert (await process.wait_line(event="admin_listening"))["token_file"] == str(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    token = file.read_text().strip()
    assert token not in process.transcript()
    async with admin_client(await admin_address(process), token) as operator:
        assert (await operator.post(f"{API}/deployments/a/m/eject")).status_code == 200
    again = await gateway(plain(upstream, storage={"directory": str(tmp_path / "state")}))
    assert file.read_text().strip() != token
    assert [entry.name for entry in file.parent.iterdir() if entry.name.startswith(".")] == []
    async with admin_client(await admin_address(again), token) as old:
        assert (await old.get("/metrics")).status_code == 401


@pytest.mark.asyncio(loop_scope="function")
async def test_over_tls(gateway: StartGateway, upstream: ScriptedUpstream, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    for pem in certificate.cert_chain_pems:
        pem.write_to_path(tmp_path / "cert.pem", append=True)
    tls = {"cert_file": str(tmp_path / "cert.pem"), "key_file": str(tmp_path / "key.pem")}
    process = await gateway(plain(upstream, tokens=TOKENS, tls=tls))
    address = await admin_address(process)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    async with admin_client(address, VIEWER, verify=context) as viewer:
        assert (await viewer.get("/metrics")).status_code == 200
    assert address.startswith("https://")


@pytest.mark.asyncio(loop_scope="function")
async def test_a_socket_that_was_left_is_replaced_and_one_in_use_is_not(
    gateway: StartGateway, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    path = tmp_path / "admin.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    config = plain(upstream, port=None, socket=str(path))
    first = await gateway(config)
    transport = httpx.AsyncHTTPTransport(uds=str(path))
    async with httpx.AsyncClient(transport=transport, base_url="http://local") as local:
        assert (await local.get("/readyz")).status_code == 200
        with pytest.raises(AssertionError, match="another process listens on it"):
            await gateway(config)
        assert (await local.get("/readyz")).status_code == 200
    assert await first.stop() == 0
    assert not path.exists()


@pytest.mark.asyncio(loop_scope="function")
async def test_two_processes_on_one_port_share_the_address_and_the_newer_has_the_socket(
    gateway: StartGateway, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    path = tmp_path / "admin.sock"
    config = {**plain(upstream, socket=str(path), tokens=TOKENS), "server": {"reuse_port": True}}
    old = await gateway(config)
    address = await admin_address(old)
    config["server"]["port"] = int(old.base_url.rpartition(":")[2])
    config["admin"]["port"] = int(address.rpartition(":")[2])
    new = await gateway(config)
    assert await admin_address(new) == address
    assert await old.stop() == 0
    transport = httpx.AsyncHTTPTransport(uds=str(path))
    async with httpx.AsyncClient(transport=transport, base_url="http://local") as local:
        assert (await local.get("/readyz")).json() == {"status": "ready"}
    async with admin_client(address, VIEWER) as viewer:
        assert (await viewer.get("/metrics")).status_code == 200
    assert await new.stop() == 0
    assert not path.exists()


def plain(upstream: ScriptedUpstream, **admin: Any) -> dict[str, Any]:
    storage = admin.pop("storage", {})
    return {
        "upstreams": {"a": {"base_url": upstream.base_url}},
        "models": {"m": "a/m"},
        "cost": {"genai_prices": False},
        "access": "open",
        "admin": {"port": 0, **admin},
        "storage": storage,
    }
