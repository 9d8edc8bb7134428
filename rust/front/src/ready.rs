//! Which replies have something to take, of those that another ASGI server delivers.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use crate::notice::Notice;

/// The tickets that have something new.
#[derive(Default)]
pub struct Ready {
    tickets: Mutex<Vec<u64>>,
    notice: Notice,
}

impl Ready {
    /// A descriptor that is readable while there are some.
    ///
    /// # Errors
    /// Where the system gives none.
    pub fn descriptor(&self) -> io::Result<RawFd> {
        let descriptor = self.notice.descriptor()?;
        let tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        // What was added before there was a descriptor has given no notice.
        if !tickets.is_empty() {
            self.notice.tell();
        }
        Ok(descriptor)
    }

    /// All of them, once.
    #[must_use]
    pub fn take(&self) -> Vec<u64> {
        self.notice.clear();
        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *tickets)
    }

    fn add(&self, ticket: u64) {
        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        tickets.push(ticket);
        let first = tickets.len() == 1;
        drop(tickets);
        if first {
            self.notice.tell();
        }
    }
}

/// What makes one reply's ticket ready. As a waker it does so once, until [`rearm`](Self::rearm).
pub struct Readiness {
    ticket: u64,
    ready: Arc<Ready>,
    told: AtomicBool,
}

impl Readiness {
    /// For the reply with this ticket.
    #[must_use]
    pub fn new(ticket: u64, ready: &Arc<Ready>) -> Arc<Self> {
        Arc::new(Self {
            ticket,
            ready: Arc::clone(ready),
            told: AtomicBool::new(false),
        })
    }

    /// Say so again from now on.
    #[must_use]
    pub fn rearm(self: &Arc<Self>) -> Waker {
        self.told.store(false, Ordering::Release);
        Waker::from(Arc::clone(self))
    }
}

impl Wake for Readiness {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.told.swap(true, Ordering::AcqRel) {
            self.ready.add(self.ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notice::tests::is_readable;

    #[test]
    fn a_reply_is_ready_once_until_it_is_armed_again() {
        let ready = Arc::new(Ready::default());
        let readable = ready.descriptor().unwrap();
        let (first, second) = (Readiness::new(1, &ready), Readiness::new(2, &ready));
        assert!(!is_readable(readable));
        let waker = first.rearm();
        waker.wake_by_ref();
        waker.wake_by_ref();
        second.rearm().wake();
        assert!(is_readable(readable));
        assert_eq!(ready.take(), [1, 2]);
        assert!(!is_readable(readable));
        waker.wake_by_ref();
        assert!(ready.take().is_empty(), "it was not armed again");
        first.rearm().wake();
        assert!(is_readable(readable));
        assert_eq!(ready.take(), [1]);
        assert!(ready.take().is_empty());
    }

    #[test]
    fn what_is_ready_before_there_is_a_descriptor_is_told() {
        let ready = Arc::new(Ready::default());
        Readiness::new(1, &ready).rearm().wake();
        let readable = ready.descriptor().unwrap();
        assert!(is_readable(readable));
        assert_eq!(ready.take(), [1]);
        assert!(!is_readable(readable));
    }

    #[test]
    fn wakes_of_many_threads_are_all_told() {
        let ready = Arc::new(Ready::default());
        let readable = ready.descriptor().unwrap();
        let wakers = (0..8u64).map(|thread| {
            let ready = Arc::clone(&ready);
            std::thread::spawn(move || {
                for nth in 0..500 {
                    Readiness::new(thread * 500 + nth, &ready).rearm().wake();
                }
            })
        });
        let wakers = wakers.collect::<Vec<_>>();
        let mut taken = Vec::new();
        let since = std::time::Instant::now();
        while taken.len() < 8 * 500 {
            assert!(since.elapsed().as_secs() < 20, "{} were told", taken.len());
            if is_readable(readable) {
                taken.extend(ready.take());
            } else {
                std::thread::yield_now();
            }
        }
        wakers.into_iter().for_each(|waker| waker.join().unwrap());
        taken.sort_unstable();
        assert!(taken.into_iter().eq(0..8 * 500));
    }
}
