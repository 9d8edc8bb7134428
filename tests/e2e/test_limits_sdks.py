"""What the SDKs of OpenAI and Anthropic make of each refusal, and what they send again."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, Literal

import anthropic
import httpx
import openai
import pytest
import pytest_asyncio

from harness.gateway_process import GatewayProcess
from harness.shared_gateway import shared_gateway
from sluicegate.testing import Script, ScriptedUpstream, UsageScript

pytestmark = pytest.mark.asyncio(loop_scope="module")

Api = Literal["chat", "responses", "messages"]
APIS: tuple[Api, ...] = ("chat", "responses", "messages")
every_api = pytest.mark.parametrize("api", APIS)

ANSWER = Script(text="four words of text", usage=UsageScript(input_tokens=100, output_tokens=20))
SLOW = Script(tokens=2000, pace=0.05)
LONG = "many words " * 100
MONTH = 31 * 86400
WHOLE_MINUTE = 65
"""Seconds until a sliding minute has forgotten what was counted just now: it has slices of five."""

LIMITS: dict[str, Any] = {
    "requests": {"requests": "1/minute"},
    "hourly": {"requests": "1/hour"},
    "tokens": {"tokens": "130/minute"},
    "small": {"tokens": "50/hour"},
    "concurrent": {"concurrent": 1},
    "retrying": {"concurrent": 1},
    "budget": {"cost": "0.0001/month"},
}
"""Each is that of one key for each API, of the same name."""


def configuration(upstream: ScriptedUpstream) -> dict[str, Any]:
    limited = [
        {"name": f"{name}-{api}", "key": f"sk-{name}-{api}", "limits": name}
        for name in LIMITS
        for api in APIS
    ]
    return {
        "upstreams": {"local": {"base_url": upstream.base_url}},
        "models": {"m": "local", "other": "local"},
        "prices": {"m": {"input": "1", "cached_input": "1", "output": "5"}},
        "cost": {"genai_prices": False},
        "limits": LIMITS,
        "callers": [
            {"name": "narrow", "models": ["other"]},
            {"name": "embedder", "endpoints": ["embeddings"]},
            {"name": "off", "disabled": True},
        ],
        "keys": [
            *limited,
            {"name": "narrow", "key": "sk-narrow"},
            {"name": "embedder", "key": "sk-embedder"},
            {"name": "off", "key": "sk-off"},
            {"name": "old", "key": "sk-old", "expires": "2020-01-01"},
        ],
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream(ANSWER) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(
    upstream: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayProcess]:
    async with shared_gateway(configuration(upstream), tmp_path_factory.mktemp("gateway")) as process:
        yield process


@dataclass
class Asking:
    """One client of one API with one key. `sent` and `answered`: when what the last `ask` sent went, and was
    answered, by `time.monotonic`.
    """

    gateway: GatewayProcess
    api: Api
    key: str
    max_retries: int = 0
    sent: list[float] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)
    may_go_again: asyncio.Event | None = None
    """A second attempt leaves only when this is set."""

    async def ask(self, text: str = "hello", **options: Any) -> Any:
        """A request of model `m`; its id is the key's name."""
        self.sent.clear()
        self.answered.clear()
        headers = {"x-request-id": self.key}
        options = {"model": "m", "extra_headers": headers, **options}
        messages: Any = [{"role": "user", "content": text}]
        hooks: Any = {"request": [self._before], "response": [self._after]}
        common: Any = {"api_key": f"sk-{self.key}", "max_retries": self.max_retries, "timeout": 30}
        if self.api == "messages":
            async with anthropic.AsyncAnthropic(
                base_url=self.gateway.base_url,
                http_client=anthropic.DefaultAsyncHttpxClient(event_hooks=hooks),
                **common,
            ) as claude:
                return await claude.messages.create(messages=messages, max_tokens=30, **options)
        async with openai.AsyncOpenAI(
            base_url=self.gateway.api_url,
            http_client=openai.DefaultAsyncHttpxClient(event_hooks=hooks),
            **common,
        ) as sdk:
            if self.api == "responses":
                return await sdk.responses.create(input=text, max_output_tokens=30, **options)
            return await sdk.chat.completions.create(messages=messages, max_tokens=30, **options)

    async def refused(self, text: str = "hello") -> openai.APIStatusError | anthropic.APIStatusError:
        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as raised:
            await self.ask(text)
        assert isinstance(raised.value, openai.APIStatusError | anthropic.APIStatusError)
        return raised.value

    async def lines(self, count: int) -> list[int]:
        """The status of each of its requests, of which there are `count`, as the gateway's log has them."""
        await self.gateway.wait_request(count, request_id=self.key)
        found = self.gateway.find(event="request", request_id=self.key)
        assert len(found) == count
        return [line["status"] for line in found]

    async def _before(self, _request: Any) -> None:
        if self.sent and self.may_go_again is not None:
            async with asyncio.timeout(30):
                await self.may_go_again.wait()
        self.sent.append(monotonic())

    async def _after(self, _response: Any) -> None:
        self.answered.append(monotonic())


