"""A record in which everything is known."""

from sluicegate.telemetry import RequestRecord

NASTY = 'a"b\\c\n\u2028\x00\x7fé😀'
"""What must be escaped in JSON, and what need not be."""


def full_record() -> RequestRecord:
    return RequestRecord(
        endpoint="chat_completions", status=200, result="ok", duration=1.0,
        request_id=NASTY, id=NASTY, caller=NASTY, key_id=NASTY,
        upstream=NASTY, upstream_model=NASTY, upstream_request_id=NASTY,
        model=NASTY, code=NASTY, finish_reason=NASTY, upstream_cost=NASTY, fault="reset",
        tries=[(NASTY, NASTY, "connect", None, "dns", 0.0, 0.5), ("b", "m", "status", 503, None, 0.5, 0.25),
               (NASTY, NASTY, "reset", None, "closed", 0.75, 0.25)], path=NASTY,
        client_left=True, stalled=True, response_id=NASTY, left_out=[NASTY], streamed=True,
        time_to_first_token=0.1234567, inter_token_latency=1e-9, longest_gap=3600.0, client_blocked=1.5,
        input_tokens=1, cached_input_tokens=2, cache_write_tokens=3, output_tokens=4, reasoning_tokens=5,
        estimated=True, cost="0.5", priced=False, events=6, malformed=7, bytes_in=8, bytes_out=9, attempts=3,
    )  # fmt: skip
