"""What users of the `openai` package see when something goes wrong."""

import asyncio
import time
from typing import Any

import openai
import pytest

from harness.openai_stand import IMPATIENT, MESSAGES, MODEL, Stand, sdk, stand
from sluicegate.testing import Fault, Framing, Record, Script

__all__ = ["sdk", "stand"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

# The gateway closes the upstream's connection at once; this machine may be busy.
LEAVING_SECONDS = 20.0


async def broken(sdk: Stand, model: str = MODEL, **members: Any) -> tuple[str, openai.APIError, str]:
    """A stream that breaks: the text that came before, the error, and the request's id."""
    stream = await sdk.client.chat.completions.create(model=model, messages=MESSAGES, stream=True, **members)
    text = ""

    async def read() -> None:
        nonlocal text
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""

    with pytest.raises(openai.APIError) as raised:
        await read()
    return text, raised.value, stream.response.headers["x-request-id"]


# === before the reply ===


@pytest.mark.parametrize("stream", [False, True])
async def test_a_wrong_key(sdk: Stand, stream: bool) -> None:
    stranger = sdk.client.with_options(api_key="sk-wrong")
    with pytest.raises(openai.AuthenticationError) as raised:
        await stranger.chat.completions.create(model=MODEL, messages=MESSAGES, stream=stream)
    assert (raised.value.status_code, raised.value.code) == (401, "invalid_api_key")
    assert raised.value.request_id
    with pytest.raises(openai.AuthenticationError):
        await stranger.models.list()
    assert not len(sdk.upstream.requests)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_that_is_not_there(sdk: Stand, stream: bool) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        await sdk.client.chat.completions.create(model="nothing", messages=MESSAGES, stream=stream)
    assert (raised.value.code, raised.value.param) == ("model_not_found", "model")
    assert "`nothing`" in raised.value.message
    assert not len(sdk.upstream.requests)


async def test_a_request_that_the_gateway_refuses(sdk: Stand) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        await sdk.client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_body={"stream": "yes"})
    assert (raised.value.type, raised.value.code) == ("invalid_request_error", "invalid_body")
    assert not len(sdk.upstream.requests)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_the_upstream_refuses(sdk: Stand, stream: bool) -> None:
    error = {"message": "No such role.", "type": "invalid_request_error", "param": "messages", "code": "bad"}
    sdk.upstream.script = Script(status=400, error=error)
    with pytest.raises(openai.BadRequestError) as raised:
        await sdk.client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=stream)
    assert raised.value.body == error
    assert (raised.value.param, raised.value.code) == ("messages", "bad")


async def test_a_rate_limit_with_its_headers(sdk: Stand) -> None:
    headers = {"retry-after": "7", "retry-after-ms": "7000", "x-ratelimit-remaining-requests": "0"}
    sdk.upstream.script = Script(status=429, headers=headers)
    with pytest.raises(openai.RateLimitError) as raised:
        await sdk.client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
    assert raised.value.code == "rate_limit_exceeded"
    assert headers.items() <= raised.value.response.headers.items()
    assert raised.value.request_id == raised.value.response.headers["x-request-id"]


async def test_a_rate_limit_that_the_package_waits_out(sdk: Stand) -> None:
    sdk.upstream.enqueue(Script(status=429, headers={"retry-after-ms": "20"}))
    patient = sdk.client.with_options(max_retries=1)
    completion = await patient.chat.completions.create(model=MODEL, messages=MESSAGES)
    assert completion.choices[0].finish_reason == "stop"
    assert [record.status for record in sdk.upstream.requests] == [429, 200]


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (Script(status=503), 503, "overloaded"),
        (Script(status=500, error="all boats are out"), 500, "status"),
        (Script(status=401), 502, "upstream_authentication"),
        (Script(faults=(Fault(action="reset", at="before_head"),)), 502, "reset"),
        (Script(body=(b"",)), 502, "empty"),
    ],
    ids=["503", "500", "401", "reset", "empty"],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_upstream_in_trouble(
    sdk: Stand, fault: Script, status: int, code: str, stream: bool
) -> None:
    sdk.upstream.script = fault
    with pytest.raises(openai.InternalServerError) as raised:
        await sdk.client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=stream)
    assert (raised.value.status_code, raised.value.code) == (status, code)
    line = await sdk.line(raised.value.request_id)
    assert line["result"] == "failed"


async def test_the_synchronous_client_raises_the_same(sdk: Stand) -> None:
    sdk.upstream.script = Script(faults=(Fault(action="reset", events=4),))

    def calls() -> None:
        create = sdk.sync_client.chat.completions.create
        with pytest.raises(openai.AuthenticationError):
            sdk.sync_client.with_options(api_key="sk-wrong").models.list()
        with pytest.raises(openai.NotFoundError):
            create(model="nothing", messages=MESSAGES)
        stream = create(model=MODEL, messages=MESSAGES, stream=True)
        with stream, pytest.raises(openai.APIError) as raised:
            list(stream)
        assert raised.value.code == "truncated"

    await asyncio.to_thread(calls)


# === in the middle of a stream ===


async def test_an_upstreams_error_event_is_raised(sdk: Stand) -> None:
    error = {"message": "The gate is stuck.", "type": "server_error", "param": None, "code": "stuck"}
    sdk.upstream.script = Script(faults=(Fault(action="error", events=4, error=error),))
    text, raised, request_id = await broken(sdk)
    assert text == "A sluice lets"
    assert (raised.message, raised.code) == ("The gate is stuck.", "stuck")
    line = await sdk.line(request_id)
    assert (line["status"], line["result"], line["fault"]) == (200, "failed", "in_band_error")


