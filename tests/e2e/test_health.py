"""Health and retries through a real gateway: what each outcome does, half-open trials, probes, deadlines."""

import asyncio
import itertools
import json
import signal
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from fakes.exposition import Samples
from harness.gateway_process import GatewayProcess, Line, StartGateway, StartUpstream
from harness.shared_gateway import shared_gateway
from sluicegate.testing import Fault, Script, ScriptedUpstream

CHAT = "/v1/chat/completions"
FIRST_TOKEN = 1.0
"""Seconds of a deadline that only an upstream that sends nothing misses."""

_ids = itertools.count(1)


def unused_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@dataclass(frozen=True)
class Row:
    """One row of the table: how the upstream ends an attempt, and what follows."""

    name: str
    mock: dict[str, Any]
    elsewhere: bool
    again: bool
    state: str
    upstream: dict[str, Any] = field(default_factory=dict)


def fault(action: str, **more: Any) -> dict[str, Any]:
    return {"faults": [{"action": action, **more}]}


BLAMED = {"message": "Too many tokens.", "type": "invalid_request_error"}
NO_FILE = {"message": "No such file.", "type": "invalid_request_error", "code": None}
WAITS = {"retry-after": "60"}
ROWS = [
    Row("reset", fault("close", at="before_head"), elsewhere=True, again=True, state="ejected"),
    Row("status-500", {"status": 500}, elsewhere=True, again=False, state="ejected"),
    Row("status-529", {"status": 529}, elsewhere=True, again=False, state="ejected"),
    Row("status-503", {"status": 503}, elsewhere=True, again=True, state="ejected"),
    Row("busy-503", {"status": 503, "headers": WAITS}, elsewhere=True, again=False, state="resting"),
    Row("busy-429", {"status": 429, "headers": WAITS}, elsewhere=True, again=False, state="resting"),
    Row("status-401", {"status": 401}, elsewhere=True, again=False, state="refusing"),
    Row("status-402", {"status": 402}, elsewhere=True, again=False, state="refusing"),
    Row("status-403", {"status": 403}, elsewhere=True, again=False, state="ejected"),
    Row("no-model", {"status": 404}, elsewhere=True, again=False, state="refusing"),
    Row("no-file", {"status": 404, "error": NO_FILE}, elsewhere=True, again=False, state="usable"),
    Row("status-409", {"status": 409}, elsewhere=True, again=False, state="usable"),
    Row("status-400", {"status": 400}, elsewhere=False, again=False, state="usable"),
    Row("status-422", {"status": 422}, elsewhere=False, again=False, state="usable"),
    Row("error", fault("error", events=0), elsewhere=True, again=False, state="ejected"),
    Row("error-400", fault("error", events=0, error=BLAMED), elsewhere=False, again=False, state="usable"),
    Row("truncated", fault("close", at="after_head"), elsewhere=True, again=False, state="ejected"),
    Row("later-truncated", fault("close", events=4), elsewhere=False, again=False, state="ejected"),
    Row("later-error", fault("error", events=4), elsewhere=False, again=False, state="ejected"),
    Row(
        "silent",
        fault("stall", at="after_head"),
        elsewhere=True,
        again=False,
        state="ejected",
        upstream={"deadlines": {"first_token": FIRST_TOKEN, "first_byte": FIRST_TOKEN}},
    ),
    Row(
        "nobody",
        {},
        elsewhere=True,
        again=True,
        state="ejected",
        upstream={"base_url": f"http://127.0.0.1:{unused_port()}/v1"},
    ),
]


@dataclass(frozen=True)
class Stand:
    gateway: GatewayProcess
    bad: ScriptedUpstream
    spare: ScriptedUpstream

    async def ask(self, model: str, mock: dict[str, Any] | None = None, **headers: str) -> Line:
        """The log line of a stream of `model`, read to its end; `mock`: what the bad upstream does."""
        request_id = f"health-{next(_ids)}"
        sent = {"x-request-id": request_id, "x-mock": json.dumps(mock or {}), **headers}
        reading = self.gateway.client.stream("POST", CHAT, json=asked(model), headers=sent)
        async with reading as reply:
            with_errors = [chunk async for chunk in reply.aiter_raw()]
        assert with_errors or reply.status_code == 200
        return await self.gateway.wait_request(request_id=request_id)

    async def state(self, deployment: str) -> str:
        return await state_of(self.gateway, deployment)


def asked(model: str) -> dict[str, Any]:
    return {"model": model, "stream": True, "messages": [{"role": "user", "content": "Hi."}]}


async def state_of(gateway: GatewayProcess, deployment: str) -> str:
    samples = await gateway.metrics()
    (found,) = (state for state in STATES if is_in(samples, deployment, state))
    return found


