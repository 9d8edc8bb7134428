//! The one report of each request: it ends with exactly one [`Ended`], whatever becomes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sluicegate_core::pipeline::Pricer;
use sluicegate_relay::exchange::CLIENT_CLOSED_REQUEST;
use sluicegate_relay::{
    Copies, Deciding, Director, Fault, Next, NotCopied, Outcome, ReplyCopy, Tally,
};
use tokio::time::Instant;

use crate::asked::AskedRequest;
use crate::decisions::{About, AskedPricer, Decisions, Ended, Event, Failed, RequestCopy};
use crate::refusal::Refusal;

/// The requests under way, counted.
#[derive(Clone, Default)]
pub(crate) struct InFlight(Arc<AtomicUsize>);

impl InFlight {
    /// Count one more, unless there are `most` already.
    pub(crate) fn enter(&self, most: usize) -> Option<Entered> {
        let entered = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| {
                (n < most).then_some(n + 1)
            });
        entered.ok().map(|_| Entered(Arc::clone(&self.0)))
    }
}

/// One request that is counted as long as this lives.
pub(crate) struct Entered(Arc<AtomicUsize>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A request that has not been reported yet. Dropped before that, it is reported as one whose client has left, or, by a
/// panic, as one that we failed.
pub(crate) struct Report {
    pub(crate) about: Arc<About>,
    pub(crate) started: Instant,
    pub(crate) model: Option<Box<str>>,
    /// The client's request, where the reply is kept.
    request: Option<RequestCopy>,
    not_copied: Option<NotCopied>,
    decisions: Arc<Decisions>,
    _entered: Option<Entered>,
    done: bool,
}

impl Report {
    pub(crate) fn new(
        about: Arc<About>,
        started: Instant,
        decisions: Arc<Decisions>,
        entered: Option<Entered>,
    ) -> Self {
        Self {
            about,
            started,
            model: None,
            request: None,
            not_copied: None,
            decisions,
            _entered: entered,
            done: false,
        }
    }

    pub(crate) fn decisions(&self) -> &Arc<Decisions> {
        &self.decisions
    }

    /// The request was answered with an error of our own. `code`: set if the error did not come from the deciding
    /// thread.
    pub(crate) fn refused(mut self, status: u16, code: Option<&'static str>, bytes: usize) {
        let outcome = Outcome {
            status,
            code,
            bytes_out: bytes as u64,
            duration: self.started.elapsed(),
            ..Outcome::default()
        };
        self.end(outcome, None, None);
    }

    /// The reply is to be copied, and the request to be kept for it. False where there is no room for that.
    pub(crate) fn copy(&mut self, request: AskedRequest, copies: &Arc<Copies>) -> bool {
        match copies.share(request.size()) {
            Some(share) => self.request = Some(RequestCopy { request, share }),
            None => self.not_copied = Some(NotCopied::NoRoom),
        }
        self.request.is_some()
    }

    /// It is the application's now, which reports it.
    pub(crate) fn passed_on(mut self) {
        self.done = true;
    }

    fn end(
        &mut self,
        mut outcome: Outcome,
        kept: Option<ReplyCopy>,
        tally: Option<Box<dyn Tally>>,
    ) {
        if std::mem::replace(&mut self.done, true) {
            return;
        }
        outcome.not_copied = outcome.not_copied.or(self.not_copied);
        self.decisions.push_for_later(Event::Ended(Box::new(Ended {
            about: Arc::clone(&self.about),
            model: self.model.take(),
            outcome,
            kept,
            request: self.request.take(),
            tally,
        })));
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        // Dropped by a panic, it is we who have left.
        let failed = std::thread::panicking();
        let outcome = Outcome {
            status: if failed { 500 } else { CLIENT_CLOSED_REQUEST },
            client_left: !failed,
            code: failed.then(|| Refusal::Internal.code()),
            duration: self.started.elapsed(),
            ..Outcome::default()
        };
        self.end(outcome, None, None);
    }
}

impl Director for Report {
    fn failed(&mut self, fault: &Fault, attempts: u32) -> Deciding<'_> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        self.decisions.push(Event::Failed(Failed {
            ticket: self.about.ticket,
            fault: fault.clone(),
            attempts,
            answer,
        }));
        let patience = self.decisions.patience();
        let about = Arc::clone(&self.about);
        Box::pin(async move {
            match tokio::time::timeout(patience, answered).await {
                Ok(Ok(next)) => next,
                Ok(Err(_)) => Next::Reply(about.error(Refusal::Internal)),
                Err(_) => Next::Reply(about.error(Refusal::Undecided)),
            }
        })
    }

    fn first_output(&mut self) {
        let event = Event::FirstOutput(self.about.ticket);
        self.decisions.push_for_later(event);
    }

    fn pricer(&self) -> Box<dyn Pricer + Send> {
        Box::new(AskedPricer {
            decisions: Arc::clone(&self.decisions),
            ticket: self.about.ticket,
        })
    }

    fn ended(&mut self, outcome: Outcome, copy: Option<ReplyCopy>, tally: Option<Box<dyn Tally>>) {
        self.end(outcome, copy, tally);
    }
}
