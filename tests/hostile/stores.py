"""Clients and upstreams of stored and background responses; played over SQLite and over PostgreSQL."""

import asyncio
import json
from typing import Any

from hostile.case import (
    KEY,
    PATIENCE,
    RESPONSES,
    RUDE_KEY,
    Address,
    Case,
    Seen,
    asking,
    exchange,
    labels,
    post,
)
from hostile.documents import COMPLETED, CREATED, MESSAGE, response_event, response_object
from hostile.replies import LAST_CHUNK, ONE_CHUNK, streamed

MIB = 1 << 20
_ENDED = ("completed", "failed", "cancelled", "incomplete")
_KEPT = labels("served", "error in stream")


async def _call(
    address: Address, method: str, path: str, body: bytes = b"", key: str = KEY
) -> tuple[Seen, Any]:
    """One request, and its reply as JSON; None where it is none."""
    data = post(body=body, path=path, key=key).replace(b"POST", method.encode(), 1)
    seen, reply = await exchange(address, data)
    try:
        return seen, json.loads(reply)
    except ValueError:
        return seen, None


async def _create(address: Address, body: bytes) -> tuple[Seen, str]:
    """A background response, and its id; empty where it was refused."""
    seen, reply = await _call(address, "POST", RESPONSES, body)
    return seen, reply["id"] if isinstance(reply, dict) and "id" in reply else ""


async def _ended(address: Address, id: str) -> tuple[Seen, str]:
    """A response once it has ended, and its status."""
    async with asyncio.timeout(PATIENCE):
        while True:
            seen, reply = await _call(address, "GET", f"{RESPONSES}/{id}")
            if seen.label != "served" or reply["status"] in _ENDED:
                return seen, "" if reply is None else reply.get("status", "")
            await asyncio.sleep(0.05)


async def _in_background(address: Address, model: str) -> Seen:
    """A background response from its creation over its end and its events to its deletion."""
    seen, id = await _create(address, asking(model, path=RESPONSES, store=True, background=True))
    if not id:
        return seen
    try:
        seen, status = await _ended(address, id)
    except TimeoutError:
        return Seen(None, "hung")
    if status not in _ENDED:
        return seen
    for method, path in (("GET", f"{id}?stream=true"), ("GET", f"{id}/input_items"), ("DELETE", id)):
        seen, _ = await _call(address, method, f"{RESPONSES}/{path}")
        if seen.status != 200 or seen.ended != "whole":
            return seen
    return Seen(200, "whole", errs=status != "completed")


def _background(body: Any) -> bytes:
    """Of the honest upstream."""
    return asking("small", path=RESPONSES, **{"store": True, "background": True, **body})


def _first_wrong(seen: list[Seen], right: frozenset[str]) -> Seen:
    """The first that is not right, else the first."""
    return next((each for each in seen if each.label not in right), seen[0])


async def _deletes_at_once(address: Address) -> Seen:
    """Fifty background responses, each deleted as soon as it is there, by four clients at once."""

    async def one() -> list[Seen]:
        seen, id = await _create(address, _background({}))
        if not id:
            return [seen]
        gone = await asyncio.gather(*(_call(address, "DELETE", f"{RESPONSES}/{id}") for _ in range(4)))
        after, _ = await _call(address, "GET", f"{RESPONSES}/{id}")
        right = sorted(each.label for each, _ in gone) == ["404", "404", "404", "served"]
        return [Seen(200, "whole") if right and after.label == "404" else gone[0][0]]

    seen = [each for found in await asyncio.gather(*(one() for _ in range(50))) for each in found]
    return _first_wrong(seen, labels("served"))


async def _cancels_at_once(address: Address) -> Seen:
    """Thirty background responses, each cancelled by four clients at once while two follow it."""

    async def one() -> Seen:
        seen, id = await _create(address, _background({}))
        if not id:
            return seen
        path = f"{RESPONSES}/{id}"
        following = [asyncio.ensure_future(_call(address, "GET", f"{path}?stream=true")) for _ in range(2)]
        await asyncio.gather(*(_call(address, "POST", f"{path}/cancel") for _ in range(4)))
        followed = await asyncio.gather(*following)
        _, status = await _ended(address, id)
        whole = all(each.ended == "whole" for each, _ in followed)
        return Seen(200, "whole") if whole and status in ("cancelled", "completed") else followed[0][0]

    return _first_wrong(list(await asyncio.gather(*(one() for _ in range(30)))), labels("served"))


async def _follows_much(address: Address) -> Seen:
    """A hundred followers of one response, half of whom leave."""
    seen, id = await _create(address, _background({}))
    if not id:
        return seen
    path = f"{RESPONSES}/{id}?stream=true"

    async def leaves() -> None:
        _, writer = await asyncio.open_connection(*address)
        writer.write(_get(path))
        await writer.drain()
        await asyncio.sleep(0.2)
        writer.transport.abort()

    leaving = [asyncio.ensure_future(leaves()) for _ in range(50)]
    staying = await asyncio.gather(*(_call(address, "GET", path) for _ in range(50)))
    await asyncio.gather(*leaving)
    return _first_wrong([each for each, _ in staying], labels("served"))


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {KEY}\r\n\r\n".encode()