@asynccontextmanager
async def held(gateway: GatewayProcess, upstream: ScriptedUpstream, key: str) -> AsyncIterator[None]:
    """A stream under way with this key; its client leaves at the end."""
    upstream.enqueue(SLOW)
    asking = {"model": "m", "messages": [], "stream": True}
    headers = {"authorization": f"Bearer sk-{key}"}
    async with (
        httpx.AsyncClient(base_url=gateway.api_url, timeout=30) as client,
        client.stream("POST", "/chat/completions", json=asking, headers=headers) as reply,
    ):
        assert reply.status_code == 200
        yield


def told(error: openai.APIStatusError | anthropic.APIStatusError) -> tuple[str, int, str, str | None]:
    """The exception's class, the status, the error's type, and its code, which Anthropic's API has not."""
    code = error.code if isinstance(error, openai.APIStatusError) else None
    return type(error).__name__, error.status_code, str(error.type), code


def left(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that say how much is left of the limits."""
    return {name: value for name, value in headers.items() if "ratelimit" in name}


def check_left(api: Api, headers: Mapping[str, str], resource: str, limit: int, began: datetime) -> None:
    """They tell of this resource and no other, in the words of the API, and of nothing that is left over.

    `began`: when the resource was first used.
    """
    found = left(headers)
    if api == "messages":
        prefix = f"anthropic-ratelimit-{resource}-"
        names = {part: f"{prefix}{part}" for part in ("limit", "remaining", "reset")}
    else:
        names = {part: f"x-ratelimit-{part}-{resource}" for part in ("limit", "remaining", "reset")}
    assert found.keys() == set(names.values())
    assert found[names["limit"]] == str(limit)
    assert 0 <= int(found[names["remaining"]]) < max(limit, 2)
    reset = found[names["reset"]]
    if api == "messages":
        until = datetime.strptime(reset, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        # It is told in whole seconds.
        assert began + timedelta(seconds=59) <= until <= datetime.now(UTC) + timedelta(seconds=WHOLE_MINUTE)
    else:
        assert re.fullmatch(r"(?=.)(\d+m)?(\d+s)?|\d+ms", reset)


def wait_of(headers: Mapping[str, str]) -> float:
    """Seconds to wait, which both headers say."""
    seconds = int(headers["retry-after-ms"]) / 1000
    assert seconds <= int(headers["retry-after"]) < seconds + 1
    return seconds


RATE_LIMITED = {
    "requests": ("RateLimitError", 429, "requests", "limit_exceeded"),
    "tokens": ("RateLimitError", 429, "tokens", "limit_exceeded"),
    "messages": ("RateLimitError", 429, "rate_limit_error", None),
}


@every_api
async def test_requests_a_minute(gateway: GatewayProcess, api: Api) -> None:
    asking, began = Asking(gateway, api, f"requests-{api}"), datetime.now(UTC)
    await asking.ask()
    error = await asking.refused()
    headers = error.response.headers
    assert told(error) == RATE_LIMITED["messages" if api == "messages" else "requests"]
    assert "1 requests a minute of this key" in str(error)
    assert headers["x-sluicegate-error"] == "limit_exceeded"
    assert 0 < wait_of(headers) <= WHOLE_MINUTE
    # An SDK may wait for so long.
    assert "x-should-retry" not in headers
    check_left(api, headers, "requests", 1, began)
    assert await asking.lines(2) == [200, 429]


@every_api
async def test_tokens_a_minute(gateway: GatewayProcess, api: Api) -> None:
    asking, began = Asking(gateway, api, f"tokens-{api}"), datetime.now(UTC)
    await asking.ask()
    error = await asking.refused()
    headers = error.response.headers
    assert told(error) == RATE_LIMITED["messages" if api == "messages" else "tokens"]
    assert "120 are used" in str(error)
    assert headers["x-sluicegate-error"] == "limit_exceeded"
    assert 0 < wait_of(headers) <= WHOLE_MINUTE
    assert "x-should-retry" not in headers
    check_left(api, headers, "tokens", 130, began)
    assert await asking.lines(2) == [200, 429]


@every_api
async def test_requests_under_way(gateway: GatewayProcess, upstream: ScriptedUpstream, api: Api) -> None:
    asking = Asking(gateway, api, f"concurrent-{api}")
    async with held(gateway, upstream, asking.key):
        error = await asking.refused()
    headers = error.response.headers
    assert told(error) == RATE_LIMITED["messages" if api == "messages" else "requests"]
    assert "1 requests at once of this key" in str(error)
    assert headers["x-sluicegate-error"] == "limit_exceeded"
    assert (headers["retry-after"], headers["retry-after-ms"]) == ("1", "1000")
    assert "x-should-retry" not in headers
    assert left(headers) == {}, "no header of either API is about requests under way"


@every_api
async def test_an_sdk_waits_for_its_turn(
    gateway: GatewayProcess, upstream: ScriptedUpstream, api: Api
) -> None:
    """It is refused once, waits as told, and is served, for the other request has ended meanwhile."""
    ended = asyncio.Event()
    asking = Asking(gateway, api, f"retrying-{api}", max_retries=2, may_go_again=ended)
    async with asyncio.TaskGroup() as tasks:
        async with held(gateway, upstream, asking.key):
            task = tasks.create_task(asking.ask())
            assert await asking.lines(1) == [429]
        await gateway.wait_request(caller=asking.key, result="client_left")
        ended.set()
    assert task.result() is not None
    assert await asking.lines(2) == [429, 200]
    assert len(asking.sent) == 2
    assert asking.sent[1] - asking.answered[0] >= 1, "it waits for as long as retry-after says"


@every_api
async def test_a_budget_is_asked_for_once_only(
    gateway: GatewayProcess, upstream: ScriptedUpstream, api: Api
) -> None:
    asking = Asking(gateway, api, f"budget-{api}", max_retries=2)
    await asking.ask()
    served = len(upstream.requests)
    error = await asking.refused()
    headers = error.response.headers
    if api == "messages":
        # `PaymentRequiredError` where the SDK is new enough to have it.
        assert told(error)[1:] == (402, "billing_error", None)
        assert isinstance(error, getattr(anthropic, "PaymentRequiredError", anthropic.APIStatusError))
    else:
        assert told(error) == ("RateLimitError", 429, "insufficient_quota", "budget_exceeded")
    assert "0.0001 USD a month of this key" in str(error)
    assert headers["x-sluicegate-error"] == "budget_exceeded"
    assert headers["x-should-retry"] == "false"
    assert 0 < wait_of(headers) <= MONTH
    assert left(headers) == {}, "no header of either API is about money"
    assert (len(asking.sent), len(upstream.requests)) == (1, served)
    assert sorted(await asking.lines(2)) == [200, error.status_code]


@every_api
async def test_a_request_larger_than_its_limit_is_sent_once_only(gateway: GatewayProcess, api: Api) -> None:
    asking = Asking(gateway, api, f"small-{api}", max_retries=2)
    error = await asking.refused(LONG)
    headers = error.response.headers
    assert told(error) == RATE_LIMITED["messages" if api == "messages" else "tokens"]
    assert "larger than the limit of 50 tokens a hour of this key" in str(error)
    assert headers["x-should-retry"] == "false"
    assert not {"retry-after", "retry-after-ms"} & headers.keys(), "no time makes it smaller"
    assert "50" in left(headers).values()
    assert len(asking.sent) == 1
    assert await asking.lines(1) == [429]


@every_api
async def test_an_sdk_does_not_wait_for_an_hour(gateway: GatewayProcess, api: Api) -> None:
    asking = Asking(gateway, api, f"hourly-{api}", max_retries=2)
    await asking.ask()
    async with asyncio.timeout(30):
        error = await asking.refused()
    headers = error.response.headers
    assert told(error) == RATE_LIMITED["messages" if api == "messages" else "requests"]
    assert headers["x-should-retry"] == "false"
    assert 3000 < wait_of(headers) <= 3900
    assert len(asking.sent) == 1
    assert await asking.lines(2) == [200, 429]


@dataclass(frozen=True)
class Forbidden:
    """What nobody may do with a key, and what the SDKs call that."""

    key: str
    code: str
    status: int = 403
    type: str = "permission_error"
    exception: str = "PermissionDeniedError"
    type_of_messages: str = "permission_error"


WRONG_KEY: Any = {
    "status": 401,
    "type": "invalid_request_error",
    "exception": "AuthenticationError",
    "type_of_messages": "authentication_error",
}
FORBIDDEN = (
    Forbidden("nobody", "invalid_api_key", **WRONG_KEY),
    Forbidden("old", "expired_api_key", **WRONG_KEY),
    Forbidden("narrow", "model_not_allowed"),
    Forbidden("embedder", "endpoint_not_allowed"),
    Forbidden("off", "caller_disabled"),
)


@every_api
@pytest.mark.parametrize("what", FORBIDDEN, ids=lambda what: what.code)
async def test_what_is_forbidden_is_asked_for_once_only(
    gateway: GatewayProcess, upstream: ScriptedUpstream, api: Api, what: Forbidden
) -> None:
    asking, served = Asking(gateway, api, what.key, max_retries=2), len(upstream.requests)
    error = await asking.refused()
    headers = error.response.headers
    if api == "messages":
        assert told(error) == (what.exception, what.status, what.type_of_messages, None)
    else:
        assert told(error) == (what.exception, what.status, what.type, what.code)
    assert headers["x-sluicegate-error"] == what.code
    assert ("www-authenticate" in headers) is (what.status == 401)
    assert not {"retry-after", "retry-after-ms"} & headers.keys()
    assert left(headers) == {}
    assert (len(asking.sent), len(upstream.requests)) == (1, served)
