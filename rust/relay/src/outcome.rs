//! How an exchange ended.

use std::time::Duration;

use sluicegate_core::usage::Usage;

use crate::fault::Fault;

/// The record of one exchange. Times count from its submission.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// The status the client got; 499 where it left before one was sent.
    pub status: u16,
    /// The upstream that served, or was tried last.
    pub upstream: Box<str>,
    /// The upstream's name of the model.
    pub upstream_model: Box<str>,
    /// Attempts made.
    pub attempts: u32,
    /// The client was sent an event stream.
    pub streamed: bool,
    /// The last that the upstream said of it.
    pub usage: Option<Usage>,
    /// The first finish reason of the reply.
    pub finish_reason: Option<Box<str>>,
    /// Also set where the client got a success status: a stream that broke off, an error event inside it.
    pub fault: Option<Fault>,
    /// The client left before the end.
    pub client_left: bool,
    /// Events with data from the upstream.
    pub events: u64,
    /// Payloads that were not JSON.
    pub malformed: u64,
    /// Events that bore text, reasoning or a tool call, as far as they were told apart.
    pub token_events: u64,
    /// Body bytes from the upstream.
    pub bytes_in: u64,
    /// Body bytes to the client.
    pub bytes_out: u64,
    /// First body byte.
    pub first_byte: Option<Duration>,
    /// First text, reasoning or tool call.
    pub first_token: Option<Duration>,
    /// The last of them.
    pub last_token: Option<Duration>,
    /// The longest time between two reads that bore tokens.
    pub longest_gap: Option<Duration>,
    /// The whole exchange.
    pub duration: Duration,
    /// The parts of the request that the upstream was not told, and that its answer does not depend on.
    pub left_out: Vec<Box<str>>,
    /// The upstream's `x-request-id`.
    pub upstream_request_id: Option<Box<str>>,
}
