"""The entry that a request has in the ledger's journal."""

from sluicegate._core import Arrived, JournalEntry, Route
from sluicegate.admission import LONGEST_USER
from sluicegate.gateway.call import Call
from sluicegate.ledger import Ledger


class LedgerFull(Exception):
    """There is no room for an entry, and a request without one is not served."""


def open_entry(ledger: Ledger | None, call: Call, arrived: Arrived, route: Route) -> JournalEntry | None:
    """The entry of a request that is about to be sent to `route`. For the thread that decides.

    None where no ledger is kept, or where the request has no row: it only counts tokens, or there is no room.
    Raises `LedgerFull`.
    """
    model, caller, run = call.model, call.caller, call.run
    if ledger is None or ledger.journal is None or model is None or call.counts:
        return None
    admission = call.serving.admission
    user = admission.user(arrived) if admission.user_header is not None else arrived.user
    entry = ledger.journal.open(
        arrived,
        upstream=route.upstream.name,
        upstream_model=route.model,
        model=model.name,
        requested_model=None if model.asked == model.name else model.asked,
        caller_id=None if caller is None else caller.owner or None,
        caller=None if caller is None else caller.name,
        key_id=None if caller is None else caller.key_id or None,
        team=None if caller is None else caller.team,
        user_id=None if user is None else user[:LONGEST_USER],
        response_id=None if run is None else run.response_id,
        run=1 if run is None else run.number,
        background=run is not None,
        estimated_input=arrived.input_tokens_estimate,
    )
    if entry is None:
        ledger.full()
        if not ledger.drops:
            raise LedgerFull
    return entry
