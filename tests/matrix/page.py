"""The page of the documentation that shows the matrix, written by the run itself."""

import itertools
from collections.abc import Sequence
from datetime import date

from matrix.play import Outcome
from matrix.replies import APIS, REPLIES, Api, Reply

_NAMES = {"chat": "Chat Completions", "responses": "Responses", "messages": "Messages"}

_HEAD = """\
# Any client over any upstream

`make matrix` has clients of each API ask upstreams of each API through one gateway, and writes this page;
`make test` runs the same. Each pair is asked for each kind of reply in four forms: by a client that streams
and by one that does not, of an upstream that streams and of one that does not (`streaming: always` and
`never`). The cases are in `tests/matrix`, the upstream is the [scripted one](command-line.md). A form is
right if

- the client reads what the upstream said: text, reasoning, tool calls with their arguments, and why it ended;
- the events come in the order of the client's protocol, and each is what the API's official Python package
  takes, with no member that it does not know but those that say the cost, and none twice;
- usage has the upstream's counts in the client's form, and the cost, in the reply and in the log, is what was
  worked out by hand;
- an error has the client's form, and its status where the reply has not begun;
- reasoning that its upstream has signed comes back to it, with its signature, when the client goes on.

What is expected was written down from the APIs' documentation, and shares no code with the gateway. On
{date}, {right} of {count} replies were right:

| client | upstream | {replies} |
| --- | --- | {rule} |
{rows}

*Signed*: reasoning with a signature, or encrypted. *Error*: a status of 429. *Break*: an error in the middle
of a stream, or a document that breaks off. What is right is not everywhere the same:

| reply | where | what comes |
| --- | --- | --- |
| signed | chat upstream | in `reasoning_details`, as OpenRouter signs |
| refusal | Messages on either side | text; the reason for the end says that it is a refusal |
| break | a document | status 502: nothing of the reply has been shown yet |
| break | Responses on both sides | as it came: items that the upstream leaves open stay open |
| error | Messages upstream, another client | the upstream's type, `rate_limit_error`, in the client's form |
"""


def page(outcomes: Sequence[Outcome], day: date) -> str:
    """The whole file."""
    return _HEAD.format(
        date=day.isoformat(),
        count=len(outcomes),
        right=sum(not outcome.problems for outcome in outcomes),
        replies=" | ".join(reply.name for reply in REPLIES),
        rule=" | ".join(":-:" for _ in REPLIES),
        rows="\n".join(table(outcomes)),
    )


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """A row for each pair of APIs."""
    return [
        f"| {_NAMES[client]} | {_NAMES[upstream]} | "
        + " | ".join(_shown(_of(outcomes, client, upstream, reply)) for reply in REPLIES)
        + " |"
        for client, upstream in itertools.product(APIS, APIS)
    ]


def _of(outcomes: Sequence[Outcome], client: Api, upstream: Api, reply: Reply) -> list[Outcome]:
    asked = (client, upstream, reply)
    return [one for one in outcomes if (one.cell.client, one.cell.upstream, one.cell.reply) == asked]


def _shown(outcomes: Sequence[Outcome]) -> str:
    right = sum(not outcome.problems for outcome in outcomes)
    return "✓" if outcomes and right == len(outcomes) else f"{right} of {len(outcomes)}"