async def wait_state(gateway: GatewayProcess, deployment: str, state: str) -> None:
    await gateway.wait_metrics(lambda samples: is_in(samples, deployment, state))


def is_in(samples: Samples, deployment: str, state: str) -> bool:
    value = samples.value("sluicegate_deployment_state", deployment=deployment, state=state)
    assert value is not None, samples.text
    return value == 1


STATES = ("usable", "ejected", "half_open", "resting", "refusing")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    async with ScriptedUpstream() as bad, ScriptedUpstream() as spare:
        upstreams: dict[str, Any] = {"spare": {"base_url": spare.base_url}}
        models: dict[str, Any] = {}
        for row in ROWS:
            told = {"base_url": bad.base_url, "forward_headers": ["x-mock"], **row.upstream}
            # Two upstreams to the configuration: what one has done is not held against the other.
            upstreams[row.name] = upstreams[f"{row.name}-alone"] = told
            models[row.name] = [f"{row.name}/m", "spare/m"]
            models[f"{row.name}-alone"] = {
                "routes": [f"{row.name}-alone/m"],
                "retry": {"attempts": 2, "backoff": [0, 0.5]},
            }
        config = {
            "upstreams": upstreams,
            "models": models,
            "health": {"consecutive": 2, "eject": 600, "eject_at_most": 600},
        }
        async with shared_gateway(config, tmp_path_factory.mktemp("gateway")) as gateway:
            yield Stand(gateway, bad, spare)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
async def test_each_outcome_has_its_row(stand: Stand, row: Row) -> None:
    line = await stand.ask(row.name, row.mock)
    assert line["attempts"] == (2 if row.elsewhere else 1)
    assert line["upstream"] == ("spare" if row.elsewhere else row.name)
    await stand.ask(row.name, row.mock)
    assert await stand.state(f"{row.name}/m") == row.state
    if row.state != "usable" and row.elsewhere:
        line = await stand.ask(row.name, row.mock)
        assert (line["upstream"], line["attempts"]) == ("spare", 1), "it is left alone"

    line = await stand.ask(f"{row.name}-alone", row.mock)
    assert line["attempts"] == (2 if row.again else 1)
    assert {tried["upstream"] for tried in line.get("tries", ())} <= {f"{row.name}-alone"}


@pytest.mark.asyncio(loop_scope="module")
async def test_changes_are_logged_once(stand: Stand) -> None:
    await stand.ask("status-500", {"status": 500})
    for _ in range(3):
        await stand.ask("status-500", {"status": 500})
        await stand.ask("nobody")
    lines = [line for line in stand.gateway.find(event="ejected") if line.get("deployment") == "status-500/m"]
    assert len(lines) == 1
    assert (lines[0]["reason"], lines[0]["level"]) == ("500", "warning")
    assert stand.gateway.find(event="ejected", upstream="nobody")


# === with upstreams of their own ===

STALLED = Script(faults=(Fault(action="stall", events=2),))
SILENT = Script(faults=(Fault(action="stall", at="after_head"),))
FAILS = Script(status=500)


def pair(first: ScriptedUpstream, second: ScriptedUpstream, **health: Any) -> dict[str, Any]:
    return {
        "upstreams": {"first": {"base_url": first.base_url}, "second": {"base_url": second.base_url}},
        "models": {"m": ["first/m", "second/m"]},
        "health": {"consecutive": 2, "eject": 0.2, "eject_at_most": 600, **health},
    }


async def stream(gateway: GatewayProcess, **headers: str) -> Line:
    """The log line of a stream of `m`, read to its end."""
    request_id = f"health-{next(_ids)}"
    sent = {"x-request-id": request_id, **headers}
    async with gateway.client.stream("POST", CHAT, json=asked("m"), headers=sent) as reply:
        await reply.aread()
    return await gateway.wait_request(request_id=request_id)


async def test_while_one_request_finds_out_all_others_go_elsewhere(
    gateway: StartGateway, start_upstream: StartUpstream
) -> None:
    first, second = await start_upstream(FAILS), await start_upstream()
    process = await gateway(pair(first, second))
    for _ in range(2):
        assert (await stream(process))["upstream"] == "second"
    await wait_state(process, "first/m", "half_open")

    first.script = SILENT
    before = len(first.requests)
    trial = asyncio.create_task(process.client.post(CHAT, json=asked("m")))
    await first.requests.wait(before + 1)
    lines = await asyncio.gather(*(stream(process) for _ in range(12)))
    assert {(line["upstream"], line["attempts"]) for line in lines} == {("second", 1)}
    assert len(first.requests) == before + 1
    assert await state_of(process, "first/m") == "half_open"

    # Its client leaves, which says nothing: another may find out.
    trial.cancel()
    await process.wait_request(client_left=True)
    first.script = STALLED
    async with process.client.stream("POST", CHAT, json=asked("m")) as long:
        # With its first output it is found out, however long the stream lasts.
        await anext(long.aiter_raw())
        await wait_state(process, "first/m", "usable")
        first.script = Script()
        assert (await stream(process))["upstream"] == "first"
    assert process.find(event="restored", deployment="first/m")
    assert (await stream(process))["upstream"] == "first"


