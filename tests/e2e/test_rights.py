"""Rights on a real gateway: whose credentials and whose stored responses, and the client's own deadline."""

import asyncio
from typing import Any

from harness.gateway_process import StartGateway
from sluicegate.testing import Fault, Script, ScriptedUpstream

RESPONSES = "/v1/responses"
WAIT_SECONDS = 30.0


async def test_with_open_access_responses_belong_to_the_credentials_that_go_up(
    gateway: StartGateway, upstream: ScriptedUpstream
) -> None:
    process = await gateway(
        {
            "access": "open",
            "upstreams": {"theirs": {"base_url": upstream.base_url, "forward_authorization": True}},
            "models": {"m": "theirs"},
        }
    )
    # Longer than what policies see of a header, the same but for its end; and no bearer tokens.
    long = "x" * 4000
    sent = ["Bearer one", "Bearer two", f"Bearer {long}1", f"Bearer {long}2", "Basic b25l", "Basic dHdv"]
    body = {"model": "m", "input": "Hello."}
    made = []
    for text in sent:
        reply = await process.client.post(RESPONSES, json=body, headers={"authorization": text})
        assert reply.status_code == 200
        made.append(reply.json()["id"])
    for number, id in enumerate(made):
        for text, status in ((sent[number], 200), (sent[number - 1], 404), ("Bearer other", 404)):
            found = await process.client.get(f"{RESPONSES}/{id}", headers={"authorization": text})
            assert found.status_code == status, (number, text[-20:])


async def test_a_client_is_told_that_its_own_deadline_has_ended(
    gateway: StartGateway, upstream: ScriptedUpstream
) -> None:
    process = await gateway(
        {"upstreams": {"first": {"base_url": upstream.base_url}}, "models": {"m": "first"}}
    )
    upstream.script = Script(faults=(Fault(action="stall", at="before_head"),))
    body: dict[str, Any] = {"model": "m", "input": "Hello."}
    headers = {"x-sluicegate-timeout": "0.3"}
    refused = await process.client.post(RESPONSES, json=body, headers=headers)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["type"]) == (
        504, "client_timeout", "invalid_request_error",
    )  # fmt: skip
    assert "upstream" not in error["message"]
    assert refused.headers["x-should-retry"] == "false"
    wrong = {"x-sluicegate-timeout": "abc"}
    refused = await process.client.post(RESPONSES, json={**body, "background": True}, headers=wrong)
    assert refused.status_code == 400
    # Before any output, and in the middle of it.
    for script in (upstream.script, Script(tokens=500, pace=0.02)):
        upstream.script = script
        made = await process.client.post(RESPONSES, json={**body, "background": True}, headers=headers)
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                found = (await process.client.get(f"{RESPONSES}/{made.json()['id']}")).json()
                if found["status"] not in ("queued", "in_progress"):
                    break
                await asyncio.sleep(0.05)
        assert (found["status"], found["error"]["code"]) == ("failed", "client_timeout")
