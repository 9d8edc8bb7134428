"""One exchange of a soak: what is asked, what the upstream shall do, and whether the reply is right."""

import asyncio
import json
import random
from dataclasses import dataclass, field
from typing import Any, Literal

from raw_http import RawConnection

CHAT = "/v1/chat/completions"
FAULT_SHARE = 0.05
LEAVING_SHARE = 0.10
DOCUMENT_SHARE = 0.10
SLOW_SHARE = 0.03

End = Literal["whole", "error", "left"]

# (what the upstream does, whether the reply is whole all the same)
FAULTS: tuple[tuple[dict[str, Any], bool], ...] = (
    ({"action": "close", "at": "before_head"}, False),
    ({"action": "reset", "at": "after_head"}, False),
    ({"action": "close"}, False),
    ({"action": "reset"}, False),
    ({"action": "reset", "at": "mid_event"}, False),
    ({"action": "stall"}, False),
    ({"action": "stall", "seconds": 0.5}, True),
    ({"action": "error"}, False),
    ({"action": "malformed"}, True),
)


@dataclass
class Exchange:
    """`words` is what the upstream says. `leaves_after`: the client leaves once it has had so many bytes."""

    number: int
    model: str
    words: list[str]
    pace: float
    stream: bool = True
    fault: dict[str, Any] | None = None
    survives: bool = True
    """The reply is whole, whatever the fault."""
    leaves_after: int | None = None
    slow: bool = False
    end: End | None = None
    events: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def request_id(self) -> str:
        return f"soak-{self.number}"

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def body(self) -> bytes:
        mock: dict[str, Any] = {"text": self.text, "pace": self.pace}
        if self.fault is not None:
            mock["faults"] = [self.fault]
        asked = {
            "model": self.model,
            "messages": [{"role": "user", "content": self.request_id}],
            "stream": self.stream,
            "mock": mock,
        }
        if self.stream and self.number % 2:
            asked["stream_options"] = {"include_usage": True}
        return json.dumps(asked).encode()


def choose(number: int, chance: random.Random) -> Exchange:
    """The exchange with this number. No two say the same word, so that nothing can come from another one."""
    words = [f"{number}.{n}" for n in range(chance.randint(3, 60))]
    exchange = Exchange(
        number, chance.choice(("small", "small", "drained")), words, pace=chance.choice((0.0, 0.05, 0.2, 0.4))
    )
    exchange.stream = chance.random() >= DOCUMENT_SHARE
    exchange.slow = chance.random() < SLOW_SHARE
    if chance.random() < FAULT_SHARE:
        fault, survives = chance.choice(FAULTS)
        if not exchange.stream:
            fault, survives = {"action": "reset", "at": chance.choice(("before_head", "after_head"))}, False
        exchange.fault = {"events": chance.randint(1, len(words)), **fault}
        exchange.survives = survives
    elif chance.random() < LEAVING_SHARE:
        exchange.leaves_after = chance.choice((0, 1, 200 * chance.randint(1, len(words))))
    return exchange


async def run(exchange: Exchange, address: tuple[str, int], seconds: float) -> None:
    """Go through with it, and note what is wrong."""
    try:
        async with asyncio.timeout(seconds), RawConnection(*address, patience=seconds) as connection:
            headers = (f"x-request-id: {exchange.request_id}",)
            await connection.post(CHAT, exchange.body(), headers=headers)
            await _read(exchange, connection)
    except TimeoutError:
        exchange.problems.append(f"no end in {seconds:.0f} s")
    except (OSError, EOFError) as error:
        exchange.problems.append(f"the connection broke: {error!r}")


async def _read(exchange: Exchange, connection: RawConnection) -> None:
    leaves_after = exchange.leaves_after
    if leaves_after == 0:
        exchange.end = "left"
        return
    if exchange.slow:
        await asyncio.sleep(0.5)
    reply = await connection.head()
    if "content-length" in reply.headers:
        data = await connection.reader.readexactly(int(reply.headers["content-length"]))
        _check_document(exchange, reply.status, data)
        return
    data = b""
    while piece := await connection.chunk():
        data += piece
        if leaves_after is not None and len(data) >= leaves_after:
            exchange.end = "left"
            _check_stream(exchange, data[: data.rfind(b"\n\n") + 2])
            return
        if exchange.slow:
            await asyncio.sleep(0.05)
    _check_stream(exchange, data)


def _check_document(exchange: Exchange, status: int, data: bytes) -> None:
    reply = json.loads(data)
    if status != 200:
        exchange.end = "error"
        if exchange.survives or "error" not in reply:
            exchange.problems.append(f"status {status}: {data[:200]!r}")
        return
    exchange.end = "whole"
    exchange.events = 1
    if reply["choices"][0]["message"]["content"] != exchange.text:
        exchange.problems.append("another text")
    if "cost" not in reply["usage"]:
        exchange.problems.append("no cost")


def _check_stream(exchange: Exchange, data: bytes) -> None:
    text = ""
    endings: list[End] = []
    for event in data.split(b"\n\n"):
        payload = event.removeprefix(b"data: ")
        if payload == event:
            # A comment, or what is left behind the last event.
            continue
        exchange.events += 1
        if payload == b"[DONE]":
            endings.append("whole")
            continue
        try:
            value = json.loads(payload)
        except ValueError:
            if exchange.fault is None or exchange.fault["action"] != "malformed":
                exchange.problems.append(f"not JSON: {payload[:100]!r}")
            continue
        if "error" in value:
            endings.append("error")
        for choice in value.get("choices", ()):
            text += choice["delta"].get("content") or ""
    if exchange.end == "left":
        if not exchange.text.startswith(text):
            exchange.problems.append("another text before it left")
        return
    if len(endings) != 1:
        exchange.problems.append(f"ends {len(endings)} times: {data[-200:]!r}")
        return
    exchange.end = endings[0]
    if exchange.end == "whole" and text != exchange.text:
        exchange.problems.append(f"{len(text)} characters of {len(exchange.text)}")
    if not exchange.text.startswith(text):
        exchange.problems.append("another text")
    if (exchange.end == "whole") is not exchange.survives:
        exchange.problems.append(f"ended {exchange.end} with {exchange.fault}")
