//! The bounds of clients: what a request, a reply and a connection may take.

use std::time::Duration;

use sluicegate_relay::DrainLimits;

/// Bounds of requests and replies.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of a request's body.
    pub max_body: usize,
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
    /// Between two parts of a body.
    pub body_pause: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// While a client takes nothing.
    pub stall: Option<Duration>,
    /// Connections of all threads together.
    pub connections: usize,
    /// Streams of one HTTP/2 connection.
    pub http2_streams: u32,
    /// Streams of one HTTP/2 connection that were reset and are not forgotten yet.
    pub http2_resets: usize,
}