async def test_a_model_with_one_deployment_is_never_refused_for_its_health(
    gateway: StartGateway, upstream: ScriptedUpstream
) -> None:
    config = {
        "upstreams": {"first": {"base_url": upstream.base_url}},
        "models": {"m": "first/m"},
        "health": {"consecutive": 1, "eject": 600, "eject_at_most": 600},
    }
    process = await gateway(config)
    upstream.script = FAILS
    for _ in range(5):
        assert (await stream(process))["status"] == 500
    assert len(upstream.requests) == 5
    assert await state_of(process, "first/m") == "ejected"
    upstream.script = Script()
    assert (await stream(process))["status"] == 200
    assert await state_of(process, "first/m") == "usable"


@pytest.mark.parametrize("enabled", [True, False])
async def test_who_refuses_at_once_harms_no_client_and_is_left_alone(
    gateway: StartGateway, start_upstream: StartUpstream, enabled: bool
) -> None:
    refuses, *others = [await start_upstream(script) for script in (Script(status=429), Script(), Script())]
    upstreams = {"refuses": refuses, "one": others[0], "two": others[1]}
    process = await gateway(
        {
            "upstreams": {name: {"base_url": each.base_url} for name, each in upstreams.items()},
            "models": {"m": {"routes": [f"{name}/m" for name in upstreams], "policy": "least_busy"}},
            "health": {"enabled": enabled},
        }
    )
    if enabled:
        for _ in range(60):
            assert (await stream(process))["status"] == 200
        # It rests for 1, 2, 4, 8 and then 10 seconds.
        assert 1 <= len(refuses.requests) <= 30
        assert process.find(event="resting", deployment="refuses/m", reason="429")
        return
    lines = await asyncio.gather(*(stream(process) for _ in range(200)))
    assert {line["status"] for line in lines} == {200}
    assert len(refuses.requests) > 60, "more than the budget of the model pays for"


async def test_the_shortest_wait_is_what_a_client_is_told(
    gateway: StartGateway, start_upstream: StartUpstream
) -> None:
    first = await start_upstream(Script(status=429, headers={"retry-after": "70"}))
    second = await start_upstream(Script(status=429, headers={"retry-after": "200"}))
    process = await gateway(pair(first, second))
    for tried in (2, 0):
        reply = await process.client.post(CHAT, json=asked("m"), headers={"x-request-id": f"tried-{tried}"})
        assert reply.status_code == 429
        error = reply.json()["error"]
        assert (error["code"], error["type"]) == ("all_resting", "rate_limit_error")
        assert reply.headers["x-sluicegate-error"] == "all_resting"
        seconds = int(reply.headers["retry-after"])
        assert 0 < seconds <= 70
        assert seconds * 1000 - 999 <= int(reply.headers["retry-after-ms"]) <= seconds * 1000
        assert f"try again in {seconds} s" in error["message"]
        assert "x-should-retry" not in reply.headers
        line = await process.wait_request(request_id=f"tried-{tried}")
        assert (line["code"], line.get("attempts", 0)) == ("all_resting", tried)


async def test_where_all_rest_clients_are_told_when_to_come_back(
    gateway: StartGateway, start_upstream: StartUpstream
) -> None:
    first = await start_upstream(Script(status=429, headers={"retry-after": "200"}))
    second = await start_upstream(Script(status=429, headers={"retry-after-ms": "100000"}))
    process = await gateway(pair(first, second))
    assert (await stream(process))["status"] == 429
    reply = await process.client.post(CHAT, json=asked("m"))
    assert reply.status_code == 429
    assert reply.json()["error"]["code"] == "all_resting"
    assert 0 < int(reply.headers["retry-after"]) <= 100
    assert 0 < int(reply.headers["retry-after-ms"]) <= 100_000
    assert len(first.requests) == len(second.requests) == 1
    samples = await process.metrics()
    assert samples.value("sluicegate_rests_total", deployment="first/m", reason="429") == 1
    assert samples.value("sluicegate_breaker_open", model="m") == 2


