"""The entry that a request has in the ledger's journal."""

from sluicegate._core import Arrived, JournalEntry, Route
from sluicegate.admission import ANYONE, LONGEST_USER
from sluicegate.gateway.call import Call
from sluicegate.ledger import Ledger


class LedgerFull(Exception):
    """There is no room for an entry, and a request without one is not served."""


class LedgerNotSynced(Exception):
    """The entry has to be on the disk, which takes nothing."""


def estimated_input(call: Call, rough: int | None) -> int | None:
    """What is charged for an input of about `rough` tokens that no upstream tells; None: nothing is."""
    if rough is None or call.counts:
        return None
    return rough if call.lease is None else call.lease.estimate_input(rough)


def open_entry(
    ledger: Ledger, call: Call, arrived: Arrived, route: Route, estimate: int | None
) -> JournalEntry | None:
    """The entry of a request that is about to be sent to `route`. For the thread that decides. `estimate`: as
    `estimated_input` says.

    None where the request has no row: it only counts tokens, or there is no room.
    Raises `LedgerFull` and `LedgerNotSynced`.
    """
    model, run = call.model, call.run
    if ledger.journal is None or model is None or call.counts:
        return None
    admission = call.serving.admission
    user = admission.user(arrived) if admission.user_header is not None else arrived.user
    name = model.name
    requested = None if model.asked == name else model.asked
    if user is not None:
        user = user[:LONGEST_USER]
    caller = call.caller or ANYONE
    owner, key = caller.owner or None, caller.key_id or None
    response, number = (None, None) if run is None else (run.response_id, run.number)
    try:
        entry = ledger.journal.open(
            arrived,
            route,
            name,
            requested,
            owner,
            caller.name,
            key,
            caller.team,
            user,
            estimate,
            response,
            number,
        )
    except OSError as error:
        ledger.not_synced(error)
        raise LedgerNotSynced from None
    if entry is None:
        ledger.full()
        if not ledger.drops:
            raise LedgerFull
    return entry
