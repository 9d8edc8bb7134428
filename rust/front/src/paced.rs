//! A client's body as it comes, with a bound on the time that its client takes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as _, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::bounds::Pace;
use crate::reading::broken;
use crate::refusal::Refusal;

pub(crate) struct Paced {
    pub(crate) body: Incoming,
    pace: Pace,
    late: Pin<Box<Sleep>>,
    bytes: usize,
    /// How long the client was waited for. Whoever takes the body may take its own time.
    waited: Duration,
    /// Since when it is.
    waits: Option<Instant>,
}

impl Paced {
    /// What follows the first `bytes`, for which the client was waited for so long.
    pub(crate) fn new(body: Incoming, pace: Pace, bytes: usize, waited: Duration) -> Self {
        Self {
            body,
            pace,
            late: Box::pin(tokio::time::sleep(pace.pause)),
            bytes,
            waited,
            waits: None,
        }
    }

    /// Bytes that have come.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The next bytes; trailers are passed over.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Refusal>>> {
        loop {
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                if self.waits.is_none() {
                    let now = Instant::now();
                    self.waits = Some(now);
                    let patience = self.pace.patience(self.bytes, self.waited);
                    self.late.as_mut().reset(now + patience);
                }
                ready!(self.late.as_mut().poll(cx));
                return Poll::Ready(Some(Err(Refusal::Late)));
            };
            if let Some(since) = self.waits.take() {
                self.waited += since.elapsed();
            }
            return Poll::Ready(match frame {
                Some(Err(error)) => Some(Err(broken(&error))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        self.bytes += data.len();
                        Some(Ok(data))
                    }
                    Err(_) => continue,
                },
                None => None,
            });
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
