"""What one client, and all of them together, may take of the gateway."""

from pydantic import Field

from sluicegate.config.section import Section
from sluicegate.config.values import Clients, HeadBytes, HeaderCount, Patience, Streams, UrlBytes


class BoundsConfig(Section):
    """The client's side: every number that somebody who connects could otherwise make large."""

    head_bytes: HeadBytes = Field(
        default=16 * 1024, description="Of a request's line and its headers together."
    )
    url_bytes: UrlBytes = Field(default=8 * 1024, description="Of a request's URL; a longer one is 414.")
    headers: HeaderCount = Field(default=100, description="How many a request may have.")
    head_seconds: Patience = Field(
        default=15.0, description="From a request's first byte to the end of its headers."
    )
    body_pause_seconds: Patience = Field(
        default=30.0, description="Between two parts of a request's body: a client that is slower is cut."
    )
    idle_seconds: Patience = Field(
        default=75.0,
        description="How long a connection without a request is kept: longer than the 60 s after which "
        "balancers drop theirs, so that the gateway never closes one that is about to be used.",
    )
    connections: Clients | None = Field(
        default=None,
        description="Clients' connections at once; null: as many as the limit of open files allows.",
    )
    requests: Clients = Field(
        default=10_000, description="Requests at once; more are answered with 503 and `retry-after`."
    )
    http2_streams: Streams = Field(default=128, description="Requests at once on one HTTP/2 connection.")
    http2_resets: Streams = Field(
        default=128,
        description="Requests of one HTTP/2 connection that were taken back before they were looked at; "
        "with more the connection is closed.",
    )
    client_stall_seconds: Patience = Field(
        default=60.0, description="A client that takes nothing of its reply for so long is cut."
    )
