//! What keeps a client's connection alive while its upstream is silent: balancers close what is idle (litellm#34819).

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use sluicegate_core::api::Api;
use sluicegate_core::protocols;
use tokio::time::Instant;

use crate::headers::{self, Content};
use crate::reply::Sink;

/// A comment, since every event-stream parser skips one; `id:` and `retry:` break some clients.
const COMMENT: &[u8] = b": keep-alive\n\n";

/// The status of a stream that begins before its upstream has answered.
const BEGUN_STATUS: u16 = 200;

/// When the next sign of life is due.
pub(crate) struct KeepAlive {
    sign: &'static [u8],
    every: Option<Duration>,
    last: Instant,
    begun: bool,
}

impl KeepAlive {
    pub(crate) fn new(api: Api, every: Option<Duration>, now: Instant) -> Self {
        Self {
            sign: protocols::of(api).ping().unwrap_or(COMMENT),
            every,
            last: now,
            begun: false,
        }
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.every.and_then(|every| self.last.checked_add(every))
    }

    /// The client was sent something.
    pub(crate) fn sent(&mut self, now: Instant) {
        self.last = now;
    }

    /// Whether a sign of life has begun the reply, as an event stream: what follows must be one.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// The reply turned out to be no event stream.
    pub(crate) fn stop(&mut self) {
        self.every = None;
    }

    /// Send a sign of life. `begun`: the reply has begun with the upstream's head.
    pub(crate) fn beat(&mut self, sink: &mut Sink, request_id: &str, begun: bool) {
        if !begun && !self.begun {
            self.begun = true;
            sink.start(
                BEGUN_STATUS,
                headers::reply(HeaderMap::new(), request_id, Content::EventStream),
            );
        }
        self.last = Instant::now();
        sink.push(&mut vec![Bytes::from_static(self.sign)]);
    }
}
