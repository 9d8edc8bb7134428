"""What one client, and all of them together, may take of the gateway."""

from pydantic import Field

from sluicegate.config.section import Section
from sluicegate.config.values import (
    ByteRate,
    Bytes,
    Clients,
    HeadBytes,
    HeaderCount,
    Patience,
    Streams,
    UrlBytes,
    default_all_bodies,
)


class BoundsConfig(Section):
    """The client's side: every number that somebody who connects could otherwise make large."""

    head_bytes: HeadBytes = Field(
        default=16 * 1024, description="The largest request line and headers together."
    )
    url_bytes: UrlBytes = Field(
        default=8 * 1024, description="The longest URL of a request; a longer one is answered with 414."
    )
    headers: HeaderCount = Field(default=100, description="How many headers a request may have.")
    head_seconds: Patience = Field(
        default=15.0,
        description="How long a client may take from a request's first byte to the end of its headers.",
    )
    body_pause_seconds: Patience = Field(
        default=30.0,
        description="How long a client may pause within a request's body; a slower one is answered with 408.",
    )
    body_bytes_per_second: ByteRate = Field(
        default=500,
        description="How fast a request's body has to come on average, apart from the first "
        "`body_pause_seconds`: a body that comes byte by byte would never end. A slower one is answered "
        "with 408.",
    )
    idle_seconds: Patience = Field(
        default=75.0,
        description="How long a connection without a request is kept. Longer than the 60 s after which "
        "balancers close theirs, so that the gateway never closes one that is about to be used.",
    )
    connections: Clients | None = Field(
        default=None,
        description="How many connections clients may have open at once; null: as many as the limit of open "
        "files allows.",
    )
    requests: Clients = Field(
        default=10_000,
        description="How many requests are served at once; more are answered with 503 and `retry-after`.",
    )
    all_bodies_bytes: Bytes = Field(
        default_factory=default_all_bodies,
        description="How much of the bodies of all requests together is held at once: a request past it is "
        "answered with 503 and `retry-after`. A body is held until its reply begins, and bodies of no more "
        "than 16 KiB are not counted.",
    )
    hold_upload_bytes: Bytes = Field(
        default=64 * 1024,
        description="How much of an upload (audio, images) is held before it is sent on: what is no larger "
        "can be tried at another upstream. More is held where the client names its model behind its file.",
    )
    http2_streams: Streams = Field(
        default=128, description="How many requests one HTTP/2 connection may have open at once."
    )
    http2_resets: Streams = Field(
        default=128,
        description="How many requests an HTTP/2 connection may reset before they were looked at; after more "
        "it is closed. By as many may those that are reset later outnumber those that are answered; after "
        "more it takes no new requests.",
    )
    client_stall_seconds: Patience = Field(
        default=60.0,
        description="How long a client may take nothing of its reply before its connection is closed.",
    )
