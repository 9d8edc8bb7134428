//! A client that has left: the connection to its upstream is closed at once, or the reply is read on, within bounds,
//! for the usage at its end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::Shared;

/// How far replies without a client are read. Past any of these the upstream is closed, and what was counted is the
/// record.
#[derive(Debug, Clone, Copy)]
pub struct DrainLimits {
    /// From the client's leaving; the upstream's own deadlines run as well.
    pub time: Duration,
    /// Body bytes of one reply after the client's leaving.
    pub bytes: u64,
    /// Replies of one process at once.
    pub replies: usize,
}

impl Default for DrainLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(60),
            bytes: 16 * 1024 * 1024,
            replies: 100,
        }
    }
}

/// One of the `replies`, given back when dropped.
struct Place(Arc<Shared>);

impl Place {
    fn take(shared: &Arc<Shared>, limit: usize) -> Option<Self> {
        let taken = shared
            .draining
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| {
                (n < limit).then_some(n + 1)
            });
        taken.is_ok().then(|| Self(Arc::clone(shared)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.draining.fetch_sub(1, Ordering::AcqRel);
    }
}

struct Departed {
    /// None: past the clock's end.
    until: Option<Instant>,
    bytes_left: u64,
    _place: Place,
}

/// Whether one exchange's client is there, and what follows where it is not.
pub(crate) struct Leaving {
    shared: Arc<Shared>,
    limits: DrainLimits,
    drain: bool,
    departed: Option<Departed>,
}

impl Leaving {
    pub(crate) fn new(shared: Arc<Shared>, limits: DrainLimits) -> Self {
        Self {
            shared,
            limits,
            drain: false,
            departed: None,
        }
    }

    /// Sets whether replies of the route in use are read on after the client has left.
    pub(crate) fn set_drain(&mut self, drain: bool) {
        self.drain = drain;
    }

    /// The client has left just now: whether the upstream is read on.
    pub(crate) fn depart(&mut self) -> bool {
        if !self.drain {
            return false;
        }
        self.departed = Place::take(&self.shared, self.limits.replies).map(|place| Departed {
            until: Instant::now().checked_add(self.limits.time),
            bytes_left: self.limits.bytes,
            _place: place,
        });
        self.departed.is_some()
    }

    /// There is no client any more.
    pub(crate) fn departed(&self) -> bool {
        self.departed.is_some()
    }

    /// Until when the upstream may be read on.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.departed.as_ref().and_then(|departed| departed.until)
    }

    /// Note `bytes` more of the reply: whether that many may still be read.
    pub(crate) fn read(&mut self, bytes: usize) -> bool {
        let Some(departed) = &mut self.departed else {
            return true;
        };
        let left = departed.bytes_left.checked_sub(bytes as u64);
        departed.bytes_left = left.unwrap_or(0);
        left.is_some()
    }
}
