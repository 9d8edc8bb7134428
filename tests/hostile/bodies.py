"""Clients whose bodies are hostile: JSON, counts, encodings, and ids of stored responses."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from hostile.case import CHAT, KEY, RESPONSES, Address, Case, Seen, asking, labels, post, talk

MIB = 1 << 20
_REFUSED = labels(400)


def _chat(messages: bytes, **_: object) -> bytes:
    return b'{"model":"small","stream":false,"messages":' + messages + b"}"


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {KEY}\r\n\r\n".encode()


async def _poisoned_id(address: Address) -> Seen:
    """Half of a surrogate pair as an id, beside eight creations that must all be served."""
    poisoned = b'{"model":"small","input":"a","previous_response_id":"resp_\\ud800"}'
    kept = asking(path=RESPONSES, store=True)
    bodies = [kept] * 4 + [poisoned] + [kept] * 4
    seen = await asyncio.gather(*(talk(address, post(body=body, path=RESPONSES)) for body in bodies))
    others = [each for number, each in enumerate(seen) if number != 4 and each.label != "served"]
    return others[0] if others else seen[4]


async def _unknown_ids(address: Address) -> Seen:
    """Two hundred responses that are not there, while others are made and kept."""
    made = [talk(address, post(body=asking(path=RESPONSES, store=True), path=RESPONSES)) for _ in range(20)]
    asked = [talk(address, _get(f"{RESPONSES}/resp_{number:032x}")) for number in range(200)]
    seen = await asyncio.gather(*asked, *made)
    wrong = [each for each in seen[:200] if each.label != "404"]
    wrong += [each for each in seen[200:] if each.label != "served"]
    return wrong[0] if wrong else seen[0]


async def _unknown_models(address: Address) -> Seen:
    """A thousand models that are not there: none may become a label of the metrics."""
    for start in range(0, 1_000, 100):
        seen = await asyncio.gather(
            *(talk(address, post(body=asking(f"made-up-{number}"))) for number in range(start, start + 100))
        )
    metrics = await talk(address, _get("/metrics"))
    return seen[0] if metrics.label == "served" else metrics


def _post_made(make: Callable[[], bytes], path: str) -> bytes:
    return post(body=make(), path=path)


def _case(
    name: str,
    body: Any,
    expected: frozenset[str],
    *,
    path: str = CHAT,
    meets_upstream: bool = False,
    quick: bool = False,
) -> Case:
    """`body`: of a POST, or what makes it; or a coroutine."""
    sends: Any = body
    if isinstance(body, bytes):
        sends = post(body=body, path=path)
    elif not asyncio.iscoroutinefunction(body):
        sends = partial(_post_made, body, path)
    return Case(name, "client", sends, expected, meets_upstream=meets_upstream, quick=quick)


_SEARCHES = b'{"type":"web_search_call"},'

BODIES = (
    _case("JSON a million lists deep", lambda: _chat(b"[" * MIB), _REFUSED, quick=True),
    _case("JSON 300,000 objects deep", lambda: _chat(b'{"a":' * 300_000 + b"1" + b"}" * 300_000), _REFUSED),
    _case(
        "the model twice", b'{"model":"small","model":"nothing","messages":[]}', labels("served", 400, 404)
    ),
    _case("wrong UTF-8", _chat(b'[{"role":"user","content":"\xff\xfe"}]'), labels(400), quick=True),
    _case("UTF-16", asking().decode().encode("utf-16"), _REFUSED),
    _case("BOM before the JSON", b"\xef\xbb\xbf" + asking(stream=False), labels("served", 400)),
    _case("half of a surrogate pair as the model", b'{"model":"\\ud800","messages":[]}', labels(400, 404)),
    _case("model that is a list", b'{"model":["small"],"messages":[]}', _REFUSED),
    _case("model of a megabyte", lambda: asking("m" * MIB), labels(404)),
    _case("number of a million digits", lambda: _chat(b'[],"n":' + b"9" * MIB), labels("served", 400)),
    _case("number with an exponent of 10^9", _chat(b'[],"temperature":1e999999999'), labels("served", 400)),
    _case("no object", b"[1,2,3]", _REFUSED),
    _case("nothing", b"", _REFUSED),
    _case("two documents", asking() + asking(), _REFUSED),
    _case("control character in a string", _chat(b'[{"role":"user","content":"\0"}]'), labels("served", 400)),
    _case("compressed body", b"\x1f\x8b" + b"\0" * 100, _REFUSED),
    Case("length of one byte more than may be", "client", post(length=64 * MIB + 1), labels(413), quick=True),
    _case(
        "200,000 messages",
        lambda: _chat(b"[" + b'{"role":"user","content":"a"},' * 200_000 + b"{}]"),
        labels("served", 400),
    ),
    _case("a million members", lambda: b"{" + b",".join(b'"a%d":1' % n for n in range(MIB)) + b"}", _REFUSED),
    _case(
        "25 MB of web_search_call items",
        lambda: b'{"model":"bad-chat","input":[' + _SEARCHES * 960_000 + _SEARCHES[:-1] + b"]}",
        labels(400, 502, 504),
        path=RESPONSES,
        meets_upstream=True,
    ),
    _case(
        "100,000 tools",
        lambda: json.dumps(
            {"model": "bad-chat", "input": "a", "tools": [{"type": "web_search"}] * 100_000}
        ).encode(),
        labels(400, 413, 502, 504),
        path=RESPONSES,
        meets_upstream=True,
    ),
    _case("poisoned id beside eight creations", _poisoned_id, _REFUSED, quick=True),
    _case("200 unknown responses under load", _unknown_ids, labels(404), quick=True),
    _case("1,000 unknown models", _unknown_models, labels(404)),
    Case(
        "cursor beyond all numbers",
        "client",
        _get(f"{RESPONSES}/resp_1?stream=true&starting_after=" + "9" * 400),
        labels(400, 404),
    ),
    Case(
        "item list with a poisoned cursor",
        "client",
        _get(f"{RESPONSES}/resp_1/input_items?after=%00%ED%A0%80&limit=-1"),
        labels(400, 404),
    ),
)