async def _fills_the_queue(address: Address) -> Seen:
    """Three hundred background responses at once; the last one ends, too."""
    created = await asyncio.gather(*(_create(address, _background({})) for _ in range(300)))
    seen = _first_wrong([each for each, _ in created], labels("served", 429, 503))
    ids = [id for _, id in created if id]
    if seen.label != "served" or not ids:
        return seen
    last, status = await _ended(address, ids[-1])
    for id in ids:
        await _call(address, "DELETE", f"{RESPONSES}/{id}")
    return last if status == "completed" else Seen(None, "hung")


async def _refers_to_all(address: Address) -> Seen:
    """A thousand items of 5 kB in one response, and four requests that refer to each of them."""
    items = [
        {"id": f"msg_{n}", "type": "message", "role": "user", "content": "a" * 5_000} for n in range(1_000)
    ]
    kept, reply = await _call(
        address, "POST", RESPONSES, asking(path=RESPONSES, store=True, input=items, stream=False)
    )
    if kept.label != "served":
        return kept
    _, listed = await _call(address, "GET", f"{RESPONSES}/{reply['id']}/input_items?limit=100")
    first = [item["id"] for item in listed["data"]]
    references = [{"type": "item_reference", "id": f"msg_{n}"} for n in range(1_000)]
    if first[0] not in {one["id"] for one in references}:
        return Seen(None, "hung")
    asked = asking(path=RESPONSES, store=False, input=references, stream=False)
    seen = await asyncio.gather(*(_call(address, "POST", RESPONSES, asked) for _ in range(4)))
    return _first_wrong([each for each, _ in seen], labels("served", 413))


async def _refers_to_nothing(address: Address) -> Seen:
    """A thousand items that are not there, of a model whose upstream might have them."""
    references = [{"type": "item_reference", "id": f"msg_none_{n}"} for n in range(1_000)]
    body = asking("bad-responses", path=RESPONSES, store=False, input=references, stream=False)
    seen, _ = await _call(address, "POST", RESPONSES, body)
    return seen


async def _long_chain(address: Address) -> Seen:
    """Sixty turns, each of which continues the one before, and whose conversation grows by 50 kB a turn."""
    previous: dict[str, str] = {}
    seen = Seen(None, "cut")
    for _ in range(60):
        body = asking(path=RESPONSES, store=True, stream=False, input="a" * 50_000, **previous)
        seen, reply = await _call(address, "POST", RESPONSES, body)
        if seen.label != "served":
            return seen
        previous = {"previous_response_id": reply["id"]}
    return seen


async def _large_conversation(address: Address) -> Seen:
    """A stored input of 40 MiB, which its caller continues and lists eight times at once."""
    body = asking(path=RESPONSES, store=True, stream=False, input="a" * 40 * MIB)
    kept, reply = await _call(address, "POST", RESPONSES, body, RUDE_KEY)
    if kept.label != "served":
        return kept
    path = f"{RESPONSES}/{reply['id']}"
    again = asking(path=RESPONSES, stream=False, previous_response_id=reply["id"])
    continued = (_call(address, "POST", RESPONSES, again, RUDE_KEY) for _ in range(8))
    listed = (_call(address, "GET", f"{path}/input_items?limit=1", b"", RUDE_KEY) for _ in range(8))
    seen = [each for each, _ in await asyncio.gather(*continued, *listed)]
    gone, _ = await _call(address, "DELETE", path, b"", RUDE_KEY)
    return gone if gone.label != "served" else _first_wrong(seen, labels("served", 503))


async def _odd_ids(address: Address) -> Seen:
    """Ids that are no text, too long, or SQL, at each place that takes one."""
    ids = (
        "%00",
        "%ED%A0%80",
        "%27%3B%20DROP%20TABLE%20responses%3B--",
        "a" * 8_000,
        "%",
        "..",
        "%FF",
        "%2F",
        "%25",
    )
    paths = [f"{RESPONSES}/{id}{rest}" for id in ids for rest in ("", "/input_items", "?stream=true")]
    seen = [await _call(address, "GET", path) for path in paths]
    seen += [await _call(address, "DELETE", f"{RESPONSES}/{id}") for id in ids]
    seen += [await _call(address, "POST", f"{RESPONSES}/{id}/cancel") for id in ids]
    return _first_wrong([each for each, _ in seen], labels(400, 404, 414))


