//! The body of an upstream's reply, which drives the connection that it comes over.

use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use hyper::body::{Body as _, Incoming};

use crate::line::{Line, poll_bytes};
use crate::shared::Shared;

/// An HTTP/1.1 connection goes back to its pool as soon as the last byte has come; dropped before that, it closes. A
/// stream of an HTTP/2 connection is reset.
pub(crate) struct UpstreamBody {
    body: Incoming,
    way: Way,
}

enum Way {
    Line(Box<Line>),
    Shared(Arc<Shared>),
    /// It has ended, well or not.
    Ended,
}

impl UpstreamBody {
    pub(crate) fn of_line(body: Incoming, line: Box<Line>) -> Self {
        Self::new(body, Way::Line(line))
    }

    pub(crate) fn of_shared(body: Incoming, shared: Arc<Shared>) -> Self {
        Self::new(body, Way::Shared(shared))
    }

    fn new(body: Incoming, way: Way) -> Self {
        let mut body = Self { body, way };
        if body.body.is_end_stream() {
            body.complete();
        }
        body
    }

    /// The next bytes; `None` at the regular end. After an error it has ended.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, hyper::Error>>> {
        let data = match &mut self.way {
            Way::Line(line) => ready!(line.poll_body(&mut self.body, cx)),
            Way::Shared(_) => ready!(poll_bytes(&mut self.body, cx)),
            Way::Ended => None,
        };
        match &data {
            // With a length that is known, the end is known before anybody asks for it, and a server may never ask.
            Some(Ok(_)) if !self.body.is_end_stream() => {}
            Some(Ok(_)) | None => self.complete(),
            Some(Err(_)) => self.way = Way::Ended,
        }
        Poll::Ready(data)
    }

    /// All of it has come.
    fn complete(&mut self) {
        match std::mem::replace(&mut self.way, Way::Ended) {
            Way::Line(line) => line.give_back(),
            Way::Shared(shared) => shared.touch(),
            Way::Ended => {}
        }
    }
}

impl Drop for UpstreamBody {
    fn drop(&mut self) {
        match &self.way {
            // The last byte may have come, and only the end that follows it has not been looked at.
            Way::Line(_) => drop(self.poll_data(&mut Context::from_waker(Waker::noop()))),
            Way::Shared(shared) => shared.touch(),
            Way::Ended => {}
        }
    }
}
