"""The engine threads that a configuration asks for."""

from sluicegate._core import Decisions, Front
from sluicegate.config import Config

# A decision takes microseconds, and what waits for a store has its own deadlines, which are shorter.
PATIENCE_SECONDS = 15.0


def start_engines(config: Config, *, patience: float = PATIENCE_SECONDS) -> tuple[Decisions, Front]:
    """Start them: they run once this returns. `patience`: the seconds that a decision is waited for."""
    server = config.server
    decisions = Decisions(patience=patience)
    front = Front(
        decisions,
        threads=server.threads,
        max_body_bytes=server.max_body_bytes,
        all_bodies_bytes=server.bounds.all_bodies_bytes,
        hold_upload_bytes=server.bounds.hold_upload_bytes,
        max_event_bytes=server.max_event_bytes,
        max_reply_bytes=server.max_reply_bytes,
        client_buffer_bytes=server.client_buffer_bytes,
        keepalive_seconds=server.keepalive_seconds,
        client_stall_seconds=server.bounds.client_stall_seconds,
        drain_seconds=server.disconnect_drain.seconds,
        drain_bytes=server.disconnect_drain.bytes,
        drain_replies=server.disconnect_drain.replies,
        max_requests=server.bounds.requests,
        copies_bytes=config.responses.max_waiting_bytes,
    )
    return decisions, front
