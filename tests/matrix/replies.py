"""What upstreams reply with: the script for each API, and what is said in it, in no API's words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Api = Literal["chat", "responses", "messages"]
APIS: tuple[Api, ...] = ("chat", "responses", "messages")

TEXT = 'At Köln: "Five €?"\nC:\\gate 🌊 {"usage": 1} open.'
THOUGHT = "The skipper wants to pass;"
"""The first five words of what the scripted upstream thinks."""
REFUSAL = "I will not lift the gate."
SIGNATURE = "EqQBCkYIAxgCIkA+/signed=="
RETRY_AFTER = "7"
LIMITED = "Rate limit reached for requests."

INPUT, CACHED, WRITTEN, OUTPUT, REASONING = 1000, 300, 200, 60, 20
"""Tokens; input includes what was read from the cache and written to it, output includes reasoning."""


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    name: str
    arguments: str


ROME = Call("call_rome", "get_weather", '{"city":"Rome","days":[1,2],"note":"\\u00e9 \\"x\\"\\n"}')
PARIS = Call("call_paris", "get_time", '{"zone":{"b":null,"a":true}}')


@dataclass(frozen=True, slots=True)
class Reply:
    """One kind of reply.

    `stop`: why it ends, in chat's words, which the scripted upstream takes for every API. `fault`: an error
    status, or an error within a stream, where a document breaks off.
    """

    name: str
    text: str = ""
    reasoning: str = ""
    signature: str | None = None
    refusal: str = ""
    calls: tuple[Call, ...] = ()
    stop: Literal["stop", "tool_calls", "length"] = "stop"
    fault: Literal["status", "within"] | None = None

    @property
    def reasoning_tokens(self) -> int:
        return REASONING if self.reasoning else 0

    def script(self, upstream: Api, *, streams: bool) -> Mapping[str, Any]:
        """The scripted upstream's script for it, as JSON."""
        script: dict[str, Any] = {
            "tokens": 0,
            "finish_reason": self.stop,
            "usage": {
                "input_tokens": INPUT,
                "cached_tokens": CACHED,
                "cache_write_tokens": WRITTEN,
                "output_tokens": OUTPUT,
                "reasoning_tokens": self.reasoning_tokens,
            },
        }
        if self.text:
            script["text"] = self.text
        if self.reasoning:
            script["reasoning_tokens"] = len(self.reasoning.split())
        if self.signature is not None:
            script["reasoning_signature"] = self.signature
        if self.refusal:
            script["refusal"] = self.refusal
        if self.calls:
            script["tool_calls"] = [
                {"id": call.id, "name": call.name, "arguments": call.arguments} for call in self.calls
            ]
        if self.fault == "status":
            script |= {"status": 429, "headers": {"retry-after": RETRY_AFTER}}
        elif self.fault == "within":
            script["faults"] = [
                _break(upstream) if streams else {"action": "close", "at": "mid_event", "events": 0}
            ]
        return script


def _break(upstream: Api) -> Mapping[str, Any]:
    """An error event behind the second word of the text; for Responses in the form of its specification."""
    events = {"chat": 3, "responses": 6, "messages": 5}[upstream]
    return {"action": "error", "events": events, "style": "event" if upstream == "responses" else "data"}


REPLIES = (
    Reply("text", text=TEXT),
    Reply("reasoning", text=TEXT, reasoning=THOUGHT),
    Reply("signed", text=TEXT, reasoning=THOUGHT, signature=SIGNATURE),
    Reply("one tool", text="A look.", calls=(ROME,), stop="tool_calls"),
    Reply("two tools", calls=(ROME, PARIS), stop="tool_calls"),
    Reply("refusal", refusal=REFUSAL),
    Reply("length", text=TEXT, stop="length"),
    Reply("error", text=TEXT, fault="status"),
    Reply("break", text=TEXT, fault="within"),
    Reply("empty"),
)