async def test_a_client_that_leaves_or_is_in_a_hurry_harms_nobody(
    gateway: StartGateway, upstream: ScriptedUpstream
) -> None:
    config = {
        "upstreams": {"first": {"base_url": upstream.base_url}},
        "models": {"m": "first/m"},
        "health": {"consecutive": 1},
    }
    process = await gateway(config)
    upstream.script = STALLED
    async with process.client.stream("POST", CHAT, json=asked("m")) as reply:
        await anext(reply.aiter_raw())
    await process.wait_request(client_left=True)
    line = await stream(process, **{"x-sluicegate-timeout": "0.3"})
    assert line["fault"] == "client_timeout"
    assert await state_of(process, "first/m") == "usable"

    for wrong in ("soon", "0", "-1", "nan"):
        refused = await process.client.post(CHAT, json=asked("m"), headers={"x-sluicegate-timeout": wrong})
        assert refused.status_code == 400, wrong
    assert len(upstream.requests) == 2


async def test_retries_have_a_budget(gateway: StartGateway, start_upstream: StartUpstream) -> None:
    first, second = await start_upstream(FAILS), await start_upstream(FAILS)
    config = pair(first, second, enabled=False)
    config["models"]["m"] = {"routes": config["models"]["m"], "retry": {"budget": 0}}
    process = await gateway(config)
    lines = await asyncio.gather(*(stream(process) for _ in range(200)))
    tries = sum(line["attempts"] for line in lines) - len(lines)
    samples = await process.metrics()
    assert samples.value("sluicegate_retries_total", model="m", reason="500") == tries
    assert samples.value("sluicegate_retries_refused_total", model="m") == len(lines) - tries
    # Thirty at once, and three more a second.
    seconds = max(line["duration"] for line in lines)
    assert 30 <= tries <= 30 + 3 * (seconds + 10)


async def test_a_probe_finds_out_what_no_request_has(
    gateway: StartGateway, start_upstream: StartUpstream
) -> None:
    first, second = await start_upstream(), await start_upstream()
    config = pair(first, second, eject=600)
    config["upstreams"]["first"]["probe"] = {"path": "/models", "every": 0.1}
    process = await gateway(config)
    await process.wait_metrics(lambda samples: bool(samples.value("sluicegate_probes_total", result="ok")))

    await first.stop()
    await wait_state(process, "first/m", "ejected")
    line = await process.wait_line(event="ejected", upstream="first")
    assert line["reason"] == "probe"
    assert (await stream(process))["attempts"] == 1
    samples = await process.metrics()
    assert (samples.value("sluicegate_probes_total", upstream="first", result="failed") or 0) >= 3

    await first.start()
    # Ten minutes early: but only to be tried.
    await wait_state(process, "first/m", "half_open")
    assert (await stream(process))["upstream"] == "first"
    assert await state_of(process, "first/m") == "usable"


async def test_states_outlive_a_reload(gateway: StartGateway, start_upstream: StartUpstream) -> None:
    first, second = await start_upstream(FAILS), await start_upstream()
    config = pair(first, second, eject=600)
    process = await gateway(config)
    for _ in range(2):
        await stream(process)
    assert await state_of(process, "first/m") == "ejected"

    written = json.loads(process.config_file.read_text())
    written["models"]["other"] = "second/m"
    process.config_file.write_text(json.dumps(written))
    process.signal(signal.SIGHUP)
    await process.wait_line(event="reloaded")
    assert await state_of(process, "first/m") == "ejected"
    assert (await stream(process))["attempts"] == 1

    # What has become another upstream has done nothing yet.
    written["upstreams"]["first"]["headers"] = {"x-new": "1"}
    process.config_file.write_text(json.dumps(written))
    process.signal(signal.SIGHUP)
    await process.wait_line(count=2, event="reloaded")
    assert await state_of(process, "first/m") == "usable"


async def test_load_comes_back_as_the_weight_grows(
    gateway: StartGateway, start_upstream: StartUpstream
) -> None:
    first, second = await start_upstream(FAILS), await start_upstream()
    config = pair(first, second)
    config["models"]["m"] = {"routes": config["models"]["m"], "policy": "weighted"}
    process = await gateway(config)
    clock = asyncio.get_running_loop().time

    async def ask() -> bool:
        """Whether the first upstream served it."""
        reply = await process.client.post(CHAT, json={**asked("m"), "stream": False})
        assert reply.status_code == 200
        return reply.headers["x-sluicegate-deployment"].startswith("first/")

    while not process.find(event="ejected", deployment="first/m"):
        assert not await ask()
    first.script = Script()
    while not await ask():
        pass
    back, early = clock(), []
    while clock() < back + 2:
        early.append(await ask())
    # A weight of a tenth to a fifth beside one of 1: at most a sixth of them.
    assert len(early) >= 20
    assert sum(early) / len(early) < 0.35
    await asyncio.sleep(back + 10 - clock())
    late = [await ask() for _ in range(100)]
    assert 0.3 < sum(late) / len(late) < 0.7
