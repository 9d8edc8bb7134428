//! Something that happens once, and that many wait for.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::{
    CancellationToken, WaitForCancellationFuture, WaitForCancellationFutureOwned,
};

/// Given once, for good.
///
/// Whoever begins to wait for it takes a lock that all who wait share. Whether it has been given can be asked without.
#[derive(Debug, Default)]
pub struct Signal {
    token: CancellationToken,
    given: AtomicBool,
}

impl Signal {
    /// Give it. Idempotent.
    pub fn give(&self) {
        self.given.store(true, Ordering::Release);
        self.token.cancel();
    }

    /// Whether it has been given.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    /// Ends when it is given.
    pub fn given(&self) -> WaitForCancellationFuture<'_> {
        self.token.cancelled()
    }

    /// The same for whoever outlives the borrow.
    pub fn given_owned(&self) -> WaitForCancellationFutureOwned {
        self.token.clone().cancelled_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn all_who_wait_are_told_and_whoever_asks_knows() {
        let signal = Signal::default();
        let mut cx = Context::from_waker(Waker::noop());
        let (mut waiting, mut owned) = (pin!(signal.given()), pin!(signal.given_owned()));
        assert!(waiting.as_mut().poll(&mut cx).is_pending() && !signal.is_given());
        assert!(owned.as_mut().poll(&mut cx).is_pending());
        signal.give();
        signal.give();
        assert!(waiting.poll(&mut cx).is_ready() && signal.is_given());
        assert!(owned.poll(&mut cx).is_ready());
        assert!(pin!(signal.given()).poll(&mut cx).is_ready(), "for good");
    }
}
