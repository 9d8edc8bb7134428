"""How servers of Anthropic's Messages API differ: a table of traits, seen in source code or recordings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sluicegate.testing.dialects import DialectName


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesTraits:
    """One dialect of the Messages API. The defaults are Anthropic's own."""

    pings: bool = True
    signature: Literal["made", "empty", "absent"] = "made"
    """Of thinking, where the script says none. `absent`: neither member nor delta."""
    late_stops: bool = False
    """All blocks are closed at the end: thinking is open still while text comes."""
    call_input: bool = True
    """`input: {}` where a call begins."""
    arguments_whole: bool = False
    """A call's arguments in one delta."""
    start_input: Literal["counted", "zero", "guessed"] = "counted"
    """What `message_start` says of the input."""
    end_counts: Literal["all", "output"] = "all"
    """What `message_delta` counts."""
    start_stop_reason: bool = True
    """`stop_reason: null` in `message_start`."""
    filtered: str = "refusal"
    """The reason for the end where a filter ended it."""
    unknown_stop: Literal["kept", "null"] = "kept"
    """What becomes of a reason that Anthropic's API does not have."""
    error_types: Literal["anthropic", "python"] = "anthropic"
    """`python`: the names of classes, `BadRequestError`."""
    counts_tokens: bool = True
    """False: `count_tokens` is no path of it."""
    refused_blocks: tuple[str, ...] = ()
    """Types of blocks that a request with them is refused for."""
    metrics_event: bool = False
    """Bedrock, through gateways: an event without `type`, and usage in `message_stop`."""


ANTHROPIC = MessagesTraits()
_DIALECTS: Mapping[DialectName, MessagesTraits] = {
    "bedrock": MessagesTraits(metrics_event=True),
    "llamacpp": MessagesTraits(
        pings=False, signature="empty", late_stops=True, call_input=False, end_counts="output"
    ),
    "ollama": MessagesTraits(
        pings=False,
        signature="absent",
        arguments_whole=True,
        start_input="guessed",
        start_stop_reason=False,
        counts_tokens=False,
        refused_blocks=("document",),
    ),
    "sglang": MessagesTraits(
        pings=False, signature="absent", filtered="end_turn", refused_blocks=("redacted_thinking",)
    ),
    "vllm": MessagesTraits(
        pings=False,
        start_input="zero",
        unknown_stop="null",
        error_types="python",
        refused_blocks=("document", "search_result", "server_tool_use"),
    ),
}


def messages_traits(name: DialectName) -> MessagesTraits:
    """Those of the server whose dialect of chat has this name; of one without a Messages API, Anthropic's."""
    return _DIALECTS.get(name, ANTHROPIC)
