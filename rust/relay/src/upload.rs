//! A request's body that is sent on as it comes from the client.

use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use crate::director::ErrorReply;

/// What a client sends behind the part of its body that was read first.
pub trait Source: Send + 'static {
    /// The next bytes; `None` at the end. Not called again after that, or after an error.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>>;
}

/// Why a client's body does not come to its end.
#[derive(Debug, Clone)]
pub enum Broken {
    /// The client has left.
    Left,
    /// It is too slow, too large or malformed: the error that it is answered with, and the error's code.
    Refused(ErrorReply, &'static str),
}

/// A request whose body is not JSON: a form, or anything else.
///
/// What was read of it first is held until the reply begins, so that it can be sent to several upstreams, one after the
/// other, as long as nothing behind it has been.
#[derive(Clone)]
pub struct Upload {
    held: Bytes,
    /// Where the model's name stands in what is held.
    model: Option<Range<usize>>,
    /// Of the whole body, where the client says it.
    size: Option<u64>,
    coming: Option<Arc<Mutex<Coming>>>,
}

struct Coming {
    source: Option<Box<dyn Source>>,
    /// Something of it has been taken.
    taken: bool,
    /// The client is waited for.
    waits: bool,
    /// When something came of it, or its end.
    came: Option<Instant>,
    broken: Option<Broken>,
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upload")
            .field("held", &self.held.len())
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl Upload {
    /// `held` was read, and `rest` follows; `None`: that is all. `model`: where its name stands in `held`, if it is to
    /// be replaced by the upstream's. `size`: bytes of the whole body, where they are known.
    #[must_use]
    pub fn new(
        held: Bytes,
        model: Option<Range<usize>>,
        size: Option<u64>,
        rest: Option<Box<dyn Source>>,
    ) -> Self {
        let size = if rest.is_none() {
            Some(held.len() as u64)
        } else {
            size
        };
        let coming = rest.map(|source| {
            Arc::new(Mutex::new(Coming {
                source: Some(source),
                taken: false,
                waits: false,
                came: None,
                broken: None,
            }))
        });
        Self {
            held,
            model,
            size,
            coming,
        }
    }

    /// Bytes of it: of all, or of what is held where the client does not say how many there are.
    #[must_use]
    pub fn size(&self) -> usize {
        let held = self.held.len();
        self.size
            .map_or(held, |size| usize::try_from(size).unwrap_or(usize::MAX))
    }

    fn coming(&self) -> Option<MutexGuard<'_, Coming>> {
        let coming = self.coming.as_ref()?;
        Some(coming.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Something of it is gone: it cannot be sent again.
    pub(crate) fn is_spent(&self) -> bool {
        self.coming().is_some_and(|coming| coming.taken)
    }

    /// Why it did not come to its end.
    pub(crate) fn broken(&self) -> Option<Broken> {
        self.coming()?.broken.clone()
    }

    /// Until when the upstream could not have answered, for lack of the body.
    pub(crate) fn came(&self) -> Option<Instant> {
        let coming = self.coming()?;
        if coming.waits {
            Some(Instant::now())
        } else {
            coming.came
        }
    }

    /// It, for one upstream that calls the model so.
    pub(crate) fn body(&self, model: &str) -> RequestBody {
        let mut first = self.held.clone();
        let mut size = self.size;
        if let Some(at) = &self.model
            && let (Some(before), Some(name), Some(behind)) = (
                self.held.get(..at.start),
                self.held.get(at.clone()),
                self.held.get(at.end..),
            )
            && name != model.as_bytes()
        {
            first = [before, model.as_bytes(), behind].concat().into();
            size = size.map(|size| (size + model.len() as u64).saturating_sub(name.len() as u64));
        }
        RequestBody {
            first,
            rest: self.coming.clone(),
            left: size,
            sent: None,
        }
    }
}

/// The body of one request to an upstream.
pub(crate) struct RequestBody {
    first: Bytes,
    rest: Option<Arc<Mutex<Coming>>>,
    /// Bytes that follow, where they are known.
    left: Option<u64>,
    /// Set once all of it was given away.
    sent: Option<Arc<AtomicBool>>,
}

impl RequestBody {
    /// Have `sent` set once all of it was given away. One that is empty is never asked for.
    pub(crate) fn tell_sent(&mut self, sent: &Arc<AtomicBool>) {
        self.sent = Some(Arc::clone(sent));
    }
}

impl From<Bytes> for RequestBody {
    fn from(whole: Bytes) -> Self {
        Self {
            left: Some(whole.len() as u64),
            first: whole,
            rest: None,
            sent: None,
        }
    }
}

/// The body ended before its end; its [`Upload`] knows why.
#[derive(Debug)]
pub(crate) struct Incomplete;

impl std::fmt::Display for Incomplete {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the client's body broke off")
    }
}

impl std::error::Error for Incomplete {}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Incomplete;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Incomplete>>> {
        let frame = if self.first.is_empty() {
            match &self.rest {
                None => None,
                Some(rest) => ready!(
                    rest.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .poll_next(cx)
                ),
            }
        } else {
            Some(Ok(std::mem::take(&mut self.first)))
        };
        if let Some(Ok(data)) = &frame {
            self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
        }
        let is_whole = match &frame {
            None => true,
            Some(Ok(_)) => self.rest.is_none(),
            Some(Err(Incomplete)) => false,
        };
        if is_whole && let Some(sent) = &self.sent {
            sent.store(true, Ordering::Release);
        }
        Poll::Ready(frame.map(|frame| frame.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_empty() && self.rest.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.left
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Coming {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Incomplete>>> {
        let Some(source) = &mut self.source else {
            return Poll::Ready(self.broken.is_some().then_some(Err(Incomplete)));
        };
        let Poll::Ready(next) = source.poll_next(cx) else {
            self.waits = true;
            return Poll::Pending;
        };
        self.waits = false;
        self.came = Some(Instant::now());
        Poll::Ready(match next {
            Some(Ok(data)) => {
                self.taken = true;
                Some(Ok(data))
            }
            Some(Err(broken)) => {
                (self.source, self.broken) = (None, Some(broken));
                Some(Err(Incomplete))
            }
            None => {
                self.source = None;
                None
            }
        })
    }
}
