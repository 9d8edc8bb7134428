"""The page of the documentation that says how the cases ended, written by the run itself."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from hostile.honest import STREAMS
from hostile.stand import MIB, Outcome

_HEAD = """\
# Hostile clients and upstreams

`make hostile` plays misbehaving clients and upstreams against one gateway, one after the other, while
{streams} honest streams flow through it, and writes this page. The cases are in `tests/hostile`. A case
went right if

- each honest stream had the right bytes, and none waited more than 100 ms beyond its pace for a chunk, less
  what the measuring process itself was late;
- the hostile client, or the client of the hostile upstream, got a reply or an error in its protocol, or was
  cut, whichever the case says is right, and nothing hung;
- the next new request was served, by the same process;
- the gateway's memory came back to what it was, and a tenth of it and 48 MiB for what allocators keep;
- neither a key nor a prompt was in the log.

{date}, {cores} cores, {count} cases, of which {right} went right:

| group | cases | right | served | an error | cut | longest wait |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
{rows}

*Served*: what is odd and harmless is passed on, or answered, as if it were not odd. *An error*: of the API,
with its code, as a reply or as the last event of the stream. *Cut*: what is no HTTP has nobody to answer,
and a client that takes nothing gets nothing. *Longest wait*: of an honest stream, beyond its pace. The
gateway held {memory} MiB at most while cases were played, and {kept} MiB at most when one was over.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One case of a group, played."""

    group: str
    outcome: Outcome


def page(rows: Sequence[Row], day: date) -> str:
    """The whole file."""
    groups = dict.fromkeys(row.group for row in rows)
    lines = [_line(group, [row.outcome for row in rows if row.group == group]) for group in groups]
    return _HEAD.format(
        streams=STREAMS,
        date=day.isoformat(),
        cores=os.cpu_count(),
        count=len(rows),
        right=sum(not row.outcome.problems for row in rows),
        rows="\n".join(lines),
        memory=max(row.outcome.peak for row in rows) // MIB,
        kept=max(row.outcome.memory for row in rows) // MIB,
    )


def _line(group: str, outcomes: Sequence[Outcome]) -> str:
    labels = [outcome.seen.label for outcome in outcomes]
    served, cut = labels.count("served"), labels.count("cut")
    longest = max(outcome.honest.delay for outcome in outcomes) * 1000
    right = sum(not outcome.problems for outcome in outcomes)
    counts = f"{len(labels)} | {right} | {served} | {len(labels) - served - cut} | {cut}"
    return f"| {group} | {counts} | {longest:.0f} ms |"
