//! The wakers of a connection that has no task of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Wake, Waker};

use futures_util::task::AtomicWaker;

const OPEN: u8 = 0;
const MUTED: u8 = 1;
const MISSED: u8 = 2;

/// The waker that a connection knows, whichever task drives it. Sockets and channels keep it for the connection's whole
/// life.
///
/// Connection and body are two ends of a channel, and each wakes the other; where one task polls both, that would be
/// one more turn of the task for each read. So the driver mutes the waker while it polls the body.
#[derive(Default)]
pub(crate) struct Wakes {
    task: AtomicWaker,
    state: AtomicU8,
}

impl Wakes {
    /// From now on wake this one.
    pub(crate) fn set_task(&self, waker: &Waker) {
        self.task.register(waker);
    }

    /// Nobody drives the connection.
    pub(crate) fn clear_task(&self) {
        drop(self.task.take());
    }

    pub(crate) fn mute(&self) {
        self.state.store(MUTED, Ordering::Release);
    }

    /// Whether a wake came while it was muted: then the connection must be polled.
    pub(crate) fn unmute(&self) -> bool {
        self.state.swap(OPEN, Ordering::AcqRel) == MISSED
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let kept = self
            .state
            .compare_exchange(MUTED, MISSED, Ordering::AcqRel, Ordering::Acquire);
        if kept == Err(OPEN) {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_wake_reaches_the_task_or_is_told_when_it_was_muted() {
        let (wakes, count) = (Arc::new(Wakes::default()), Arc::new(Count::default()));
        let waker = Waker::from(Arc::clone(&wakes));
        let woken = || count.0.load(Ordering::Relaxed);
        wakes.set_task(&Waker::from(Arc::clone(&count)));
        wakes.mute();
        assert!(!wakes.unmute(), "nothing came");
        wakes.mute();
        waker.wake_by_ref();
        waker.wake_by_ref();
        assert!(wakes.unmute());
        assert_eq!(woken(), 0);
        waker.wake_by_ref();
        assert_eq!(woken(), 1);
        wakes.set_task(&Waker::from(Arc::clone(&count)));
        wakes.clear_task();
        waker.wake_by_ref();
        assert_eq!(woken(), 1, "nobody is there");
    }
}
