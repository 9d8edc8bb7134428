"""From the end of a request to its record."""

from decimal import Decimal

from sluicegate._core import Ended, Outcome, Usage
from sluicegate.gateway.call import Call, Run
from sluicegate.gateway.keys import Caller
from sluicegate.gateway.state import Serving
from sluicegate.pricing import Cost
from sluicegate.routing import may_succeed_elsewhere
from sluicegate.telemetry import RequestRecord, Result

LONGEST_NAME = 128
"""Characters of a model's name that no configuration knows, in a record."""


class CountedUsage:
    """What is known of a reply that ended before its usage: the events that bore output, and any preview.

    Input that nobody reported is 0 here, and not None, so that what was counted can be priced.
    """

    __slots__ = ("_preview", "output_tokens")

    def __init__(self, output_tokens: int, preview: Usage | None) -> None:
        self.output_tokens = output_tokens
        self._preview = preview

    @property
    def input_tokens(self) -> int:
        return 0 if self._preview is None else self._preview.input_tokens or 0

    def __getattr__(self, name: str) -> int | None:
        return None if self._preview is None else getattr(self._preview, name)


def result_of(status: int) -> Result:
    """Of a request that the gateway has answered by itself."""
    return "failed" if status >= 500 else "refused" if status >= 400 else "ok"


def record_of(ended: Ended, call: Call, serving: Serving) -> RequestRecord:
    """The record of a request that was decided about. `serving`: of the call."""
    outcome = ended.outcome
    model = call.model
    run = call.run
    record = _record(ended, outcome, _outcome_result(outcome, run))
    if call.caller is not None:
        record.key = call.caller.name
    if model is not None and model.listed:
        record.model = model.name
    elif call.caller is not None and ended.model and serving.models.get(ended.model) is None:
        record.requested_model = ended.model[:LONGEST_NAME]
    if call.code is not None:
        record.code = call.code
    if run is not None:
        record.response_id = run.response_id
        record.client_left = False
    if outcome.attempts:
        _add_attempts(record, call, outcome)
    return record


def undecided_record(ended: Ended, serving: Serving) -> RequestRecord:
    """The record of a request that the front refused before anybody was asked."""
    record = _record(ended, ended.outcome, _outcome_result(ended.outcome, None))
    caller = serving.admission.identify(ended.key, ended.key is not None)
    if isinstance(caller, Caller):
        record.key = caller.name
        if ended.model:
            if serving.models.get(ended.model) is None:
                record.requested_model = ended.model[:LONGEST_NAME]
            else:
                record.model = ended.model
    return record


def _record(ended: Ended, outcome: Outcome, result: Result) -> RequestRecord:
    return RequestRecord(
        ended.request_id,
        ended.endpoint or "other",
        outcome.status,
        result,
        outcome.duration,
        code=outcome.code,
        client_left=outcome.client_left,
        stalled=outcome.stalled,
    )


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


def _add_attempts(record: RequestRecord, call: Call, outcome: Outcome) -> None:
    (
        record.upstream, record.upstream_model, record.upstream_request_id, record.attempts, record.tries,
        record.fault, record.left_out, record.finish_reason, record.events, record.malformed, record.bytes_in,
        record.bytes_out, record.streamed, record.time_to_first_token, record.inter_token_latency,
        record.longest_gap, record.client_blocked, record.input_tokens, record.cached_input_tokens,
        record.cache_write_tokens, record.output_tokens, record.reasoning_tokens, record.estimated,
        record.cost, record.upstream_cost, record.priced,
    ) = outcome.figures()  # fmt: skip
    prices = call.serving.prices
    if prices.by_tariff:
        return
    usage = outcome.usage
    if usage is None and not record.estimated:
        return
    cost: Cost | None
    if usage is not None and not record.estimated and usage == call.priced_usage:
        cost = call.cost
    else:
        known = usage if usage is not None and not record.estimated else None
        asked = CountedUsage(outcome.counted_output, usage) if known is None else known
        cost = prices.cost(record.model, record.upstream_model, asked)
    record.priced = cost is not None
    record.cost = None if cost is None else _plain(cost.total)


def _plain(amount: Decimal) -> str:
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
