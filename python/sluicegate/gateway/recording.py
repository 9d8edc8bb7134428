"""From the end of a request to its record."""

from decimal import Decimal
from typing import TypedDict

from sluicegate._core import Ended, Fault, Outcome
from sluicegate.admission import Caller
from sluicegate.gateway.call import Call, Run
from sluicegate.gateway.state import Serving
from sluicegate.pricing import Cost, in_picodollars
from sluicegate.routing import may_succeed_elsewhere
from sluicegate.telemetry import RequestRecord, Result

LONGEST_NAME = 128
"""Characters of a model's name that no configuration knows, in a record."""


def cannot_count(fault: Fault) -> bool:
    """Whether an upstream that was to count tokens says that it has no such endpoint: neither its fault, nor
    one that another try could mend.
    """
    return fault.kind == "status" and fault.status in (404, 405, 501)


def result_of(status: int) -> Result:
    """Of a request that the gateway has answered by itself."""
    return "failed" if status >= 500 else "refused" if status >= 400 else "ok"


class Names(TypedDict):
    """Whose a request is, as its record and its row in the ledger say it."""

    caller: str | None
    key_id: str | None


def names_of(caller: Caller | None) -> Names:
    """None: nobody that is known."""
    if caller is None:
        return {"caller": None, "key_id": None}
    return {"caller": caller.name, "key_id": caller.key_id or None}


def record_of(ended: Ended, call: Call, serving: Serving) -> RequestRecord:
    """The record of a request that was decided about. `serving`: of the call."""
    outcome = ended.outcome
    caller, model, run = call.caller, call.model, call.run
    label = "" if model is None else model.label
    requested = None
    if model is None or not model.listed:
        if caller is not None and ended.model and serving.models.get(ended.model) is None:
            requested = ended.model[:LONGEST_NAME]
    elif model.asked != label:
        requested = model.asked[:LONGEST_NAME]
    counted = not call.counts or outcome.fault is None or not cannot_count(outcome.fault)
    return ended.record(
        _outcome_result(outcome, run) if counted else "refused",
        id=call.row,
        caller=None if caller is None else caller.name,
        key_id=None if caller is None else caller.key_id or None,
        model=label,
        requested_model=requested,
        code=call.code,
        limit=call.limit,
        response_id=None if run is None else run.response_id,
        price=None
        if call.serving.prices.by_tariff
        else _charged(ended, call, "" if model is None or not model.listed else model.name),
    )


def undecided_record(ended: Ended, serving: Serving) -> RequestRecord:
    """The record of a request that the front refused before anybody was asked."""
    known = serving.admission.keys.caller(ended.key)
    model, requested = "", None
    if known is not None and ended.model:
        found = serving.models.find(ended.model)
        model = "" if found is None else found.label
        if model != ended.model:
            requested = ended.model[:LONGEST_NAME]
    result = _outcome_result(ended.outcome, None)
    return ended.record(result, **names_of(known), model=model, requested_model=requested)


def _outcome_result(outcome: Outcome, run: Run | None) -> Result:
    if outcome.client_left:
        return "client_left" if run is None else run.stopped or "failed"
    if not outcome.attempts or outcome.code is not None:
        return result_of(outcome.status)
    fault = outcome.fault
    if fault is not None:
        if fault.kind == "untranslatable":
            return "refused" if outcome.status == 400 else "failed"
        blames_client = fault.kind == "status" and outcome.status < 500 and not may_succeed_elsewhere(fault)
        return "refused" if blames_client else "failed"
    # vLLM ends a request that its engine gave up with this, under status 200 (vllm#57082).
    return "failed" if outcome.finish_reason == "abort" else "ok"


def _charged(ended: Ended, call: Call, model: str) -> tuple[str | None, bool] | None:
    """What a policy of the user's own says that it cost, and whether it knows. None: nothing to price."""
    outcome = ended.outcome
    usage = outcome.usage
    if not outcome.attempts or usage is None:
        ended.charge(None)
        return None
    cost: Cost | None
    if usage == call.priced_usage:
        cost = call.cost
    else:
        cost = call.serving.prices.cost(model, outcome.upstream_model, usage)
    ended.charge(None if cost is None else in_picodollars(cost))
    return None if cost is None else _plain(cost.total), cost is not None


def _plain(amount: Decimal) -> str:
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
