"""From an exchange's outcome to its record."""

from sluicegate._core import Outcome, Usage
from sluicegate.gateway.reply import Reply
from sluicegate.routing import may_succeed_elsewhere
from sluicegate.telemetry import RequestRecord, Result


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


def outcome_record(endpoint: str, key: str | None, reply: Reply, outcome: Outcome) -> RequestRecord:
    """The record of an exchange that has ended."""
    fault = outcome.fault
    tried = reply.tried
    if fault is not None and len(tried) >= outcome.attempts:
        # The last attempt was reported by `failed`, too.
        tried = tried[:-1]
    record = RequestRecord(
        reply.request_id,
        endpoint,
        outcome.status,
        _result(outcome),
        outcome.duration,
        key,
        reply.model,
        upstream=outcome.upstream,
        upstream_model=outcome.upstream_model,
        upstream_request_id=outcome.upstream_request_id,
        attempts=outcome.attempts,
        streamed=outcome.streamed,
        code=reply.code,
        fault=None if fault is None else fault.kind,
        failed_attempts=tuple(tried),
        left_out=tuple(outcome.left_out),
        finish_reason=outcome.finish_reason,
        client_left=outcome.client_left,
        events=outcome.events,
        malformed=outcome.malformed,
        bytes_in=outcome.bytes_in,
        bytes_out=outcome.bytes_out,
    )
    if outcome.streamed:
        _add_pace(record, outcome)
    _add_usage(record, reply, outcome)
    return record


def _result(outcome: Outcome) -> Result:
    fault = outcome.fault
    if outcome.client_left:
        return "client_left"
    if fault is not None:
        if fault.kind == "untranslatable":
            return "refused" if outcome.status == 400 else "failed"
        blames_client = fault.kind == "status" and outcome.status < 500 and not may_succeed_elsewhere(fault)
        return "refused" if blames_client else "failed"
    # vLLM ends a request that its engine gave up with this, under status 200 (vllm#57082).
    return "failed" if outcome.finish_reason == "abort" else "ok"


def _add_pace(record: RequestRecord, outcome: Outcome) -> None:
    first, last = outcome.first_token, outcome.last_token
    record.time_to_first_token = first
    record.longest_gap = outcome.longest_gap
    if first is not None and last is not None and outcome.token_events > 1:
        record.inter_token_latency = (last - first) / (outcome.token_events - 1)


def _add_usage(record: RequestRecord, reply: Reply, outcome: Outcome) -> None:
    usage = outcome.usage
    if usage is not None:
        record.input_tokens = usage.input_tokens
        record.cached_input_tokens = usage.cached_input_tokens
        record.cache_write_tokens = usage.cache_write_tokens
        record.output_tokens = usage.output_tokens
        record.reasoning_tokens = usage.reasoning_tokens
        record.upstream_cost = usage.upstream_cost
    cut_off = outcome.finish_reason is None and (outcome.client_left or outcome.fault is not None)
    counted = outcome.token_events
    if (usage is None or cut_off) and counted > (record.output_tokens or 0) and outcome.events:
        record.estimated = True
        record.output_tokens = counted
        cost = reply.price_of(CountedUsage(counted, usage))
    elif usage is not None:
        cost = reply.cost if usage == reply.priced_usage else reply.price_of(usage)
    else:
        return
    record.priced = cost is not None
    record.cost = None if cost is None else cost.total