@pytest.mark.parametrize("action", ["close", "reset"])
@pytest.mark.parametrize("at", ["events", "mid_event"])
async def test_a_stream_that_breaks_off_is_an_error(sdk: Stand, action: Any, at: Any) -> None:
    sdk.upstream.script = Script(faults=(Fault(action=action, at=at, events=4),))
    text, raised, request_id = await broken(sdk)
    assert text == "A sluice lets"
    # Not a connection's error, which would be retried or hidden: the gateway says what it knows.
    assert not isinstance(raised, openai.APIConnectionError)
    assert (raised.code, raised.type) == ("truncated", "upstream_error")
    assert "local" in raised.message
    line = await sdk.line(request_id)
    assert (line["result"], line["fault"], line["estimated"]) == ("failed", "truncated", True)
    assert line["output_tokens"] == 3


async def test_a_stream_without_an_end_is_an_error(sdk: Stand) -> None:
    """The connection ends in order, the reply does not."""
    event = (
        b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"small","choices":[%s]}\n\n'
    )
    choice = b'{"index":0,"delta":{"content":"A boat"},"finish_reason":null}'
    sdk.upstream.script = Script(body=(event % choice,), content_type="text/event-stream")
    text, raised, _ = await broken(sdk)
    assert text == "A boat"
    assert raised.code == "truncated"


async def test_a_stall_is_an_error_once_patience_is_over(sdk: Stand) -> None:
    stall = Fault(action="stall", events=4, keepalives=True)
    # Keep-alives are no tokens.
    sdk.upstream.script = Script(faults=(stall,), framing=Framing(keepalive_every_seconds=0.05))
    text, raised, request_id = await broken(sdk, IMPATIENT)
    assert text == "A sluice lets"
    assert raised.code == "between_tokens_timeout"
    assert (await sdk.line(request_id))["fault"] == "between_tokens_timeout"
    assert (await sdk.upstream.requests[0].ended()).client_left


async def test_the_helper_raises_too(sdk: Stand) -> None:
    sdk.upstream.script = Script(faults=(Fault(action="close", events=4),))
    async with sdk.client.chat.completions.stream(model=MODEL, messages=MESSAGES) as stream:
        with pytest.raises(openai.APIError) as raised:
            await stream.until_done()
    assert raised.value.code == "truncated"


async def test_an_event_that_is_not_json_is_the_packages_own_error(sdk: Stand) -> None:
    """It is passed on as it came: the gateway does not repair what it does not understand."""
    sdk.upstream.script = Script(faults=(Fault(action="malformed", events=4),))
    stream = await sdk.client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
    with pytest.raises(ValueError, match="char"):
        _ = [chunk async for chunk in stream]
    assert (await sdk.line(stream.response.headers["x-request-id"]))["malformed"] == 1


# === leaving ===


async def left(sdk: Stand, closed_at: float, request_id: str) -> Record:
    record = await sdk.upstream.requests[0].ended()
    assert record.client_left
    assert record.client_left_at is not None
    assert record.client_left_at - closed_at < LEAVING_SECONDS
    line = await sdk.line(request_id)
    assert (line["result"], line["client_left"], line["estimated"]) == ("client_left", True, True)
    assert line["output_tokens"] < 100
    assert float(line["cost"]) > 0
    return record


async def test_closing_a_stream_closes_the_upstreams(sdk: Stand) -> None:
    sdk.upstream.script = Script(tokens=3000, pace=0.01)
    stream = await sdk.client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    closed_at = time.monotonic()
    await stream.close()
    await left(sdk, closed_at, stream.response.headers["x-request-id"])


async def test_closing_a_silent_stream_closes_the_upstreams(sdk: Stand) -> None:
    """No write fails that could tell: the gateway must be told that the client has gone."""
    sdk.upstream.script = Script(tokens=10, faults=(Fault(action="stall", events=3),))
    async with await sdk.client.chat.completions.create(
        model=MODEL, messages=MESSAGES, stream=True
    ) as stream:
        async for chunk in stream:
            if chunk.choices[0].delta.content == " sluice":
                break
        closed_at = time.monotonic()
    await left(sdk, closed_at, stream.response.headers["x-request-id"])


async def test_the_synchronous_client_leaves_as_fast(sdk: Stand) -> None:
    sdk.upstream.script = Script(tokens=3000, pace=0.01)

    def calls() -> tuple[float, str]:
        with sdk.sync_client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True) as stream:
            for chunk in stream:
                if chunk.choices[0].delta.content:
                    break
            return time.monotonic(), stream.response.headers["x-request-id"]

    await left(sdk, *await asyncio.to_thread(calls))


async def test_a_cancelled_call_closes_the_upstreams(sdk: Stand) -> None:
    sdk.upstream.script = Script(head_delay=60)
    call = asyncio.create_task(
        sdk.client.chat.completions.create(
            model=MODEL, messages=MESSAGES, extra_headers={"x-request-id": "sdk-cancelled"}
        )
    )
    record = await sdk.upstream.requests.wait()
    closed_at = time.monotonic()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await record.ended()
    assert record.client_left_at is not None
    assert record.client_left_at - closed_at < LEAVING_SECONDS
    line = await sdk.line("sdk-cancelled")
    assert (line["status"], line["result"]) == (499, "client_left")
