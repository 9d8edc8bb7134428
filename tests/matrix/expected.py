"""What each cell must come to, worked out by hand from the APIs' documentation, not from the gateway."""

from dataclasses import dataclass
from decimal import Decimal

from matrix.cell import Cell
from matrix.replies import SIGNATURE, THOUGHT, Api
from matrix.returned import NOTHING, Returned

# Why a reply ends, in each client's words.
STOP: dict[str, dict[Api, str]] = {
    "stop": {"chat": "stop", "responses": "completed", "messages": "end_turn"},
    "tool_calls": {"chat": "tool_calls", "responses": "completed", "messages": "tool_use"},
    "length": {"chat": "length", "responses": "max_output_tokens", "messages": "max_tokens"},
}

REFUSED: dict[Api, str] = {"chat": "content_filter", "responses": "content_filter", "messages": "refusal"}
"""The same of a refusal, where either side speaks Messages."""

COST = {0: Decimal("0.00102"), 20: Decimal("0.00106")}
"""By tokens of reasoning. Per million: 500 of input at 1, 300 from the cache at 0.1, 200 into it at 1.25; 60
of output at 4, or 40 at 4 and 20 of reasoning at 6. So 500 + 30 + 250 + 240 = 1020 millionths, or
500 + 30 + 250 + 160 + 120 = 1060."""
REASONING_COST = {0: Decimal(0), 20: Decimal("0.00012")}
"""The part of the output's cost that is reasoning's."""


ESTIMATED = {"input": 59, "cached": 0, "written": 0}
"""What a stream of Messages says of its input before its upstream has counted it: four bytes a token, of
which the tools have 212 as they are sent, and the question 24."""


@dataclass(frozen=True, slots=True)
class Expected:
    status: int = 200
    text: str = ""
    refusal: str = ""
    stop: str = ""
    error_type: str = ""
    fault: str = ""
    has_text: bool = False
    returned: Returned = NOTHING


# Whose words an upstream's error has: a client of OpenAI's APIs reads the upstream's own type.
_LIMITED: dict[Api, str] = {"chat": "requests", "responses": "requests", "messages": "rate_limit_error"}


def expected(cell: Cell) -> Expected:
    reply, client, upstream = cell.reply, cell.client, cell.upstream
    if reply.fault == "status":
        whose = client if client == "messages" else upstream
        return Expected(status=429, error_type=_LIMITED[whose])
    if reply.fault == "within":
        # Nothing has been said of a document that breaks off, so its error is still the reply's status.
        begun = cell.client_streams and cell.upstream_streams
        return Expected(
            status=200 if begun else 502,
            fault="in_band_error" if cell.upstream_streams else "truncated",
            has_text=begun,
        )
    stop = STOP[reply.stop][client]
    if reply.refusal and "messages" in (client, upstream):
        # The Messages API has no word for a refusal but the reason for the end, which comes behind the text.
        return Expected(text=reply.refusal, stop=REFUSED[client])
    signed = Returned(THOUGHT, SIGNATURE)
    return Expected(text=reply.text, refusal=reply.refusal, stop=stop, returned=signed)
