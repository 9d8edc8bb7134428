"""From a record of the journal to a row of the ledger."""

from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Any

from sluicegate.ledger.schema import COSTS, TOKENS, ledger

PICO = 10**12
"""Parts of a USD in which costs are counted."""

# No request has that many tokens or costs that much. A count that an upstream made up must not make a sum of
# honest rows overflow, so what is above is not known.
MOST_TOKENS = 10**11
MOST_COST = 10_000 * PICO

_COLUMNS = tuple(ledger.c.keys())
_TEXTS = frozenset(name for name in _COLUMNS if ledger.c[name].type.python_type is str)

Row = dict[str, Any]
Record = Mapping[str, Any]
"""As `_core.JournalBatch.rows` has it."""


def result_of(record: Record) -> str:
    """How a request ended, of what its journal says: ok, failed, refused by its upstream, client_left or, of
    a run of a background response, cancelled; interrupted where the gateway did not live to see it.
    """
    if record["interrupted"]:
        return "interrupted"
    if record["client_left"]:
        return "cancelled" if record["background"] else "client_left"
    fault, status = record["fault"], record["status"] or 0
    if fault is None:
        if status >= 400:
            return "failed" if status >= 500 else "refused"
        # vLLM ends a request that its engine gave up with this, under status 200 (vllm#57082).
        return "failed" if record["finish_reason"] == "abort" else "ok"
    # A client is told 429 and 408 for its upstream's sake.
    blames_client = fault in ("status", "untranslatable") and 400 <= status < 500 and status not in (408, 429)
    return "refused" if blames_client else "failed"


def row_of(record: Record, zone: tzinfo, gateway: str, version: str) -> Row:
    """The ledger's row. `zone`: where a day begins."""
    row = {name: record.get(name) for name in _COLUMNS}
    started = row["started_at"] = record["started_at"] or 0
    row["day"] = datetime.fromtimestamp(started / 1e6, zone).date()
    row["result"] = result_of(record)
    row["gateway"], row["version"] = gateway, version
    for name in _TEXTS:
        text = row[name]
        # PostgreSQL takes no such character in a text.
        if text is not None and "\0" in text:
            row[name] = text.replace("\0", "\ufffd")
    made_up = [name for name in TOKENS if (row[name] or 0) > MOST_TOKENS]
    if made_up or (row["cost"] or 0) > MOST_COST:
        for name in (*made_up, *COSTS, "price_id"):
            row[name] = None
    return row


def attempts_of(record: Record) -> list[Row]:
    """The rows of a request's attempts, where it had several."""
    return [
        {
            "id": record["id"],
            "n": number,
            "upstream": upstream,
            "upstream_model": model,
            "fault": fault,
            "status": status,
            "started_at": (record["started_at"] or 0) + began,
            "duration": took,
        }
        for number, (upstream, model, fault, status, began, took) in enumerate(record["tries"], 1)
    ]