async def _odd_text(address: Address) -> Seen:
    """What a database may refuse as text: in the prompt, in metadata, and as an item's id."""
    for text in ('"\\u0000"', '"\\ud800"', '"\\uffff\\ufffe"'):
        members = b'"metadata":{"a":%s},"instructions":%s' % (text.encode(), text.encode())
        item = b'{"type":"message","id":%s,"role":"user","content":%s}' % (text.encode(), text.encode())
        body = b'{"model":"small","store":true,"background":true,%s,"input":[%s]}' % (members, item)
        seen, id = await _create(address, body)
        if seen.label == "400":
            continue
        if seen.label != "served":
            return seen
        _, status = await _ended(address, id)
        if status not in _ENDED:
            return Seen(None, "hung")
        for rest in ("", "?stream=true", "/input_items"):
            seen, _ = await _call(address, "GET", f"{RESPONSES}/{id}{rest}")
            if seen.label not in ("served", "error in stream"):
                return seen
    return Seen(200, "whole")


async def _large_bodies(address: Address) -> Seen:
    """Twelve background responses with a request of 2 MiB each."""
    body = _background({"input": "a" * 2 * MIB})
    created = await asyncio.gather(*(_create(address, body) for _ in range(12)))
    for _, id in created:
        if id:
            await _call(address, "DELETE", f"{RESPONSES}/{id}")
    return _first_wrong([seen for seen, _ in created], labels("served", 413, 429, 503))


def _upstream(name: str, sends: Any, expected: frozenset[str], model: str, *, quick: bool = False) -> Case:
    async def asks(address: Address) -> Seen:
        return await _in_background(address, model)

    return Case(f"background: {name}", "upstream", sends, expected, model=model, asks=asks, quick=quick)


def _client(
    name: str, sends: Any, expected: frozenset[str], *, meets_upstream: bool = False, quick: bool = False
) -> Case:
    return Case(f"stored: {name}", "client", sends, expected, meets_upstream=meets_upstream, quick=quick)


def _delta(text: str) -> bytes:
    return response_event(
        "response.output_text.delta", item_id="msg_1", output_index=0, content_index=0, delta=text
    )


_ADDED = response_event("response.output_item.added", output_index=0, item={**MESSAGE, "content": []})


def _same_items() -> bytes:
    items = [MESSAGE] * 2_000
    return streamed(
        CREATED + response_event("response.completed", response=response_object("completed", items))
    )


STORES = (
    # === clients ===
    _client("50 responses deleted at once", _deletes_at_once, labels("served"), quick=True),
    _client("30 responses cancelled at once", _cancels_at_once, labels("served")),
    _client("100 followers of one response", _follows_much, labels("served")),
    _client("300 background responses at once", _fills_the_queue, labels("served")),
    _client("1,000 references to items of 5 kB", _refers_to_all, labels("served", 413)),
    _client("1,000 references to nothing", _refers_to_nothing, labels(400, 404, 502), meets_upstream=True),
    _client("conversation of 60 turns of 50 kB", _long_chain, labels("served")),
    _client("input of 40 MiB, asked for 16 times at once", _large_conversation, labels("served", 503)),
    _client("ids that are no ids", _odd_ids, labels(400, 404, 414)),
    _client("text that a database may refuse", _odd_text, labels("served")),
    _client("12 background requests of 2 MiB", _large_bodies, labels("served", 413, 429, 503)),
    # === upstreams ===
    _upstream(
        "NUL and half a surrogate pair",
        streamed(CREATED + _ADDED + _delta("\0\ud800") + COMPLETED),
        _KEPT,
        "bad-responses",
    ),
    _upstream("the same item 2,000 times", _same_items, _KEPT, "bad-responses"),
    _upstream(
        "40,000 deltas",
        lambda: streamed(CREATED + _ADDED + _delta("a") * 40_000 + COMPLETED),
        _KEPT,
        "bad-responses",
    ),
    _upstream(
        "12 MiB of text",
        lambda: streamed(CREATED + _ADDED + _delta("a" * MIB) * 12 + COMPLETED),
        labels("error in stream"),
        "bad-responses",
    ),
    _upstream(
        "12 MiB of text of a chat completion",
        lambda: streamed(ONE_CHUNK.replace(b'"a"', b'"' + b"a" * MIB + b'"') * 12 + LAST_CHUNK),
        labels("error in stream"),
        "bad-chat",
    ),
    _upstream(
        "events that are no JSON", streamed(b"data: {\n\n" * 100), labels("error in stream"), "bad-responses"
    ),
    _upstream(
        "event of 17 MiB",
        lambda: streamed(CREATED + b"data: " + b"a" * 17 * MIB + b"\n\n"),
        labels("error in stream"),
        "bad-responses",
    ),
    _upstream(
        "breaks off", streamed(CREATED + _ADDED + _delta("a")), labels("error in stream"), "bad-responses"
    ),
    _upstream(
        "numbers of its own",
        streamed(
            (CREATED + _ADDED + _delta("a") + COMPLETED).replace(
                b'"sequence_number": 0', b'"sequence_number": 9e99'
            )
        ),
        _KEPT,
        "bad-responses",
    ),
    _upstream("ends twice", streamed(CREATED + COMPLETED + COMPLETED + CREATED), _KEPT, "bad-responses"),
)
