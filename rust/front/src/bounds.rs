//! The bounds of clients: what a request, a reply and a connection may take.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_relay::{Copies, DrainLimits};

/// Bounds of requests and replies.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of a request's body.
    pub max_body: usize,
    /// Bytes of the bodies of all requests together that are held at once. Small ones are not counted.
    pub all_bodies: usize,
    /// Bytes of an upload that are held in any case before it is sent on.
    pub hold_upload: usize,
    /// Bytes of one event in an upstream's stream.
    pub max_event: usize,
    /// Bytes of one JSON reply that is held whole.
    pub max_reply: usize,
    /// Bytes held for one slow client.
    pub client_buffer: usize,
    /// A comment to a streaming client after this long a silence.
    pub keepalive: Option<Duration>,
    /// A client that takes nothing for so long is cut.
    pub client_stall: Option<Duration>,
    /// How far replies are read on whose clients have left.
    pub drain: DrainLimits,
    /// Requests under way.
    pub max_requests: usize,
    /// Room for the replies that are kept, and for their requests.
    pub copies: Arc<Copies>,
}

/// How fast a request's body has to come. One byte every now and then would hold a request for ever.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Between two parts. The whole body may take as long, however small it is,
    pub pause: Duration,
    /// and another second for each so many bytes of it.
    pub rate: NonZeroU32,
}

impl Pace {
    /// How long the next part is waited for, where `bytes` have come and were waited for so long.
    pub(crate) fn patience(&self, bytes: usize, waited: Duration) -> Duration {
        let nanos = (bytes as u64).saturating_mul(1_000_000_000) / u64::from(self.rate.get());
        let all = self.pause.saturating_add(Duration::from_nanos(nanos));
        all.saturating_sub(waited).min(self.pause)
    }
}

/// Bounds of clients' connections.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// Bytes of a request's line and headers.
    pub head_bytes: usize,
    /// Bytes of a request's URL.
    pub url_bytes: usize,
    /// Number of headers.
    pub headers: usize,
    /// For a request's head, and a TLS handshake.
    pub head_time: Duration,
    /// How fast a body has to come.
    pub body_pace: Pace,
    /// Between two requests.
    pub idle: Duration,
    /// While a client takes nothing.
    pub stall: Option<Duration>,
    /// Connections of all threads together.
    pub connections: usize,
    /// Streams of one HTTP/2 connection.
    pub http2_streams: u32,
    /// Streams of one HTTP/2 connection that were reset and are not forgotten yet; and by how many the requests that
    /// were taken back may outnumber the others.
    pub http2_resets: usize,
}
