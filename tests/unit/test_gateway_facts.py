"""What a policy sees of a request, by way of the engines: only what the configuration names."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.asgi import Response, request
from sluicegate.config import load_data
from sluicegate.errors import ConfigurationError
from sluicegate.gateway import Gateway, create_app
from sluicegate.routing import Facts
from sluicegate.testing import ScriptedUpstream

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
HI = {"role": "user", "content": "Hi"}
AFFINITY: dict[str, Any] = {
    "affinity": True,
    "affinity_header": "X-Session",
    "headers": ["X-Session", "X-Tenant"],
}


class Watching:
    """Keeps what it saw."""

    def __init__(self) -> None:
        self.seen: list[tuple[int | None, dict[str, str]]] = []

    def rank(self, facts: Facts, candidates: Any) -> Any:
        self.seen.append((facts.affinity, dict(facts.headers)))
        assert facts.size > 0
        assert (facts.endpoint, facts.stream, facts.user, facts.max_output_tokens) in [
            (name, False, None, None) for name in ("chat_completions", "responses", "embeddings")
        ]
        return candidates


class Stand:
    def __init__(self, upstream: ScriptedUpstream, store: Path) -> None:
        self._config = {
            "upstreams": {"local": {"base_url": upstream.base_url}},
            "models": {"small": ["local/m", "local/n"]},
            "cost": {"genai_prices": False},
            "responses": {"path": str(store)},
        }
        self.policy = Watching()
        self.app: Gateway = create_app(load_data(self._config), policy=self.policy)

    def want(self, **routing: Any) -> None:
        self.app.reload(load_data({**self._config, "routing": routing}))

    async def ask(self, path: str, body: dict[str, Any], **headers: str) -> Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        response = await request(self.app, "POST", path, json_body={"model": "small", **body}, headers=named)
        assert response.status == 200, response.body
        return response

    async def affinity(self, path: str, body: dict[str, Any], **headers: str) -> int | None:
        await self.ask(path, body, **headers)
        return self.policy.seen[-1][0]


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncIterator[Stand]:
    async with ScriptedUpstream() as upstream:
        stand = Stand(upstream, tmp_path / "responses.db")
        yield stand
        await stand.app.shutdown()


async def test_nothing_that_is_not_named_is_shown(stand: Stand) -> None:
    await stand.ask(CHAT, {"messages": [HI], "prompt_cache_key": "k"}, x_tenant="a")
    assert stand.policy.seen == [(None, {})]


async def test_headers_are_shown_by_the_configuration_that_holds(stand: Stand) -> None:
    stand.want(headers=["X-Tenant", "x-absent", "x-long"])
    await stand.ask(CHAT, {"messages": [HI]}, x_tenant="\u00e9", x_other="b", x_long="a" * 1025)
    stand.want()
    await stand.ask(CHAT, {"messages": [HI]}, x_tenant="a")
    long = "a" * 1024
    assert stand.policy.seen == [(None, {"x-tenant": "\u00c3\u00a9", "x-long": long}), (None, {})]


async def test_the_turns_of_a_chat_have_one_affinity(stand: Stand) -> None:
    stand.want(affinity=True)
    first = await stand.affinity(CHAT, {"messages": [HI]})
    answer = {"role": "assistant", "content": "Yes?"}
    more = {"role": "user", "content": "More"}
    assert first is not None
    assert 0 <= first < 1 << 64
    assert await stand.affinity(CHAT, {"messages": [HI, answer, more]}) == first
    assert await stand.affinity(CHAT, {"messages": [more]}) != first
    keyed = await stand.affinity(CHAT, {"messages": [HI], "prompt_cache_key": "k"})
    assert keyed != first
    assert await stand.affinity(CHAT, {"messages": [more], "prompt_cache_key": "k"}) == keyed
    assert await stand.affinity("/v1/embeddings", {"input": "Hi"}) is None


async def test_a_header_goes_before_the_conversation(stand: Stand) -> None:
    stand.want(**AFFINITY)
    by_header = await stand.affinity(CHAT, {"messages": [HI]}, x_session="s")
    assert stand.policy.seen[-1][1] == {"x-session": "s"}
    assert await stand.affinity(RESPONSES, {"input": "Else"}, x_session="s") == by_header
    assert await stand.affinity(CHAT, {"messages": [HI]}) not in (None, by_header)


async def test_a_stored_conversation_goes_where_its_first_turn_went(stand: Stand) -> None:
    stand.want(affinity=True, affinity_header="x-session")
    first = await stand.ask(RESPONSES, {"input": "H\u00e9"})
    [(affinity, _)] = stand.policy.seen
    assert affinity is not None
    continued = {"input": "More", "previous_response_id": first.json()["id"]}
    assert await stand.affinity(RESPONSES, continued) == affinity
    by_header = await stand.affinity(RESPONSES, continued, x_session="s")
    assert by_header == await stand.affinity(CHAT, {"messages": [HI]}, x_session="s")
    stand.want()
    assert await stand.affinity(RESPONSES, continued) is None


@pytest.mark.parametrize(
    "routing",
    [
        {"headers": ["a b"]},
        {"headers": ["Authorization"]},
        {"headers": ["cookie"]},
        {"headers": ["x-a", "X-A"]},
        {"headers": [f"x-{n}" for n in range(17)]},
        {"affinity_header": "x-session"},
        {"affinity": True, "affinity_header": "authorization"},
    ],
)
def test_what_cannot_be_meant_is_a_fault(routing: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        load_data({"upstreams": {"a": {"base_url": "http://a/v1"}}, "models": {"m": "a"}, "routing": routing})
