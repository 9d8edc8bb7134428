"""Asking an upstream for its models, and what a configuration becomes by its answer."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sluicegate.config import Config, UpstreamConfig, load_data
from sluicegate.discovery import Listing, NoListing, ask, key_variable, merge
from sluicegate.discovery.asking import MAX_MODELS
from sluicegate.discovery.fetching import MAX_BODY_BYTES
from sluicegate.routing import ModelTable

LIST = json.dumps({"object": "list", "data": [{"id": "a", "owned_by": "vllm"}, {"id": "b"}]}).encode()

IN_BYTES = b"1\r\n \r\n" * 5_000 + b"0\r\n\r\n"
TOO_MANY = "sent more than 4096 chunks"


class Server:
    """Answers by path with bytes that a test gives; `seen` are the heads of requests."""

    def __init__(self) -> None:
        self.replies: dict[str, bytes] = {}
        self.seen: list[bytes] = []
        self.port = 0
        self.hold = False

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.seen.append(head)
        writer.write(self.replies.get(head.split()[1].decode(), reply(b"", 404)))
        if self.hold:
            await reader.read()
        writer.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    listener = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    async with listener:
        yield server


def reply(body: bytes, status: int = 200, kind: str = "application/json", extra: str = "") -> bytes:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


def upstream(url: str, **settings: Any) -> UpstreamConfig:
    return load_data({"upstreams": {"u": {"base_url": url, "discover": True, **settings}}}, {}).upstreams["u"]


# === asking ===


async def test_a_list_is_read(server: Server) -> None:
    server.replies["/v1/models"] = reply(LIST)
    found = await ask(upstream(f"{server.url}/v1", api_key="sekrit", headers={"X-Team": "t"}))
    assert found == Listing(f"{server.url}/v1", ("a", "b"), "vllm")
    (head,) = server.seen
    assert head.startswith(b"GET /v1/models HTTP/1.1\r\n")
    assert b"authorization: Bearer sekrit\r\n" in head
    assert b"x-team: t\r\n" in head
    assert f"host: 127.0.0.1:{server.port}\r\n".encode() in head


@pytest.mark.parametrize(
    "whole",
    [
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(LIST), LIST),
        b"HTTP/1.0 200 OK\r\n\r\n" + LIST,
    ],
    ids=["chunked", "to the end"],
)
async def test_a_list_is_read_however_it_is_framed(server: Server, whole: bytes) -> None:
    server.replies["/v1/models"] = whole
    assert isinstance(await ask(upstream(f"{server.url}/v1")), Listing)


async def test_the_place_is_found_below_v1_or_without_it(server: Server) -> None:
    # As llms-py answers paths that it does not know.
    server.replies["/models"] = reply(b"<html>", kind="text/html")
    server.replies["/v1/models"] = server.replies["/api/v1/models"] = reply(LIST)
    for url, found in (
        (server.url, f"{server.url}/v1"),
        (f"{server.url}/", f"{server.url}/v1"),
        (f"{server.url}/api", f"{server.url}/api/v1"),
    ):
        answer = await ask(upstream(url))
        assert isinstance(answer, Listing)
        assert answer.base_url == found
    server.replies = {"/models": reply(LIST)}
    answer = await ask(upstream(server.url))
    assert isinstance(answer, Listing)
    assert answer.base_url == server.url


async def test_a_bare_array_at_the_root_lists_what_is_served_below_v1(server: Server) -> None:
    # As llms.py has it.
    server.replies["/v1/models"] = reply(b"<html>", kind="text/html")
    server.replies["/models"] = reply(b'[{"id": "a", "provider": "p"}]')
    for url in (server.url, f"{server.url}/v1"):
        answer = await ask(upstream(url))
        assert answer == Listing(f"{server.url}/v1", ("a",))


@pytest.mark.parametrize(
    ("whole", "kind", "reason"),
    [
        (reply(b"", 404), "no_list", "answered 404 to GET /models"),
        (reply(b"{}", 401), "unauthorized", "wants a key, or another one (401)"),
        (reply(b"{}", 302, extra="location: /elsewhere\r\n"), "no_list", "answered 302 to GET /models"),
        (reply(b"<html>"), "no_list", "has no list of models: its reply is not JSON"),
        (reply(b"[" * 100_000), "no_list", "has no list of models: its reply is not JSON"),
        (reply(b'{"data": {}}'), "no_list", "has no list of models: its reply has no `data`"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "unreachable", "did not answer in HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n\r\n", "unreachable", None),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "unreachable", "did not answer in HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n{}", "unreachable", "did not answer in HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffff\r\n", "unreachable", None),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-5\r\n", "unreachable", None),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + IN_BYTES, "unreachable", TOO_MANY),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (MAX_BODY_BYTES + 1), "unreachable", None),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000, "unreachable", None),
    ],
)
async def test_what_is_no_list_is_said(server: Server, whole: bytes, kind: str, reason: str | None) -> None:
    server.replies["/v1/models"] = whole
    answer = await ask(upstream(f"{server.url}/v1"))
    assert isinstance(answer, NoListing)
    assert answer.kind == kind
    assert reason is None or answer.reason == reason
    # Redirects are not followed: whoever is named there would be given the key.
    paths = [head.split()[1] for head in server.seen]
    assert paths == ([b"/v1/models", b"/models"] if kind == "no_list" else [b"/v1/models"])


async def test_a_server_that_does_not_answer_is_not_waited_for(server: Server) -> None:
    server.replies["/v1/models"] = b"HTTP/1.1 200 OK\r\n"
    server.hold = True
    answer = await ask(upstream(f"{server.url}/v1"), 0.05)
    assert answer == NoListing("unreachable", "did not answer within 0.05 s")


async def test_a_refused_connection_is_said() -> None:
    answer = await ask(upstream("http://127.0.0.1:1/v1"))
    assert answer == NoListing("unreachable", "refused the connection")


async def test_names_that_cannot_be_are_left_out(server: Server) -> None:
    names = ["a", "a", " b", "", "c\n", 4, None, "x" * 257, *(f"m{n}" for n in range(MAX_MODELS + 5))]
    body = json.dumps([{"id": name} for name in names] + ["loose"]).encode()
    server.replies["/v1/models"] = reply(body)
    answer = await ask(upstream(f"{server.url}/v1"))
    assert isinstance(answer, Listing)
    assert answer.models[:3] == ("a", "m0", "m1")
    assert len(answer.models) == MAX_MODELS


def test_the_variable_of_a_provider_is_known() -> None:
    assert key_variable(upstream("https://api.openai.com/v1")) == "OPENAI_API_KEY"
    assert key_variable(upstream("https://api.openai.com.example/v1")) is None
    assert key_variable(upstream("http://h/v1", profile="groq")) == "GROQ_API_KEY"


# === merging ===


def config(**upstreams: Any) -> Config:
    return load_data(
        {
            "upstreams": {name: {"base_url": f"http://{name}/v1", **one} for name, one in upstreams.items()},
            "models": {"mine": "a/own"},
        },
        {},
    )


DISCOVER: dict[str, Any] = {"discover": True}


def listing(*models: str, name: str = "a", owner: str = "") -> Listing:
    return Listing(f"http://{name}/v1", models, owner)


def routes(config: Config) -> dict[str, str]:
    return {name: "{0.upstream}/{0.model}".format(*model.routes) for name, model in config.models.items()}


def test_the_second_upstream_with_a_model_serves_it_under_its_own_name() -> None:
    before = config(a=DISCOVER, b=DISCOVER)
    found = merge(before, {"b": listing("x", "y", name="b"), "a": listing("x", "mine")})
    assert routes(found.config) == {"mine": "a/own", "x": "a/x", "b/x": "b/x", "y": "b/y"}
    assert found.unlisted == ()
    assert routes(before) == {"mine": "a/own"}


def named(*, aliases: dict[str, str], **models: str) -> Config:
    upstreams = {"a": {"base_url": "http://a/v1", **DISCOVER}}
    return load_data({"upstreams": upstreams, "models": models, "aliases": aliases}, {})


def test_an_alias_wins_over_a_model_that_is_found_and_no_list_makes_a_wildcard() -> None:
    before = named(mine="a/own", aliases={"x": "mine"})
    found = merge(before, {"a": listing("x", "y", "*", "z-*")})
    assert routes(found.config) == {"mine": "a/own", "y": "a/y"}


def test_what_a_wildcard_matches_is_known_where_its_upstream_lists_it() -> None:
    before = named(**{"org/*": "a/their-*"}, aliases={})
    found = merge(before, {"a": listing("their-x", "their-", "other")})
    assert found.matched == ("org/x",)
    table = ModelTable(found.config, matched=found.matched)
    assert [model.asked for model in table] == ["their-x", "their-", "other", "org/x"]


def test_who_has_not_answered_is_unlisted_and_who_is_stale_is_not() -> None:
    found = merge(config(a=DISCOVER, b=DISCOVER, c={}), {"a": None})
    assert routes(found.config) == {"mine": "a/own"}
    assert found.unlisted == ("b",)


def test_patterns_and_a_prefix_say_what_is_served() -> None:
    discover = {"include": ["llama*", "qwen*"], "exclude": ["*-embed"], "prefix": "lab/"}
    found = merge(config(a={"discover": discover}), {"a": listing("llama-1", "llama-embed", "gpt", "qwen")})
    assert routes(found.config) == {"mine": "a/own", "lab/llama-1": "a/llama-1", "lab/qwen": "a/qwen"}


@pytest.mark.parametrize(
    ("owner", "settings", "api", "repair"),
    [
        ("vllm", {}, "both", False),
        ("llamacpp", {}, "both", True),
        ("library", {}, "chat", False),
        ("llamacpp", {"api": "messages"}, "messages", True),
        ("llamacpp", {"repair": False}, "both", False),
        ("llamacpp", {"profile": "generic"}, "chat", False),
        ("llamacpp", {"profile": "sglang"}, "chat", False),
    ],
)
def test_settings_follow_from_the_server_unless_they_are_made(
    owner: str, settings: dict[str, Any], api: str, repair: bool
) -> None:
    found = merge(config(a={**DISCOVER, **settings}), {"a": listing("x", owner=owner)})
    assert (found.config.upstreams["a"].apis, found.config.upstreams["a"].repair) == (api, repair)


def test_the_place_that_was_found_is_the_one_that_is_used() -> None:
    found = merge(config(a=DISCOVER), {"a": Listing("http://a/v1/v1", ("x",))})
    assert found.config.upstreams["a"].base_url == "http://a/v1/v1"


# === the configuration ===


def test_models_may_be_left_out_only_where_an_upstream_lists_them() -> None:
    assert load_data({"upstreams": {"a": {"base_url": "http://h", "discover": True}}}, {}).models == {}
    for upstream in ({"base_url": "http://h"}, {"base_url": "http://h", "discover": False}):
        with pytest.raises(Exception, match="models: is missing"):
            load_data({"upstreams": {"a": upstream}}, {})


@pytest.mark.parametrize(
    "discover", ["yes", {"interval": 0}, {"interval": True}, {"stale_after": -1}, {"include": "a"}, {"x": 1}]
)
def test_discover_is_checked(discover: object) -> None:
    with pytest.raises(Exception, match=r"upstreams\.a\.discover"):
        load_data({"upstreams": {"a": {"base_url": "http://h", "discover": discover}}}, {})
