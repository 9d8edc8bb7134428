"""Upstreams that are asked again and again: what is served meanwhile, and who is told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from sluicegate.config import Config, UpstreamConfig, load_data
from sluicegate.discovery import Discovery, Found, Listing, NoListing, following

GONE = NoListing("unreachable", "refused the connection")


class Upstreams:
    """What each says when it is asked, by its host; who asks waits until it is let go on."""

    def __init__(self) -> None:
        self.answers: dict[str, Listing | NoListing | Exception] = {}
        self.asked: list[str] = []
        self.slept: list[float] = []
        self._next = asyncio.Event()

    async def ask(self, upstream: UpstreamConfig) -> Listing | NoListing:
        host = upstream.base_url.split("/")[2]
        self.asked.append(host)
        answer = self.answers.get(host, GONE)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self._next.wait()

    def next_round(self) -> None:
        """Ask again."""
        self._next.set()
        self._next = asyncio.Event()


class Log:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def event(self, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))

    info = warning = error = event


@pytest.fixture
def upstreams(monkeypatch: pytest.MonkeyPatch) -> Upstreams:
    upstreams = Upstreams()
    monkeypatch.setattr(following, "ask", upstreams.ask)
    monkeypatch.setattr(following, "sleep", upstreams.sleep)
    return upstreams


def config(*names: str, **discover: float) -> Config:
    upstream = {"discover": discover or True}
    return load_data({"upstreams": {name: {"base_url": f"http://{name}", **upstream} for name in names}}, {})


Start = Callable[[Config], Discovery]


@pytest.fixture
async def taken() -> list[Found]:
    return []


@pytest.fixture
async def log() -> Log:
    return Log()


@pytest.fixture
async def start(upstreams: Upstreams, taken: list[Found], log: Log) -> AsyncIterator[Start]:
    started: list[Discovery] = []

    def begin(config: Config) -> Discovery:
        discovery = Discovery(config, lambda _: None, taken.append, log)  # type: ignore[arg-type]
        discovery.start()
        started.append(discovery)
        return discovery

    yield begin
    for discovery in started:
        await discovery.stop()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what it waits for sets no event
            await asyncio.sleep(0.001)


def models(found: Found) -> list[str]:
    return list(found.config.models)


async def test_each_change_is_told_once(
    upstreams: Upstreams, taken: list[Found], log: Log, start: Start
) -> None:
    upstreams.answers = {"a": Listing("http://a/v1", ("x",))}
    discovery = start(config("a"))
    await discovery.first_answers(10)
    assert models(taken[-1]) == ["x"]
    assert discovery.answers == {"a": upstreams.answers["a"]}
    await until(lambda: upstreams.slept == [30.0])
    upstreams.next_round()
    await until(lambda: len(upstreams.slept) == 2)
    assert len(taken) == 1
    upstreams.answers["a"] = Listing("http://a/v1", ("x", "y"))
    upstreams.next_round()
    await until(lambda: len(taken) == 2)
    assert models(taken[-1]) == ["x", "y"]
    assert [event for event, _ in log.lines] == ["discovered", "discovered"]
    assert log.lines[0][1] == {
        "upstream": "a",
        "models": 1,
        "profile": "generic",
        "base_url": "http://a/v1",
    }


async def test_who_refuses_is_asked_again_soon_and_is_forwarded_to_meanwhile(
    upstreams: Upstreams, taken: list[Found], log: Log, start: Start
) -> None:
    discovery = start(config("a"))
    await discovery.first_answers(10)
    await until(lambda: upstreams.slept == [following.RETRY_SECONDS])
    assert discovery.found(config("a")).unlisted == ("a",)
    assert taken == []
    upstreams.next_round()
    await until(lambda: len(upstreams.slept) == 2)
    # Once: it has said nothing new.
    assert log.lines == [("discovery_failed", {"upstream": "a", "reason": "refused the connection"})]
    upstreams.answers["a"] = Listing("http://a", ("x",))
    upstreams.next_round()
    await until(lambda: taken)
    assert taken[-1].unlisted == ()


async def test_the_last_list_is_kept_until_it_is_stale(
    upstreams: Upstreams, taken: list[Found], start: Start
) -> None:
    now = asyncio.get_running_loop().time()
    upstreams.answers = {"a": Listing("http://a", ("x",))}
    discovery = start(config("a", stale_after=3600.0))
    await discovery.first_answers(10)
    upstreams.answers = {"a": GONE}
    await until(lambda: len(upstreams.slept) == 1)
    upstreams.next_round()
    await until(lambda: len(upstreams.slept) == 2)
    assert upstreams.slept[1] == following.RETRY_SECONDS
    assert models(discovery.found(config("a", stale_after=3600.0))) == ["x"]
    discovery._followed["a"].listed_at = now - 3600.0
    upstreams.next_round()
    await until(lambda: len(taken) == 2)
    # It is not asked for any name then: it has said which it knows.
    assert (models(taken[-1]), taken[-1].unlisted) == ([], ())


async def test_a_new_configuration_keeps_what_is_known_of_the_same_upstreams(
    upstreams: Upstreams, taken: list[Found], start: Start
) -> None:
    upstreams.answers = {name: Listing(f"http://{name}", (name,)) for name in "abc"}
    discovery = start(config("a", "b"))
    await discovery.first_answers(10)
    await until(lambda: len(upstreams.slept) == 2)
    changed = config("a", "c")
    assert models(discovery.found(changed)) == ["a"]
    assert discovery.found(changed).unlisted == ("c",)
    discovery.adopt(changed)
    await until(lambda: taken and models(taken[-1]) == ["a", "c"])
    assert upstreams.asked == ["a", "b", "c"]


async def test_what_cannot_be_served_is_tried_again_with_the_next_answer(
    upstreams: Upstreams, log: Log
) -> None:
    upstreams.answers = {"a": Listing("http://a", ("x",))}
    tries: list[Found] = []

    def take(found: Found) -> None:
        tries.append(found)
        if len(tries) == 1:
            raise ValueError("not now")

    discovery = Discovery(config("a"), lambda _: None, take, log)  # type: ignore[arg-type]
    discovery.start()
    await discovery.first_answers(10)
    assert log.lines[-1][0] == "discovery_failed"
    await until(lambda: len(upstreams.slept) == 1)
    upstreams.next_round()
    await until(lambda: len(tries) == 2)
    await discovery.stop()


async def test_an_asking_that_breaks_is_not_the_end(
    upstreams: Upstreams, taken: list[Found], start: Start
) -> None:
    upstreams.answers = {"a": RuntimeError("sekrit")}
    discovery = start(config("a"))
    await discovery.first_answers(10)
    assert "sekrit" not in str(discovery.answers["a"])
    await until(lambda: upstreams.slept)
    upstreams.answers = {"a": Listing("http://a", ("x",))}
    upstreams.next_round()
    await until(lambda: taken)
